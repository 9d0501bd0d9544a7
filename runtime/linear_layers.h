// Linear layers of a model for any number of tokens: the kernels of templates/linear.cuh, a launch
// for each 16 tokens. A token's bits do not depend on the tokens beside it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "jit/linear.h"
#include "runtime/prepared.h"

namespace attune {

class LinearLayers {
 public:
  using Load = std::function<std::shared_ptr<const LoadedModule>(const Source&)>;

  // Loads the kernels of these epilogues. Throws what `load` throws.
  LinearLayers(Device& device, const Load& load, std::span<const LinearEpilogue> epilogues,
               LinearWeights weights = LinearWeights::kBf16);

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
  std::map<std::pair<LinearEpilogue, int>, Loaded> kernels_;  // by BLOCK_M
};

}  // namespace attune
