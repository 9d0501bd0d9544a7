// Linear layers of prefills: a matrix product of a library (jit/gemm.h) for all tokens at once, and the
// kernels around it that unpack weights and gate outputs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "jit/gemm.h"
#include "jit/linear.h"
#include "runtime/prepared.h"

namespace attune {

class LinearPrefill {
 public:
  using Load = std::function<std::shared_ptr<const LoadedModule>(const Source&)>;

  // Loads kernels and allocates what up to max_tokens tokens of these layers need. Throws what `load`
  // throws.
  LinearPrefill(Device& device, const Load& load, std::unique_ptr<Gemm> gemm,
                std::span<const LinearShape> shapes, int max_tokens);

  // Whether run() is there for so many tokens of this layer, and faster than 16 at a time. Never for
  // logits.
  bool serves(const LinearShape& shape, int num_tokens) const;
  // Enqueues. Outputs are rounded as those of linear.cuh. Packed weights are unpacked to bf16, so that
  // each is rounded once more than there: by up to 2^-9 of itself.
  void run(const LinearShape& shape, const LinearArgs& args, StreamHandle stream);

  std::string name() const { return gemm_->name(); }
  std::size_t bytes() const {
    return gemm_->workspace_bytes() + unpacked_.bytes() + gate_up_.bytes();
  }

 private:
  struct Loaded {
    std::shared_ptr<const LoadedModule> module;
    Kernel kernel;
  };
  // Layers and numbers of tokens for which the product is faster; room apart.
  static bool takes(const LinearShape& shape, int num_tokens);
  static std::size_t unpacked_bytes(const LinearShape& shape);
  static std::size_t gate_up_bytes(const LinearShape& shape, int num_tokens);

  Device& device_;
  std::unique_ptr<Gemm> gemm_;
  Loaded dequantize_;                       // where a layer is packed
  std::map<LinearEpilogue, Loaded> gates_;  // of gated layers
  DeviceMem unpacked_;                      // bf16, the largest packed layer
  DeviceMem gate_up_;  // bf16 [max_tokens, 2 * out_features] of the widest gated layer
};

}  // namespace attune
