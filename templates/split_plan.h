// Which keys a block of query rows sees and how they are split over CTAs: one pure function of
// kv_len, evaluated by the split kernel, the combine and the tests alike. Compiled by the host
// compiler and by NVRTC.
#pragma once

#include "templates/int_types.h"

namespace attune {

// Splits start on multiples of this many keys after the first visible one, so that a short window
// divides evenly over the CTAs whatever BLOCK_N is.
constexpr int kSplitGrain = 16;

// Keys [begin, end) of a sequence, by position.
struct KeyRange {
  int begin;
  int end;
};

// Keys seen by at least one of the query tokens [first_token, last_token] of a sequence.
constexpr KeyRange visible_keys(int kv_len, int seqlen_q, int first_token, int last_token,
                                int window, int causal) {
  const int first_position = kv_len - seqlen_q + first_token;
  const int last_position = kv_len - seqlen_q + last_token;
  int begin = window > 0 ? first_position - window + 1 : 0;
  if (begin < 0) begin = 0;
  int end = causal ? last_position + 1 : kv_len;
  // A token before the start of the sequence has no position and sees nothing, causal or not.
  if (last_position < 0 || end < begin) end = begin;
  return {begin, end};
}

struct SplitPlan {
  KeyRange keys;
  int num_splits;      // 0 when no key is visible
  int keys_per_split;  // a multiple of kSplitGrain
};

// Every split gets at least about one tile of BLOCK_N keys, and there are at most split_cap of
// them.
constexpr SplitPlan plan_splits(KeyRange keys, int block_n, int split_cap) {
  const int length = keys.end - keys.begin;
  if (length <= 0) return {keys, 0, 0};
  const int tiles = (length - 1) / block_n + 1;
  const int wanted = tiles < split_cap ? tiles : split_cap;
  int per_split = (length - 1) / wanted + 1;
  per_split = (per_split + kSplitGrain - 1) / kSplitGrain * kSplitGrain;
  return {keys, (length - 1) / per_split + 1, per_split};
}

// Row of o_partial and lse_partial that holds packed row `row` of a row block's split:
// the layout [batch, num_kv_heads, num_row_blocks, split_cap, BLOCK_M].
constexpr int64 partial_row(int batch_idx, int num_kv_heads, int kv_head, int num_row_blocks,
                            int row_block, int split_cap, int split, int block_m, int row) {
  const int64 head = static_cast<int64>(batch_idx) * num_kv_heads + kv_head;
  return ((head * num_row_blocks + row_block) * split_cap + split) * block_m + row;
}

}  // namespace attune
