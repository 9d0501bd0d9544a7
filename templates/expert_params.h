// Arguments of route.cuh, experts.cuh and expert_steps.cuh, passed by value, and what their launches
// share. Compiled by the host compiler and by NVRTC. Rows are contiguous.
//
// Tokens are routed in groups of kMaxLinearTokens. The experts that a group chose are its entries, in
// ascending order, each once.
#pragma once

#include "templates/linear_config.h"
#include "templates/model_params.h"

namespace attune {

constexpr int kRouteThreads = kMaxLinearTokens * kWarpSize;
constexpr int kMaxRouteChunks = 8;  // experts of a lane
constexpr int kMaxExperts = kMaxRouteChunks * kWarpSize;
constexpr int kMaxTopK = kWarpSize;

// Of a CTA of experts.cuh: that of linear.cuh | the list of experts.
constexpr int kExpertListBytes = 4 * (1 + kMaxExperts);
constexpr int experts_smem_bytes(const KernelConfig& config, LinearWeights weights) {
  return linear_smem_bytes(config, weights) + kExpertListBytes;
}

// The top_k largest scores of each token, the first of equal ones; weights are the softmax of those,
// times the expert's own scale.
struct RouteParams {
  const float* scores;         // [num_tokens, num_experts]
  const uint16* expert_scale;  // bf16 [num_experts]
  float score_scale;           // scores are multiplied with it first
  int num_tokens;
  int num_experts;
  int top_k;
  int* chosen;     // [groups, 1 + num_experts]: the number of entries, then their experts
  int* entries;    // [num_tokens, top_k]: entry of the token's group, the largest score's first
  float* weights;  // [num_tokens, top_k]
};

// out[entry, token] = epilogue(W[expert of the entry] x[token]) for every token of a group, whichever
// chose the expert.
struct ExpertParams {
  LinearParams linear;  // W has the rows of all experts; out_features and num_passes are of one
  const int* chosen;    // of the group: written two launches ahead, or earlier
  int input_rows;       // from an entry's x to the next one's; 0: all have the same
};

// A step of the residual stream that ends with what experts need: the norms of h for their router and
// for themselves, beside ResidualParams::out.
struct EnterExpertsParams {
  ResidualParams residual;
  const uint16* router_weight;  // bf16 [hidden]
  const uint16* expert_weight;  // bf16 [hidden]
  uint16* router_out;           // bf16 [num_tokens, hidden]
  uint16* expert_out;           // bf16 [num_tokens, hidden]
};

// A step whose branch is bf16(bf16(norm(residual.branch) * dense_weight) + bf16(norm(e) * expert_weight)),
// with e = bf16(the sum of weights * rows of a token's entries, in their order).
struct MixExpertsParams {
  ResidualParams residual;
  const uint16* dense_weight;   // bf16 [hidden]
  const uint16* expert_weight;  // bf16 [hidden]
  const uint16* rows;           // bf16 [entries, num_tokens, hidden]
  const int* entries;           // [num_tokens, top_k]
  const float* weights;         // [num_tokens, top_k]
  int num_tokens;               // of the group
  int top_k;
};

}  // namespace attune
