// Computes  out = bf16(activation(gate) * up) of rows [gate | up], rounded as linear.cuh does (GateParams).
// Grid      (tokens, chunks of kGateColumns outputs). Threads: kGateThreads, each with 8 neighbours.
// Sync      griddepcontrol_wait: the rows are visible.
#pragma once

#include "templates/device/bf16.cuh"
#include "templates/device/gated.cuh"
#include "templates/device/ptx.cuh"
#include "templates/model_config.h"
#include "templates/model_params.h"

namespace attune {

template <LinearEpilogue kEpilogue>
__device__ __forceinline__ void gate(const GateParams& p) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int column = (blockIdx.y * kGateThreads + threadIdx.x) * 8;
  if (column >= p.width) return;
  const int64 token = blockIdx.x;
  const uint16* const row = p.gate_up + token * 2 * p.width + column;
  float gates[8], ups[8];
  load_bf16(gates, row);
  load_bf16(ups, row + p.width);
#pragma unroll
  for (int i = 0; i < 8; ++i) gates[i] = gated<kEpilogue>(gates[i], ups[i]);
  store_bf16(p.out + token * p.width + column, gates);
}

}  // namespace attune
