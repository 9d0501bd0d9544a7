// Linear layers of a model for any number of tokens: the kernels of templates/linear.cuh, a launch
// for each 16 tokens. A token's bits do not depend on the tokens beside it, nor on the kernel's config.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include "jit/linear.h"
#include "runtime/prepared.h"

namespace attune {

class LinearLayers {
 public:
  using Load = std::function<std::shared_ptr<const LoadedModule>(const Source&)>;

  // Prepares the winners of these layers, for up to 8 and up to 16 tokens; Engine::swap() exchanges
  // them. Throws what Engine::prepare throws, and DeviceUnavailable on a GPU that has no kernel for
  // linear layers.
  LinearLayers(Engine& engine, std::span<const LinearShape> shapes,
               LinearWeights weights = LinearWeights::kBf16);

  // LinearArgs::num_tokens of any size. Enqueues. The weights are in the format that it was made for.
  // A shape that was not prepared takes the kernel of one with its epilogue.
  void run(LinearShape shape, LinearArgs args, StreamHandle stream) const;

 private:
  const Attention::Prepared& prepared_for(const LinearShape& shape, int tokens) const;

  Device& device_;
  LinearWeights weights_;
  // By epilogue, tokens of a launch (8 or 16) and shape.
  std::map<std::tuple<LinearEpilogue, int, LinearShape>, std::shared_ptr<const Attention::Slot>>
      slots_;
};

}  // namespace attune
