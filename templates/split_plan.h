// Which keys a block of query rows sees and how they are split over CTAs: one pure function of
// kv_len, evaluated by the split kernel, the combine and the tests alike. Compiled by the host
// compiler and by NVRTC.
#pragma once

#include "templates/int_types.h"

namespace attune {

// Splits start on multiples of this many keys after the first visible one, so that a short window
// divides evenly over the CTAs whatever BLOCK_N is.
constexpr int kSplitGrain = 16;

// The query token of a packed row: packed / group_size, for rows below kMostTokenRows. `of_group` is 1 /
// group_size with an error of one unit in the last place at most: with that of the product the quotient
// is wrong by less than the half of 1 / group_size that is added, as long as packed < 2^23 / 3.
constexpr int kMostTokenRows = 1 << 21;
constexpr int token_of_row(int packed, float of_group) {
  return static_cast<int>((static_cast<float>(packed) + 0.5f) * of_group);
}

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

// Sequences of a batch share the slots of a row block, a CTA for each: their splits have one size, so
// that no CTA works longer than another however the lengths differ. The size is about the smallest
// with which they find room; every sequence takes a slot at least. It is the first of kSplitSizes
// that does, then the first of as many between it and the one in front.
constexpr int kSplitSizes = 32;

// Size number `idx` for `num_keys` visible keys of all sequences: from what would do if they were one
// sequence to what does in any case, each having a last split that is not full. There are more slots
// than sequences.
constexpr int shared_split_size(int64 num_keys, int num_slots, int batch, int block_n, int idx) {
  const int even =
      num_slots - static_cast<int>(static_cast<int64>(batch) * idx / (kSplitSizes - 1));
  const auto size = static_cast<int>((num_keys + even - 1) / even);
  return ((size > block_n ? size : block_n) + kSplitGrain - 1) / kSplitGrain * kSplitGrain;
}
// Number `idx` of the sizes from the first grain above `low` to `high`, both multiples of a grain.
constexpr int finer_split_size(int low, int high, int idx) {
  const int grains = (high - low) / kSplitGrain;
  const auto above = static_cast<int>(static_cast<int64>(grains) * (idx + 1) / kSplitSizes);
  return low + (above > 0 ? above : 1) * kSplitGrain;
}
// Slots that a sequence with so many visible keys takes.
constexpr int shared_splits(int num_keys, int size) {
  return num_keys > size ? (num_keys - 1) / size + 1 : 1;
}

// Chunks of keys at fixed positions, for results that do not depend on how a row was computed: the
// same keys are summed up together whatever kv_len, seqlen_q and the device are.
// Full attention: [0, 2 * per_level * grain) is cut into chunks of `grain` keys; from there on
// every doubling of the position into `per_level` chunks. Short contexts fill the device, and a
// long one has chunks of at most 1 / per_level of it, which CTAs share out evenly.
// A window: chunks of `grain` keys everywhere.
struct ChunkRule {
  int grain;      // keys; a multiple of BLOCK_N
  int per_level;  // 0: all chunks alike
};

// The BLOCK_N of invariant kernels: the largest that every architecture from sm_80 on has room for.
constexpr int invariant_block_n(int head_dim) { return head_dim >= 512 ? 32 : 64; }

constexpr ChunkRule chunk_rule(int head_dim, int num_kv_heads, int window) {
  // CTAs that all heads together should come to.
  constexpr int kTarget = 128;
  int per_head = kTarget;
  while (per_head > 8 && per_head * num_kv_heads > kTarget) per_head /= 2;
  if (window == 0) return {64, per_head};
  int grain = invariant_block_n(head_dim);
  while (2 * grain * per_head <= window) grain *= 2;
  return {grain, 0};
}

// First key of a chunk.
constexpr int chunk_begin(const ChunkRule& rule, int chunk) {
  if (rule.per_level == 0 || chunk < rule.per_level) return chunk * rule.grain;
  const int level = chunk / rule.per_level - 1;
  return (rule.per_level + chunk % rule.per_level) * (rule.grain << level);
}

// The chunk of a key.
constexpr int chunk_of(const ChunkRule& rule, int position) {
  const int unit = position / rule.grain;
  if (rule.per_level == 0 || unit < 2 * rule.per_level) return unit;
  int level = 1;
  while (unit >> (level + 1) >= rule.per_level) ++level;
  return level * rule.per_level + (unit >> level);
}

// The chunks that [keys.begin, keys.end) touches, at most split_cap of them (the last ones).
struct ChunkPlan {
  KeyRange keys;
  int first_chunk;
  int num_chunks;  // 0 when no key is visible
};
constexpr ChunkPlan plan_chunks(const ChunkRule& rule, KeyRange keys, int split_cap) {
  if (keys.end <= keys.begin) return {keys, 0, 0};
  const int last = chunk_of(rule, keys.end - 1);
  int first = chunk_of(rule, keys.begin);
  if (last - first >= split_cap) first = last - split_cap + 1;
  return {keys, first, last - first + 1};
}

// What the combine needs to know of the splits of sequences that share slots. The split kernels
// leave it in the workspace, behind lse_partial, [num_row_blocks, batch].
struct SharedPlan {
  int first_slot;
  int num_splits;
};

// Row of o_partial and lse_partial that holds packed row `row` of a row block's split, which has the
// slot `slot`: the layout [num_kv_heads, num_row_blocks, num_slots, BLOCK_M].
constexpr int64 partial_row(int kv_head, int num_row_blocks, int row_block, int num_slots, int slot,
                            int block_m, int row) {
  const int64 block = static_cast<int64>(kv_head) * num_row_blocks + row_block;
  return (block * num_slots + slot) * block_m + row;
}
constexpr int64 num_partial_rows(int num_kv_heads, int num_row_blocks, int num_slots, int block_m) {
  return partial_row(num_kv_heads, num_row_blocks, 0, num_slots, 0, block_m, 0);
}

}  // namespace attune
