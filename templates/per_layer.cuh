// Per-layer inputs: what the layers of small models take of a token beside its stream.
// per_layer_inputs  those of all layers, once a step (PerLayerParams): a row of the token's own table
//                   and a projection of its embedding. Grid (tokens, layers / kPerLayerWarps), a warp
//                   a layer; a lane has chunks of 8 neighbouring elements, a warp's width apart.
// per_layer_gate    the gate of one layer (PerLayerGateParams). Grid: tokens, a warp each.
// Rounding          to bf16 where the reference does; in fp32 in between.
// Sync              griddepcontrol_wait: what kernels in front wrote is visible.
// Bits              of a token depend on its values only.
// Source            transformers' Gemma 4 (Apache-2.0), for what is rounded where.
#pragma once

#include "templates/device/bf16.cuh"
#include "templates/device/gated.cuh"
#include "templates/device/ptx.cuh"
#include "templates/per_layer_params.h"

namespace attune {

template <int kChunks>
__device__ __forceinline__ void per_layer_inputs(const PerLayerParams& p) {
  constexpr float kHalfRoot = 0.70710678118654752440f;
  const int layer = blockIdx.y * kPerLayerWarps + threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  if (layer >= p.num_layers) return;

  const int64 token = blockIdx.x;
  const int64 row = (token * p.num_layers + layer) * p.width;
  const int64 id = max(p.tokens[token], 0);
  const uint16* const embedding = p.embedding + (id * p.num_layers + layer) * p.width;
  float values[kChunks][8] = {};
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int at = i * kPerLayerColumns + lane * 8;
    if (at < p.width) load_bf16(values[i], p.projected + row + at);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      values[i][j] = round_bf16(__fmul_rn(values[i][j], p.projected_scale));
      sum = __fmaf_rn(values[i][j], values[i][j], sum);
    }
  }
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
  }
  const float mean = __fdiv_rn(sum, static_cast<float>(p.width));
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.eps)));
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int at = i * kPerLayerColumns + lane * 8;
    if (at >= p.width) continue;
    float weight[8], own[8];
    load_bf16(weight, p.weight + at);
    load_bf16(own, embedding + at);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float normed = round_bf16(__fmul_rn(__fmul_rn(values[i][j], inverse), weight[j]));
      const float scaled = round_bf16(__fmul_rn(own[j], p.embedding_scale));
      values[i][j] = __fmul_rn(round_bf16(__fadd_rn(normed, scaled)), kHalfRoot);
    }
    store_bf16(p.inputs + row + at, values[i]);
  }
}

__device__ __forceinline__ void per_layer_gate(const PerLayerGateParams& p) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int64 token = blockIdx.x;
  for (int at = threadIdx.x * 8; at < p.width; at += kPerLayerColumns) {
    float gate[8], inputs[8];
    load_bf16(gate, p.gate + token * p.width + at);
    load_bf16(inputs, p.inputs + token * p.inputs_stride + at);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      gate[j] = __fmul_rn(round_bf16(gelu_tanh(gate[j])), inputs[j]);
    }
    store_bf16(p.gate + token * p.width + at, gate);
  }
}

}  // namespace attune
