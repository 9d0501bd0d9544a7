// Computes  attention of one KV split of one sequence and KV head for a block of packed query rows
//           (token-major, head-minor: all q heads of the KV head share every K/V tile). The only
//           split of a row block writes out and lse; one of several writes o_partial (normalized)
//           and lse_partial, merged by combine.cuh.
// Grid      (num_row_blocks * split_cap, num_kv_heads, batch), row blocks fastest.
// Threads   num_warps * 32.
// Tiles     Q [BLOCK_M, head_dim] resident; K and V [BLOCK_N, head_dim], num_stages slots each;
//           fp32 sums. Unified rows: one tile [BLOCK_N, kUnifiedColumns] a stage, K and V alike.
// Warps     scores: a grid of row groups x token groups (score_warp_grid); output: every warp owns
//           head_dim / num_warps columns of all BLOCK_M rows.
// Smem      Q | K slots | V slots | P | row offsets | row limits | row maxima (later sums) per
//           token group | row scales.
// Sync      per tile, each one cp_async_wait_group and/or one __syncthreads:
//           A  K(tile) has arrived (one stage: its first half; A' its second, the first is free)
//           B  the row maxima are visible, the slot of K(tile) is free (unified: not yet)
//           C  P and the row scales are visible, V(tile) has arrived
//           D  P, the scales and the slot of V(tile) are free
// Splits    planned from kv_len on the device (split_plan.h); CTAs past the plan leave at once.
// Invariant kernels take chunks and tiles at fixed positions, add the terms of a sum in an order
//           that depends on head_dim alone, and round every product by name: keys that a row does
//           not see, and other rows, change no bit of it. So BLOCK_M, warps and stages are free.
// Limits    Family::static_limits. Keys at or beyond kv_len are never read.
// Source    Flash-Decoding (Dao et al., 2023); online softmax (Milakov and Gimelshein, 2018).
#pragma once

#include "templates/config.h"
#include "templates/device/kv_rows.cuh"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/softmax.cuh"
#include "templates/device/tile_copy.cuh"
#include "templates/params.h"
#include "templates/split_plan.h"
#include "templates/split_work.cuh"

namespace attune {

// Compile-time shape of the kernel and the byte offsets of its shared memory.
template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kInvariant>
struct SplitKvTraits {
  static constexpr int BLOCK_M = kConfig.block_m;
  static constexpr int BLOCK_N = kConfig.block_n;
  static constexpr int kStages = kConfig.num_stages;
  static constexpr int kWarps = kConfig.num_warps;
  static constexpr int kThreads = kWarps * kWarpSize;

  static constexpr WarpGrid kGrid = score_warp_grid(kConfig);
  static constexpr int kWarpRows = BLOCK_M / kGrid.rows;      // score rows of a warp
  static constexpr int kWarpTokens = BLOCK_N / kGrid.tokens;  // score tokens of a warp
  static constexpr int kRowTiles = kWarpRows / kMmaRows;
  static constexpr int kTokenTiles = kWarpTokens / kMmaTokens;

  static constexpr int kOutputRowTiles = BLOCK_M / kMmaRows;
  static constexpr int kWarpColumns = kHeadDim / kWarps;  // output columns of a warp
  static constexpr int kColumnTiles = kWarpColumns / kMmaTokens;
  static constexpr int kColumnSteps =
      kWarpColumns < kPanelColumns ? kWarpColumns / kMmaDepth : kPanelSteps;

  // With a single stage the next K tile can only be fetched into the slot that the scores still
  // read: freeing its columns in two halves starts the fetch earlier.
  static constexpr bool kUnified = is_unified(kLayout);
  static constexpr int kKeyParts =
      !kUnified && kStages == 1 && kHeadDim >= 2 * kPanelColumns ? 2 : 1;
  static constexpr int kPartColumns = kHeadDim / kKeyParts;
  static constexpr int kGroupsPerTile = kKeyParts + 1;  // of cp.async
  // Groups that may be pending when V(tile) has to be there. A unified row's next K is fetched no
  // sooner than its V part.
  static constexpr int kPendingAtValues = kGroupsPerTile * kStages - (kUnified ? 2 : 1);

