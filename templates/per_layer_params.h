// Arguments of per_layer.cuh, passed by value, and what its launches share. Compiled by the host compiler
// and by NVRTC. Strides are in elements; rows are contiguous.
#pragma once

#include "templates/params.h"

namespace attune {

constexpr int kPerLayerWarps = 8;
constexpr int kPerLayerColumns = kWarpSize * 8;  // of one chunk of every lane
constexpr int kMaxPerLayerChunks = 4;

// For each token and layer, of `width` elements:
//   inputs = bf16((bf16(norm(bf16(projected * projected_scale)) * weight)
//                  + bf16(embedding[token] * embedding_scale)) / sqrt(2)), the sum rounded to bf16 too
struct PerLayerParams {
  const uint16* projected;  // bf16 [num_tokens, num_layers, width]
  uint16* inputs;           // bf16 [num_tokens, num_layers, width]; may be `projected`
  const uint16* weight;     // bf16 [width]
  const int* tokens;        // [num_tokens]; a negative one, which argmax gives for NaN, counts as 0
  const uint16* embedding;  // bf16 [vocabulary, num_layers, width]
  float projected_scale, embedding_scale;
  int num_layers;
  int width;  // a multiple of 8
  float eps;
};

// gate = bf16(bf16(gelu_tanh(gate)) * inputs)
struct PerLayerGateParams {
  uint16* gate;          // bf16 [num_tokens, width]
  const uint16* inputs;  // bf16 [num_tokens, width], of one layer
  int64 inputs_stride;
  int width;  // a multiple of 8
};

}  // namespace attune
