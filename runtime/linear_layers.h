// Linear layers of a model for any number of tokens: the kernels of templates/linear.cuh, a launch
// for each 16 tokens, of which a token's bits do not depend on the tokens beside it; or prefills by a
// library's product.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "jit/linear.h"
#include "runtime/linear_prefill.h"
#include "runtime/prepared.h"

namespace attune {

class LinearLayers {
 public:
  using Load = LinearPrefill::Load;

  // Loads the kernels of these epilogues. Throws what `load` throws.
  LinearLayers(Device& device, const Load& load, std::span<const LinearEpilogue> epilogues,
               LinearWeights weights = LinearWeights::kBf16);

  // From now on more tokens than the kernels take at once are multiplied by `gemm`, in these layers and
  // up to max_tokens of them. Loads kernels and allocates. `gemm` may be null: nothing changes.
  void prefill_by(std::unique_ptr<Gemm> gemm, const Load& load, std::span<const LinearShape> shapes,
                  int max_tokens);
  std::size_t prefill_bytes() const { return prefill_ == nullptr ? 0 : prefill_->bytes(); }
  std::string prefill_text() const;  // what multiplies prefills, for a person

  // LinearArgs::num_tokens of any size. Enqueues.
  // The weights are in the format that it was made for.
  void run(LinearShape shape, LinearArgs args, StreamHandle stream) const;

 private:
  struct Loaded {
    std::shared_ptr<const LoadedModule> module;
    LinearKernel linear;
  };
  Device& device_;
  LinearWeights weights_;
  std::unique_ptr<LinearPrefill> prefill_;
  std::map<std::pair<LinearEpilogue, int>, Loaded> kernels_;  // by BLOCK_M
};

}  // namespace attune