  // Partial sums of a row: of a warp's tokens, or of every 8 tokens where the warps must not
  // matter.
  static constexpr int kSums = kInvariant ? kTokenTiles : 1;
  static constexpr int kRowSums = kInvariant ? BLOCK_N / kMmaTokens : kGrid.tokens;

  static constexpr int kTileColumns = kv_row_columns(kLayout, kHeadDim);
  static constexpr int kTileBytes = BLOCK_N * kTileColumns * kBytesPerElement;
  static constexpr int kPitch = probability_pitch(kConfig);
  static constexpr int kSmemK = BLOCK_M * kHeadDim * kBytesPerElement;
  // A unified row's V part starts inside of its K tile.
  static constexpr int kSmemV =
      kSmemK + (kUnified ? kUnifiedRotated * kBytesPerElement : kStages * kTileBytes);
  static constexpr int kSmemP = kSmemK + (kUnified ? 1 : 2) * kStages * kTileBytes;
  static constexpr int kSmemRowOffset = kSmemP + BLOCK_M * kPitch * kBytesPerElement;
  static constexpr int kSmemRowLimits = kSmemRowOffset + BLOCK_M * 8;
  static constexpr int kSmemRowMax = kSmemRowLimits + BLOCK_M * 8;
  static constexpr int kSmemScale = kSmemRowMax + kGrid.tokens * BLOCK_M * 4;
  static constexpr int kSmemBytes = kSmemScale + BLOCK_M * 4;

  static_assert(kSmemBytes == splitkv_smem_bytes(kConfig, kHeadDim, kLayout),
                "one formula for the size");
  static_assert(kRowSums * 4 <= kPitch * kBytesPerElement, "the sums find room in P");
  static_assert(!kUnified || kHeadDim == kUnifiedHeadDim, "unified rows have one head_dim");
  static_assert(!kInvariant || BLOCK_N == invariant_block_n(kHeadDim), "tiles at fixed positions");
  static_assert(kGrid.rows > 0, "the warps divide the score tile");
  static_assert(kWarpColumns % kOutputColumnsPerWarp == 0, "a warp owns whole V fragments");
  static_assert(kTokenTiles == 1 || kTokenTiles % 2 == 0, "K fragments are 8 or 16 tokens");
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
struct SplitKv {
  using T = SplitKvTraits<kConfig, kHeadDim, kLayout, kInvariant>;
  static constexpr int BLOCK_M = T::BLOCK_M;
  static constexpr int BLOCK_N = T::BLOCK_N;

  const AttentionParams& p;
  const SplitWork& work;
  unsigned char* smem;
  ScoreScale<kSoftcap> scale;
  int thread = threadIdx.x;
  int lane = threadIdx.x % kWarpSize;
  int warp = threadIdx.x / kWarpSize;
  KvRows<kLayout> key;
  KvRows<kLayout> value;
  int num_tiles;

  // Place of the warp in the score tile, first column in the output.
  int warp_row;
  int token_group;
  int warp_token;
  int warp_column;

  // Rows whose scores this thread holds: two per row tile.
  KeyRange limits[T::kRowTiles][2];
  float row_max[T::kRowTiles][2];            // of kept scores
  float row_sum[T::kRowTiles][2][T::kSums];  // of this thread's tokens only
  KeyRange unmasked;                         // keys that every row of the block sees

  float scores[T::kRowTiles][T::kTokenTiles][4];
  float output[T::kOutputRowTiles][T::kColumnTiles][4];

