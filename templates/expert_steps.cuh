// Computes  the steps of the residual stream before and behind experts (EnterExpertsParams,
//           MixExpertsParams). Grid, threads, registers, rounding and bits are those of residual.cuh.
// Sync      griddepcontrol_wait: branch, stream and the experts' rows are visible.
#pragma once

#include "templates/expert_params.h"
#include "templates/residual.cuh"

namespace attune {

template <int kThreads>
__device__ __forceinline__ void enter_experts(const EnterExpertsParams& params) {
  using Row = ResidualRow<kThreads>;
  const ResidualParams& p = params.residual;
  __shared__ float sums[2][Row::kWarps];
  const int64 token = blockIdx.x;
  Row weight;
  weight.load(p.post_weight, p.hidden);
  const float scalar = scalar_of(p);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();

  Row h, branch;
  h.load(p.from + token * p.from_stride, p.hidden);
  branch.load(p.branch + token * p.hidden, p.hidden);
  add_branch(p, h, branch, weight, sums[0]);
  const float inverse = end_step(p, h, scalar, sums[1]);
  const auto store = [&](const uint16* of, uint16* out) {
    weight.load(of, p.hidden);
    store_normed(h, inverse, weight, out + token * p.hidden, p.hidden);
  };
  store(p.next_weight, p.out);
  store(params.router_weight, params.router_out);
  store(params.expert_weight, params.expert_out);
}

// The sum of a token's experts, by their weights.
template <int kThreads>
__device__ __forceinline__ ResidualRow<kThreads> sum_of_experts(const MixExpertsParams& p,
                                                                int hidden) {
  const int64 token = blockIdx.x;
  ResidualRow<kThreads> sum, row;
  sum.change([](float, int) { return 0.0f; });
  for (int k = 0; k < p.top_k; ++k) {
    const int64 entry = p.entries[token * p.top_k + k];
    const float weight = p.weights[token * p.top_k + k];
    row.load(p.rows + (entry * p.num_tokens + token) * hidden, hidden);
    sum.change([&](float x, int i) { return __fmaf_rn(weight, row.values[i], x); });
  }
  sum.change([](float x, int) { return round_bf16(x); });
  return sum;
}

template <int kThreads>
__device__ __forceinline__ void mix_experts(const MixExpertsParams& params) {
  using Row = ResidualRow<kThreads>;
  const ResidualParams& p = params.residual;
  __shared__ float sums[4][Row::kWarps];
  const int64 token = blockIdx.x;
  Row weight;
  weight.load(params.dense_weight, p.hidden);
  const float scalar = scalar_of(p);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();

  Row branch;
  branch.load(p.branch + token * p.hidden, p.hidden);
  branch.norm(weight, sums[0], p.hidden, p.eps);
  Row experts = sum_of_experts<kThreads>(params, p.hidden);
  weight.load(params.expert_weight, p.hidden);
  experts.norm(weight, sums[1], p.hidden, p.eps);
  branch.change([&](float x, int i) { return round_bf16(__fadd_rn(x, experts.values[i])); });

  Row h;
  h.load(p.from + token * p.from_stride, p.hidden);
  weight.load(p.post_weight, p.hidden);
  add_branch(p, h, branch, weight, sums[2]);
  const float inverse = end_step(p, h, scalar, sums[3]);
  if (p.out == nullptr) return;
  weight.load(p.next_weight, p.hidden);
  store_normed(h, inverse, weight, p.out + token * p.out_stride, p.hidden);
}

}  // namespace attune
