// Arguments of the kernels of a model beside its attention, passed by value. Compiled by the host
// compiler and by NVRTC. Strides are in elements; rows are contiguous.
#pragma once

#include "templates/params.h"

namespace attune {

struct LinearParams {
  // W as bf16 [weight rows, in_features], in boxes of 64 columns and as many rows as most passes
  // have outputs, and of one row less; x as bf16 [num_tokens, in_features], in boxes of 64 columns,
  // or of a panel for one token, and all rows. Beyond the last column they fill zeros.
  TensorMap weight_map, short_weight_map, input_map;
  const void* packed;  // packed rows of W (linear_config.h) in place of the first two maps
  int weight_rows;

  void* out;  // bf16 [num_tokens, out_features]; of logits float
  int64 out_stride;
  int num_tokens;    // 1 to BLOCK_M
  int in_features;   // a multiple of 8
  int out_features;  // half of the weight rows where those are gate and up
  // A CTA has the outputs [i * out_features / CTAs, (i + 1) * out_features / CTAs) in num_passes
  // passes of outputs_per_pass or one less.
  int num_passes;
  int outputs_per_pass;
  float softcap;  // of logits; 0: none
};

// One step of the residual stream h, for each token:
//   h = bf16(h + bf16(norm(branch) * post_weight)); h = bf16(h * scalar); out = bf16(norm(h) *
//   next_weight)
// or, where a sequence begins its way through the layers, h = bf16(embedding[token] * scale). What
// has a null pointer is left out.
struct ResidualParams {
  const uint16* branch;       // bf16 [num_tokens, hidden]; unused by the embedding
  const uint16* post_weight;  // bf16 [hidden]; null: the branch is added as it is
  const uint16* scalar;       // bf16 [1]
  const uint16* next_weight;  // bf16 [hidden]; not null
  const uint16* from;         // bf16 [num_tokens, hidden], h before; unused by the embedding
  uint16* stream;             // bf16 [num_tokens, hidden], h; may be `from`
  uint16* out;                // bf16 [num_tokens, hidden]; or null
  uint16* tap;                // bf16 [num_tokens, hidden], a copy of h
  int64 from_stride, out_stride, tap_stride;

  const int* tokens;        // [num_tokens]; a negative one, which argmax gives for NaN, counts as 0
  const uint16* embedding;  // bf16 [vocabulary, hidden]
  float embedding_scale;

  int hidden;  // a multiple of 8
  float eps;
};

// Rows of W to packed ones.
struct QuantizeParams {
  const uint16* rows;  // bf16 [num_rows, in_features]
  void* packed;        // [panels, num_rows, kInt4RowBytes]
  int num_rows;
  int in_features;  // a multiple of 8
  int first_row;    // of the launch: a grid has 65535 rows at most
};

// Packed rows to rows of bf16.
struct DequantizeParams {
  const void* packed;  // [panels, num_rows, kInt4RowBytes]
  uint16* rows;        // bf16 [num_rows, in_features]
  int num_rows;
  int in_features;  // a multiple of 8
};

// Gated outputs of their rows.
struct GateParams {
  const uint16* gate_up;  // bf16 [num_tokens, 2 * width], the gate's columns first
  uint16* out;            // bf16 [num_tokens, width]
  int width;              // a multiple of 8
};

// The first index of the largest value of each row, or what `map` has for it; -1 for a row of NaN.
struct ArgmaxParams {
  const float* logits;  // [rows, columns]
  int64 stride;
  int columns;
  const int* map;  // [columns]; null: the index itself
  int* out;        // [rows]
};

}  // namespace attune