  __device__ __forceinline__ uint32 tile_address(int offset) const {
    return smem_address(smem) + offset;
  }
  // [token groups][BLOCK_M]
  __device__ __forceinline__ float* row_max_of_group() const {
    return reinterpret_cast<float*>(smem + T::kSmemRowMax);
  }
  // [kRowSums][BLOCK_M], where P was
  __device__ __forceinline__ float* row_sums() const {
    return reinterpret_cast<float*>(smem + T::kSmemP);
  }
  __device__ __forceinline__ float* row_scale() const {
    return reinterpret_cast<float*>(smem + T::kSmemScale);
  }
  // Of a block's rows in q, later in out, relative to the sequence and the first head of the group;
  // -1 is padding.
  __device__ __forceinline__ int64* row_offset() const {
    return reinterpret_cast<int64*>(smem + T::kSmemRowOffset);
  }
  __device__ __forceinline__ KeyRange* row_limits() const {
    return reinterpret_cast<KeyRange*>(smem + T::kSmemRowLimits);
  }
  // The score row of this thread, inside the block.
  __device__ __forceinline__ int score_row(int m, int half) const {
    return warp_row + m * kMmaRows + half * 8 + lane / 4;
  }

  // The thread that has a row's number looks up where it is and what it sees; everybody else reads
  // the result.
  __device__ __forceinline__ void describe_row() {
    const int packed = work.first_row + thread;
    const bool valid = packed < work.num_rows;
    const int token = packed / p.group_size;
    const int head = packed - token * p.group_size;
    row_offset()[thread] = valid ? token * p.q_token_stride + head * p.q_head_stride : -1;
    row_limits()[thread] =
        valid ? visible_keys(work.kv_len, p.seqlen_q, token, token, p.window, p.causal)
              : KeyRange{0, 0};
  }

