// Linear layers of prefills: a matrix product of a library (jit/gemm.h) for all tokens at once, and the
// kernels around it that unpack weights and gate outputs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "jit/gemm.h"
#include "jit/linear.h"
#include "runtime/prepared.h"

namespace attune {

class LinearPrefill {
 public:
  using Load = std::function<std::shared_ptr<const LoadedModule>(const Source&)>;
  using Warn = std::function<void(const std::string&)>;

  // Loads kernels, allocates what up to max_tokens tokens of these layers need, and chooses the products'
  // algorithms for each number of tokens. Throws what `load` throws. `warn` gets one line for each layer
  // of which the library refuses a product, now or in run().
  LinearPrefill(Device& device, const Load& load, std::unique_ptr<Gemm> gemm,
                std::span<const LinearShape> shapes, int max_tokens, Warn warn);

  // Whether run() is there for so many tokens of this layer, and faster than 16 at a time. Never for
  // logits.
  bool serves(const LinearShape& shape, int num_tokens) const;
  // Enqueues. Outputs are rounded as those of linear.cuh. Packed weights are unpacked to bf16, so that
  // each is rounded once more than there: by up to 2^-9 of itself. False where the library refuses the
  // product: the output is not written then.
  [[nodiscard]] bool run(const LinearShape& shape, const LinearArgs& args, StreamHandle stream);

  // Whether it multiplies any of its layers for so many tokens.
  bool multiplies(int num_tokens) const;
  std::string name() const;  // of the library, and how many layers it has refused
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
  static GemmShape product_of(const LinearShape& shape, int num_tokens) {
    return {num_tokens, shape.weight_rows(), shape.in_features};
  }
  // Of all numbers of tokens up to this one.
  void choose_algorithms(const LinearShape& shape, int max_tokens);
  void note(const LinearShape& shape, const GemmRefusal& refusal);

  Device& device_;
  std::unique_ptr<Gemm> gemm_;
  Loaded dequantize_;                       // where a layer is packed
  std::map<LinearEpilogue, Loaded> gates_;  // of gated layers
  Warn warn_;
  std::set<LinearShape> layers_;   // that it was made for and takes
  std::set<LinearShape> refused_;  // of them, at one number of tokens or more
  DeviceMem unpacked_;             // bf16, the largest packed layer
  DeviceMem gate_up_;              // bf16 [max_tokens, 2 * out_features] of the widest gated layer
};

}  // namespace attune
