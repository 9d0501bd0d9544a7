// Products of many tokens by a vendor's library: y[tokens, out] = x[tokens, in] W^T, of bf16 with fp32
// sums, rounded once.
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "jit/device.h"

namespace attune {

// GemmSearch::cublaslt_path of those who want no library.
constexpr std::string_view kNoGemm = "off";

struct GemmShape {
  int num_tokens = 0;
  int out_features = 0;
  int in_features = 0;  // a multiple of 8, as out_features
  friend auto operator<=>(const GemmShape&, const GemmShape&) = default;
};

// Device pointers, 16-byte aligned; rows are dense.
struct GemmArgs {
  DevicePtr weights = 0;  // bf16 [out_features, in_features]
  DevicePtr input = 0;    // bf16 [num_tokens, in_features]
  DevicePtr out = 0;      // bf16 [num_tokens, out_features]
};

// On one device; has to go before it. By one thread at a time and on one stream: it has one workspace.
class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual std::string name() const = 0;  // "cuBLASLt 13.1.0 in /usr/local/cuda/lib64/..."
  virtual std::size_t workspace_bytes() const = 0;

  // Enqueues. The same shape gives the same bits each time. Its first call also chooses the algorithm.
  // Throws Error when the library refuses.
  virtual void run(const GemmShape& shape, const GemmArgs& args, StreamHandle stream) = 0;
};

}  // namespace attune