  __device__ __forceinline__ void start() {
    key = kv_rows<kLayout>(p, work.sequence, work.kv_head, p.k_batch_stride, p.k_token_stride,
                           p.k_head_stride);
    value = kv_rows<kLayout>(p, work.sequence, work.kv_head, p.v_batch_stride, p.v_token_stride,
                             p.v_head_stride);
    num_tiles = (work.end - work.begin + BLOCK_N - 1) / BLOCK_N;
    token_group = warp % T::kGrid.tokens;
    warp_row = warp / T::kGrid.tokens * T::kWarpRows;
    warp_token = token_group * T::kWarpTokens;
    warp_column = warp * T::kWarpColumns;
    static_assert(T::kThreads >= BLOCK_M, "a thread describes at most one row");
    // K(0) is on its way while the rows are described; the queries travel in the group of its first
    // part.
    copy_key_part<0>(0);
    if (thread < BLOCK_M) describe_row();
    __syncthreads();
    if (num_tiles > 0) {
      const uint16* const queries =
          static_cast<const uint16*>(p.q) + work.batch_idx * p.q_batch_stride +
          static_cast<int64>(work.kv_head) * p.group_size * p.q_head_stride;
      copy_query_rows<BLOCK_M, kHeadDim, T::kThreads>(tile_address(0), queries, row_offset(),
                                                      thread);
    }
    cp_async_commit_group();
    if constexpr (T::kKeyParts == 2) start_key_copy<1>(0);
    start_value_copy(0);
#pragma unroll
    for (int stage = 1; stage < T::kStages; ++stage) {
      start_key_copy<0>(stage);
      start_value_copy(stage);
    }
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        limits[m][half] = row_limits()[score_row(m, half)];
        row_max[m][half] = negative_infinity();
#pragma unroll
        for (int i = 0; i < T::kSums; ++i) row_sum[m][half][i] = 0.0f;
      }
    }
    const int last_row = min(BLOCK_M, work.num_rows - work.first_row) - 1;
    unmasked = {row_limits()[last_row].begin, min(row_limits()[0].end, work.end)};
#pragma unroll
    for (int m = 0; m < T::kOutputRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < T::kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] = 0.0f;
      }
    }
  }

  template <int kColumn, int kColumns>
  __device__ __forceinline__ void copy_tile(int slots, const void* buffer,
                                            const KvRows<kLayout>& rows, int tile) {
    if (tile >= num_tiles) return;
    copy_kv_tile<BLOCK_N, T::kTileColumns, kColumn, kColumns, T::kThreads, kLayout>(
        tile_address(slots) + tile % T::kStages * T::kTileBytes, static_cast<const uint16*>(buffer),
        rows, work.begin + tile * BLOCK_N, work.visible_begin, work.end, thread);
  }
  template <int kPart>
  __device__ __forceinline__ void copy_key_part(int tile) {
    copy_tile<kPart * T::kPartColumns, T::kPartColumns>(T::kSmemK, p.k, key, tile);
  }
  // One cp.async group each, empty past the last tile, in the order K(0) V(0) K(1) V(1) ...
  template <int kPart>
  __device__ __forceinline__ void start_key_copy(int tile) {
    copy_key_part<kPart>(tile);
    cp_async_commit_group();
  }
  // Of a unified row the columns that the scores have no use for.
  __device__ __forceinline__ void start_value_copy(int tile) {
    if constexpr (T::kUnified) {
      copy_tile<kHeadDim, T::kTileColumns - kHeadDim>(T::kSmemK, p.k, key, tile);
    } else {
      copy_tile<0, kHeadDim>(T::kSmemV, p.v, value, tile);
    }
    cp_async_commit_group();
  }

  // scores += Q K^T over the columns of one part. A warp whose tokens are all past the end has
  // nothing to do.
  template <int kPart>
  __device__ __forceinline__ void add_scores(int tile, int num_keys) {
    if (warp_token >= num_keys) return;
    constexpr int kFirstPanel = kPart * T::kPartColumns / kPanelColumns;
    constexpr int kPanels = T::kPartColumns / kPanelColumns;
    constexpr int kQueryRowBytes = kHeadDim * kBytesPerElement;
    constexpr int kKeyRowBytes = T::kTileColumns * kBytesPerElement;
    const uint32 k_tile = tile_address(T::kSmemK) + tile % T::kStages * T::kTileBytes;
    FragmentRow<kHeadDim> q_row;
    q_row.template locate<2>(tile_address(0), warp_row + a_fragment_row(lane),
                             a_fragment_chunk(lane));
    if constexpr (T::kTokenTiles == 1) {
      FragmentRow<T::kTileColumns, 2> k_row;
      k_row.template locate<4>(k_tile, warp_token + b_wide_fragment_row(lane),
                               b_wide_fragment_chunk(lane));
      // One token tile leaves one accumulator per row tile, a chain of 24-cycle steps: two sets
      // halve it, and sum up in another order than wider tiles do.
      float odd[T::kRowTiles][4] = {};
#pragma unroll
      for (int step = 0; step < kPanels * kPanelSteps; step += 2) {
        const uint32 panel = (kFirstPanel + step / kPanelSteps) * kPanelBytes;
        uint32 b[4];
        ldmatrix_x4(b, k_row.step[step % kPanelSteps / 2] + panel);
#pragma unroll
        for (int m = 0; m < T::kRowTiles; ++m) {
          const uint32 row = m * kMmaRows * kQueryRowBytes + panel;
          uint32 a[4];
          ldmatrix_x4(a, q_row.step[step % kPanelSteps] + row);
          mma_m16n8k16(scores[m][0], a, b[0], b[1]);
          ldmatrix_x4(a, q_row.step[step % kPanelSteps + 1] + row);
          mma_m16n8k16(kInvariant ? scores[m][0] : odd[m], a, b[2], b[3]);
        }
      }
#pragma unroll
      for (int m = 0; m < T::kRowTiles && !kInvariant; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][0][i] += odd[m][i];
      }
    } else {
      FragmentRow<T::kTileColumns> k_row;
      k_row.template locate<2>(k_tile, warp_token + b_fragment_row(lane), b_fragment_chunk(lane));
#pragma unroll
      for (int step = 0; step < kPanels * kPanelSteps; ++step) {
        const uint32 panel = (kFirstPanel + step / kPanelSteps) * kPanelBytes;
        uint32 a[T::kRowTiles][4];
#pragma unroll
        for (int m = 0; m < T::kRowTiles; ++m) {
          ldmatrix_x4(a[m], q_row.step[step % kPanelSteps] + m * kMmaRows * kQueryRowBytes + panel);
        }
#pragma unroll
        for (int n = 0; n < T::kTokenTiles; n += 2) {
          uint32 b[4];
          ldmatrix_x4(b, k_row.step[step % kPanelSteps] + n * kMmaTokens * kKeyRowBytes + panel);
#pragma unroll
          for (int m = 0; m < T::kRowTiles; ++m) {
            mma_m16n8k16(scores[m][n], a[m], b[0], b[1]);
            mma_m16n8k16(scores[m][n + 1], a[m], b[2], b[3]);
          }
        }
      }
    }
  }

  // Caps and masks the scores; publishes the maxima of this warp's tokens.
  __device__ __forceinline__ void mask_scores(int tile_begin) {
    const bool masked = tile_begin < unmasked.begin || tile_begin + BLOCK_N > unmasked.end;
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
      float tile_max[2] = {negative_infinity(), negative_infinity()};
#pragma unroll
      for (int n = 0; n < T::kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float score = scale.keep(scores[m][n][i]);
          const int position = tile_begin + warp_token + n * kMmaTokens + lane % 4 * 2 + i % 2;
          const KeyRange& limit = limits[m][i / 2];
          if (masked && (position < limit.begin || position >= min(limit.end, work.end))) {
            score = negative_infinity();
          }
          scores[m][n][i] = score;
          tile_max[i / 2] = fmaxf(tile_max[i / 2], score);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float group_max = quad_max(tile_max[half]);
        if (lane % 4 == 0) {
          row_max_of_group()[token_group * BLOCK_M + score_row(m, half)] = group_max;
        }
      }
    }
  }

  // New maxima, P, row sums; publishes P and the scales of the output rows.
  __device__ __forceinline__ void make_probabilities() {
    uint32* const probabilities = reinterpret_cast<uint32*>(smem + T::kSmemP);
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = score_row(m, half);
        float new_max = row_max[m][half];
#pragma unroll
        for (int group = 0; group < T::kGrid.tokens; ++group) {
          new_max = fmaxf(new_max, row_max_of_group()[group * BLOCK_M + row]);
        }
        const float subtract = scale.subtrahend(new_max);
        const float rescale = scale.rescale(row_max[m][half], subtract);
        row_max[m][half] = new_max;
        if (token_group == 0 && lane % 4 == 0) row_scale()[row] = rescale;
#pragma unroll
        for (int n = 0; n < T::kTokenTiles; ++n) {
          const float p0 = scale.probability(scores[m][n][2 * half], subtract);
          const float p1 = scale.probability(scores[m][n][2 * half + 1], subtract);
          float& sum = row_sum[m][half][n % T::kSums];
          sum = __fmaf_rn(sum, n < T::kSums ? rescale : 1.0f, __fadd_rn(p0, p1));
          const int column = warp_token + n * kMmaTokens + lane % 4 * 2;
          probabilities[(row * T::kPitch + column) / 2] = cvt_bf16x2(p0, p1);
        }
      }
    }
  }

  // output = output * scale + P V. kTail skips the steps past `num_keys`, whose P is zero.
  template <bool kTail>
  __device__ __forceinline__ void add_values(int tile, int num_keys) {
    constexpr int kRowBytes = T::kTileColumns * kBytesPerElement;
    constexpr int kPitchBytes = T::kPitch * kBytesPerElement;
#pragma unroll
    for (int m = 0; m < T::kOutputRowTiles; ++m) {
      const float scale0 = row_scale()[m * kMmaRows + lane / 4];
      const float scale1 = row_scale()[m * kMmaRows + 8 + lane / 4];
      // Once the maxima have settled nothing changes, and the multiplications would cost half as
      // much as the mma.
      if (__all_sync(0xffffffffu, scale0 == 1.0f && scale1 == 1.0f)) continue;
#pragma unroll
      for (int n = 0; n < T::kColumnTiles; ++n) {
        output[m][n][0] *= scale0;
        output[m][n][1] *= scale0;
        output[m][n][2] *= scale1;
        output[m][n][3] *= scale1;
      }
    }
    const uint32 p_row = tile_address(T::kSmemP) + a_fragment_row(lane) * kPitchBytes +
                         a_fragment_chunk(lane) * kChunkElements * kBytesPerElement;
    FragmentRow<T::kTileColumns, T::kColumnSteps> v_row;
    v_row.template locate<2>(tile_address(T::kSmemV) + tile % T::kStages * T::kTileBytes,
                             v_fragment_row(lane),
                             warp_column / kChunkElements + v_fragment_chunk(lane));
#pragma unroll
    for (int token = 0; token < BLOCK_N; token += kMmaDepth) {
      if (kTail && token >= num_keys) break;
      uint32 a[T::kOutputRowTiles][4];
#pragma unroll
      for (int m = 0; m < T::kOutputRowTiles; ++m) {
        ldmatrix_x4(a[m], p_row + m * kMmaRows * kPitchBytes + token * kBytesPerElement);
      }
#pragma unroll
      for (int n = 0; n < T::kColumnTiles; n += 2) {
        uint32 b[4];
        ldmatrix_x4_trans(b, v_row.step[n / 2 % T::kColumnSteps] +
                                 n / 2 / T::kColumnSteps * kPanelBytes + token * kRowBytes);
#pragma unroll
        for (int m = 0; m < T::kOutputRowTiles; ++m) {
          mma_m16n8k16(output[m][n], a[m], b[0], b[1]);
          mma_m16n8k16(output[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void run_tile(int tile) {
    const int tile_begin = work.begin + tile * BLOCK_N;
    const int num_keys = min(BLOCK_N, work.end - tile_begin);
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < T::kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][n][i] = 0.0f;
      }
    }
    // A
    cp_async_wait_group<T::kGroupsPerTile * T::kStages - 1>();
    __syncthreads();
    add_scores<0>(tile, num_keys);
    if constexpr (T::kKeyParts == 2) {
      // A'
      cp_async_wait_group<T::kGroupsPerTile * T::kStages - 2>();
      __syncthreads();
      start_key_copy<0>(tile + T::kStages);
      add_scores<1>(tile, num_keys);
    }
    mask_scores(tile_begin);
    // B
    __syncthreads();
    if constexpr (!T::kUnified) start_key_copy<T::kKeyParts - 1>(tile + T::kStages);
    make_probabilities();
    // C
    cp_async_wait_group<T::kPendingAtValues>();
    __syncthreads();
    if (num_keys == BLOCK_N) {
      add_values<false>(tile, num_keys);
    } else {
      add_values<true>(tile, num_keys);
    }
    // D
    __syncthreads();
    if constexpr (T::kUnified) start_key_copy<0>(tile + T::kStages);
    start_value_copy(tile + T::kStages);
  }

  // Where the result of a packed row goes, and its lse: to the caller when this is the only split,
  // else to the workspace. `lse` is in log2 units.
  __device__ __forceinline__ void finish_row(int row, float lse) {
    const int packed = work.first_row + row;
    const int token = packed / p.group_size;
    const int head = packed - token * p.group_size;
    if (work.num_splits > 1) {
      const int64 at = partial_row(work.kv_head, p.num_row_blocks, work.row_block, p.num_slots,
                                   work.first_slot + work.split, BLOCK_M, row);
      row_offset()[row] = at * kHeadDim;
      p.lse_partial[at] = lse;
      return;
    }
    const int group_head = work.kv_head * p.group_size + head;
    row_offset()[row] = work.batch_idx * p.out_batch_stride + token * p.out_token_stride +
                        group_head * p.out_head_stride;
    if (p.lse != nullptr) {
      const int64 query = static_cast<int64>(work.batch_idx) * p.seqlen_q + token;
      p.lse[query * (p.num_kv_heads * p.group_size) + group_head] = lse * kLn2;
    }
  }

  // Adds the row sums up over the quad's lanes, then in the order of the tokens; afterwards
  // row_scale has 1 / sum.
  __device__ __forceinline__ void finish_rows() {
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = score_row(m, half);
#pragma unroll
        for (int i = 0; i < T::kSums; ++i) {
          const float sum = quad_sum(row_sum[m][half][i]);
          const int place = kInvariant ? warp_token / kMmaTokens + i : token_group;
          if (lane % 4 == 0) row_sums()[place * BLOCK_M + row] = sum;
        }
        if (token_group == 0 && lane % 4 == 0) row_scale()[row] = row_max[m][half];
      }
    }
    __syncthreads();
    if (thread < BLOCK_M && work.first_row + thread < work.num_rows) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < T::kRowSums; ++i) sum += row_sums()[i * BLOCK_M + thread];
      const bool seen = sum > 0.0f;
      finish_row(thread,
                 seen ? scale.subtrahend(row_scale()[thread]) + lg2(sum) : negative_infinity());
      row_scale()[thread] = seen ? rcp(sum) : 0.0f;
    }
    __syncthreads();
  }

  // Where a column of V goes in a row of the output, relative to the warp's first one.
  __device__ __forceinline__ int output_column(int n) const {
    const int column = warp_column + n * kMmaTokens;
    return T::kUnified ? unified_value_dim(column) : column;
  }

  // Writes half a row tile: bf16 to out, or fp32 to the workspace.
  __device__ __forceinline__ void write_row(int m, int half) {
    const int row = m * kMmaRows + half * 8 + lane / 4;
    if (work.first_row + row >= work.num_rows) return;
    const float inverse = row_scale()[row];
    const int64 at = row_offset()[row] + lane % 4 * 2;
    if (work.num_splits > 1) {
      float* const out = static_cast<float*>(p.o_partial) + at;
#pragma unroll
      for (int n = 0; n < T::kColumnTiles; ++n) {
        *reinterpret_cast<float2*>(out + output_column(n)) =
            make_float2(output[m][n][2 * half] * inverse, output[m][n][2 * half + 1] * inverse);
      }
    } else {
      uint16* const out = static_cast<uint16*>(p.out) + at;
#pragma unroll
      for (int n = 0; n < T::kColumnTiles; ++n) {
        *reinterpret_cast<uint32*>(out + output_column(n)) =
            cvt_bf16x2(output[m][n][2 * half] * inverse, output[m][n][2 * half + 1] * inverse);
      }
    }
  }
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
__device__ __forceinline__ void splitkv(const AttentionParams& p) {
  extern __shared__ __align__(128) unsigned char smem[];
  griddepcontrol_wait();
  // The combine may take its place on the SM now; it waits for the end of this grid.
  griddepcontrol_launch_dependents();
  SplitWork work;
  if (!find_work<kConfig, kHeadDim, kInvariant>(p, work)) return;
  if (threadIdx.x == 0) publish_plan<kConfig.block_m>(p, work);
  SplitKv<kConfig, kHeadDim, kLayout, kSoftcap, kInvariant> cta{
      p, work, smem, ScoreScale<kSoftcap>(p.sm_scale, p.softcap)};
  cta.start();
  for (int tile = 0; tile < cta.num_tiles; ++tile) cta.run_tile(tile);
  cp_async_wait_group<0>();
  cta.finish_rows();
#pragma unroll
  for (int m = 0; m < kConfig.block_m / kMmaRows; ++m) {
    cta.write_row(m, 0);
    cta.write_row(m, 1);
  }
}

}  // namespace attune
