// Linear layers of a model for any number of tokens: the kernels of templates/linear.cuh, or of
// templates/experts.cuh, a launch for each 16 tokens, or prefills by a library's product. A token's bits do
// not depend on the tokens beside it in a launch of these kernels, nor on the kernel's config.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>

#include "jit/linear.h"
#include "runtime/linear_prefill.h"
#include "runtime/prepared.h"

namespace attune {

class LinearLayers {
 public:
  using Load = LinearPrefill::Load;

  // Prepares the winners of these layers, for each number of tokens that is a problem; Engine::swap() exchanges
  // them. Throws what Engine::prepare throws, and DeviceUnavailable on a GPU that has no kernel for
  // linear layers.
  LinearLayers(Engine& engine, std::span<const LinearShape> shapes,
               LinearWeights weights = LinearWeights::kBf16);

  // From now on more tokens than the kernels take at once are multiplied by `gemm`, in these layers and
  // up to max_tokens of them, but for those that the library refuses: `warn` hears of these. Loads kernels
  // and allocates. `gemm` may be null: nothing changes.
  void prefill_by(std::unique_ptr<Gemm> gemm, const Load& load, std::span<const LinearShape> shapes,
                  int max_tokens, LinearPrefill::Warn warn = {});
  std::size_t prefill_bytes() const { return prefill_ == nullptr ? 0 : prefill_->bytes(); }
  // What multiplies prefills of so many tokens, for a person.
  std::string prefill_text(int num_tokens) const;

  // LinearArgs::num_tokens of any size, of experts those of one group. Enqueues. The weights are in the
  // format that it was made for. A shape that was not prepared takes the kernel of one with its epilogue.
  void run(LinearShape shape, LinearArgs args, StreamHandle stream) const;

 private:
  const Attention::Prepared& prepared_for(const LinearShape& shape, int tokens) const;

  Device& device_;
  LinearWeights weights_;
  std::unique_ptr<LinearPrefill> prefill_;
  // By whether it is of experts, epilogue, LinearShape::problem_tokens and shape.
  std::map<std::tuple<bool, LinearEpilogue, int, LinearShape>,
           std::shared_ptr<const Attention::Slot>>
      slots_;
};

}  // namespace attune
