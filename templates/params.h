// Kernel arguments, passed by value. Compiled by the host compiler and by NVRTC.
#pragma once

#include "templates/int_types.h"

namespace attune {

// Arguments of the split-KV kernel and of its combine. Strides are in elements; head_dim is
// contiguous. Every pointer to bf16 data and every stride times 2 is a multiple of 16 bytes.
struct AttentionParams {
  const void* q;       // bf16 [batch, seqlen_q, num_q_heads, head_dim], strides below
  const void* k;       // bf16 [batch, capacity, num_kv_heads, head_dim], strides below
  const void* v;       // bf16, shaped as k
  void* out;           // bf16 [batch, seqlen_q, num_q_heads, head_dim], strides below
  float* lse;          // [batch, seqlen_q, num_q_heads] contiguous, natural log; may be null
  const int* kv_len;   // [batch], tokens in the cache including the query tokens
  float* o_partial;    // [batch, num_kv_heads, num_row_blocks, split_cap, BLOCK_M, head_dim]
  float* lse_partial;  // [batch, num_kv_heads, num_row_blocks, split_cap, BLOCK_M], log2

  int64 q_batch_stride, q_token_stride, q_head_stride;
  int64 k_batch_stride, k_token_stride, k_head_stride;
  int64 v_batch_stride, v_token_stride, v_head_stride;
  int64 out_batch_stride, out_token_stride, out_head_stride;

  int batch;
  int seqlen_q;
  int num_kv_heads;
  int group_size;      // q heads per KV head
  int num_row_blocks;  // ceil(seqlen_q * group_size / BLOCK_M)
  int split_cap;       // most KV splits of a sequence; the device plans the real number from kv_len
  int window;          // keys a query sees, itself included; 0 is all
  int causal;          // 1: a query sees no key after itself
  int ring_capacity;   // rows of the ring; 0 for the contiguous layout
  float sm_scale;      // factor on q.k, > 0
  float softcap;       // cap on the scaled score, > 0 in kernels compiled with it
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
