// The kernels of a residual stream: the embedding, its steps, and the best token at its end.
#pragma once

#include <memory>

#include "jit/device.h"
#include "jit/model_source.h"
#include "runtime/linear_layers.h"

namespace attune {

struct StreamKernels {
  // For rows of `hidden` elements. Throws what residual_source and `load` throw.
  StreamKernels(Device& device, const LinearLayers::Load& load, int hidden) {
    const Source steps = residual_source(hidden);
    steps_module = load(steps);
    residual = device.kernel(steps_module->module, steps.symbols[0], 0);
    embedding = device.kernel(steps_module->module, steps.symbols[1], 0);
    const Source largest = argmax_source();
    argmax_module = load(largest);
    argmax = device.kernel(argmax_module->module, largest.symbols.front(), 0);
  }

  std::shared_ptr<const LoadedModule> steps_module, argmax_module;
  Kernel residual, embedding, argmax;
};

}  // namespace attune
