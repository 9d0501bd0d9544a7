// Products of many tokens by a vendor's library: y[tokens, out] = x[tokens, in] W^T, of bf16 with fp32
// sums, rounded once.
#pragma once

#include <compare>
#include <optional>
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

// One algorithm serves (k - 1) * 64 + 1 to k * 64 tokens: tiles of products have at least 64, so that each
// of these numbers makes the same tiles.
constexpr int kGemmTokenBlock = 64;

// Why the library does not compute a product.
struct GemmRefusal {
  std::string reason;
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

  // Chooses the algorithm of all shapes that differ from this one within a block of tokens, so that
  // run() asks the library for none. A refusal is final.
  virtual std::optional<GemmRefusal> prepare(const GemmShape& shape) = 0;
  // Enqueues; allocates nothing for shapes that are prepared. The same shape gives the same bits each
  // time. Where the library refuses, `out` is not written.
  [[nodiscard]] virtual std::optional<GemmRefusal> run(const GemmShape& shape, const GemmArgs& args,
                                                       StreamHandle stream) = 0;
};

}  // namespace attune
