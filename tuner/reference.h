// Attention on the CPU in double, straight from the formula: the judge of every kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "templates/problem.h"

namespace attune {

constexpr const char* kReferenceName = "cpu-double-1";

// Inputs of one launch as host values, whatever pages or unified rows a kernel finds them in. bf16
// is held as its 16 bits.
struct AttentionInputs {
  Problem problem;          // batch is kv_len.size()
  std::vector<int> kv_len;  // [batch]
  int capacity = 0;         // KV rows per sequence; of the ring for KvLayout::kRing
  float sm_scale = 1.0f;
  float softcap = 0.0f;          // used when problem.softcap
  std::vector<std::uint16_t> q;  // [batch, seqlen_q, num_q_heads, head_dim]
  std::vector<std::uint16_t>
      k;  // [batch, capacity, num_kv_heads, head_dim]; of unified rows, as q,
          // in the order of unified_query_dim
  std::vector<std::uint16_t> v;
};

struct AttentionOutputs {
  std::vector<double> out;  // [batch, seqlen_q, num_q_heads, head_dim]
  std::vector<double>
      lse;  // [batch, seqlen_q, num_q_heads], natural log, -inf where nothing is seen
};

// Rows that see nothing are 0 with lse -inf. Uses `num_threads` threads (0: all cores). Only
// positions that some query sees are read.
AttentionOutputs reference_attention(const AttentionInputs& inputs, int num_threads = 0);

float bf16_to_float(std::uint16_t bits);
std::uint16_t float_to_bf16(float value);  // round to nearest even

// ||a - b|| / ||b||; infinity when a value of `a` is not finite or b is 0 and a is not.
double relative_l2(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace attune
