// Kernel arguments, passed by value. Compiled by the host compiler and by NVRTC.
#pragma once

#include "templates/int_types.h"

namespace attune {

// A tensor map of the bulk copy engine (TMA), as the driver encodes it: opaque.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// Arguments of the attention kernels and of the combine. Strides are in elements; head_dim is
// contiguous. Every pointer to bf16 data and every stride times 2 is a multiple of 16 bytes.
struct AttentionParams {
  // K/V rows as [sequences or pages, num_kv_heads, panels of 64 columns, rows, 64], for families
  // that copy boxes of them (Family::tensor_box). launch_attention fills them in.
  TensorMap k_map, v_map;

  const void* q;        // bf16 [batch, seqlen_q, num_q_heads, head_dim], strides below
  const void* k;        // bf16 [sequences, capacity, num_kv_heads, head_dim], strides below;
                        // paged: [pages, page_size, ...]; unified: rows of kUnifiedColumns
  const void* v;        // bf16, shaped as k; unused by unified layouts
  void* out;            // bf16 [batch, seqlen_q, num_q_heads, head_dim], strides below
  float* lse;           // [batch, seqlen_q, num_q_heads] contiguous, natural log; may be null
  const int* kv_len;    // [batch]; with kv_len_add the tokens in the cache, query tokens included
  const int* sequence;  // [batch], whose K/V and block table a batch entry reads; null: its own
  const int* block_table;  // [sequences, block_table_stride], page ids of the paged layouts
  void* o_partial;         // fp32 or packed [num_kv_heads, num_row_blocks, num_slots, BLOCK_M,
                           // head_dim]
  float* lse_partial;  // [num_kv_heads, num_row_blocks, num_slots, BLOCK_M], log2; of packed rows
                       // followed by the row's factor

  int64 q_batch_stride, q_token_stride, q_head_stride;
  int64 k_batch_stride, k_token_stride, k_head_stride;  // batch: of a sequence, or of a page
  int64 v_batch_stride, v_token_stride, v_head_stride;
  int64 out_batch_stride, out_token_stride, out_head_stride;
  int64 block_table_stride;

  int batch;
  int seqlen_q;
  int kv_len_add;
  int num_kv_heads;
  int group_size;      // q heads per KV head
  int num_row_blocks;  // ceil(seqlen_q * group_size / BLOCK_M)
  int num_slots;       // of a row block, for the KV splits of all sequences
  int split_cap;       // slots that are a sequence's own; 0: the sequences share them. The device
                       // plans the real number of splits from kv_len
  int merges_in_cluster;  // 1: the splits of a row block are a cluster, which merges them itself
  int window;             // keys a query sees, itself included; 0 is all
  int causal;             // 1: a query sees no key after itself
  int ring_capacity;      // rows of the ring; 0 for the other layouts
  int kv_capacity;  // rows of a sequence that may be read, whatever they hold; of paged layouts
                    // those that its block table names
  int overlap;      // 1: kv_len, sequence, block_table and the keys before position
                    // kv_len - seqlen_q may be read before griddepcontrol.wait
  int page_shift;   // log2 of the page size of the paged layouts
  float sm_scale;   // factor on q.k, > 0
  float softcap;    // cap on the scaled score, > 0 in kernels compiled with it
};

// Arguments of the prologue: from the raw projections of new tokens to the queries of an attention
// kernel and the rows of a KV cache. Strides are in elements, heads and head_dim are contiguous
// within a token. A layer that reads another layer's cache has num_kv_heads 0 and writes no rows.
struct PrologueParams {
  const void* q;          // bf16 [batch, seqlen_q, num_q_heads, head_dim], raw q_proj
  const void* k;          // bf16 [batch, seqlen_q, num_kv_heads, head_dim], raw k_proj
  const void* v;          // bf16, raw v_proj; where V is made of the K projection, the same as k
  const float* q_weight;  // [head_dim]; unified: times K's weight where the dimension is "id"
  const float* k_weight;  // [head_dim]
  const float* inv_freq;  // [num_pairs], of the pairs (i, i + head_dim / 2)
  void* q_out;            // bf16 [batch, seqlen_q, num_q_heads, head_dim]; unified: in the order of
                          // unified_query_dim
  void* k_cache;          // as AttentionParams::k
  void* v_cache;          // as AttentionParams::v
  const int* kv_len;      // [batch], tokens in the cache before these
  const int* sequence;    // as AttentionParams
  const int* block_table;  // as AttentionParams

  int64 q_batch_stride, q_token_stride;
  int64 k_batch_stride, k_token_stride;
  int64 v_batch_stride, v_token_stride;
  int64 q_out_batch_stride, q_out_token_stride;
  int64 k_cache_batch_stride, k_cache_token_stride, k_cache_head_stride;
  int64 v_cache_batch_stride, v_cache_token_stride, v_cache_head_stride;
  int64 block_table_stride;

  int batch;
  int seqlen_q;
  int num_q_heads;
  int num_kv_heads;
  int num_pairs;
  int ring_capacity;
  int page_shift;
  // 1: attention may begin before the kernel in front of the prologue has ended. That one writes neither
  // what attention reads early (kv_len, sequence, block_table, older keys) nor lets the prologue begin
  // before those that do have ended.
  int overlap;
  float eps;
};

// Writes single integers of the device's state (lengths, places in a batch, page ids): values
// travel in the parameters, so nothing has to be kept alive until the launch runs.
constexpr int kMaxStateWrites = 480;
struct StateParams {
  int* state;
  int count;
  struct Write {
    int at;
    int value;
  } writes[kMaxStateWrites];
};

// Arguments of the kernel that fills benchmark buffers with reproducible bf16 noise.
struct FillParams {
  void* out;         // 16-byte aligned
  uint64 num_bytes;  // a multiple of 16
  uint64 seed;
};

// Arguments of the kernels that measure what the device can do at most.
struct ProbeParams {
  const void* data;  // read by the bandwidth probe
  uint64 num_bytes;  // a multiple of 16
  int iterations;    // of the tensor probe
  float* sink;       // keeps the work alive; one float
};

}  // namespace attune
