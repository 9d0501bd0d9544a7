// multiply_tile with AVX2, eight columns at a time.
#pragma once

#include "jit/host/tensor_core.h"

namespace attune::host {

bool avx2_supported();  // by this processor

void multiply_tile_avx2(int rows, int n, const uint16 (*a)[kMmaDepth], const uint16 (*b)[kMmaDepth],
                        float* d, const TensorCoreModel& model);

}  // namespace attune::host
