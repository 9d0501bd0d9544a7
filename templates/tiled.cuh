// Computes  attention of a block of packed query rows of a prefill chunk (token-major, head-minor:
//           all q heads of the KV head share every K/V tile) over all keys that they see, and
//           writes out and lse.
// Grid      (num_row_blocks, num_kv_heads, batch); the rows that see the most keys start first.
// Threads   num_warps * 32.
// Tiles     Q [BLOCK_M, head_dim] resident; K and V [BLOCK_N, head_dim], num_stages slots each;
//           fp32 sums. Unified rows: one tile [BLOCK_N, kUnifiedColumns] a stage, K and V alike.
// Warps     a grid of row groups x column groups (tiled_warp_grid). A warp scores its rows against
//           its share of the tile's tokens and sums up its share of the output's columns. With one
//           column group P never leaves the registers; else the warps of a row group exchange the
//           row maxima and P, and nothing else: other row groups run ahead or behind.
// Smem      Q, at the end the output | K slots | V slots | P | row maxima (at the end sums) per
//           column group. The last two with several column groups only; P of unified rows lies in
//           the columns of its slot that the scores have used up, where it fits.
// Sync      per tile, by all warps:
//           A  K(tile) has arrived (several stages: V(tile) too), the slot of V(tile-1) is free
//           B  one stage: the slot of K(tile) is free
//           C  one stage: V(tile) has arrived
//           and by the warps of a row group, where there are several, in the place of B and C:
//           B  the row maxima are visible (P in the slot: all warps, K(tile) has been read)
//           C  P is visible
// Chunks    do not matter: tiles start at multiples of BLOCK_N, a tile changes no bit of a row that
//           sees none of its keys, and the order of a row's sums depends on BLOCK_N and the warp
//           grid alone. A sequence prefilled whole, in chunks or token by token by one config and
//           with one split of heads has the same bits.
// Limits    Family::static_limits. Keys that no row of the block sees are never read.
// Source    FlashAttention-2 (Dao, 2023); online softmax (Milakov and Gimelshein, 2018).
#pragma once

#include "templates/config.h"
#include "templates/device/kv_rows.cuh"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/softmax.cuh"
#include "templates/device/tile_copy.cuh"
#include "templates/params.h"
#include "templates/row_work.cuh"

namespace attune {

// Compile-time shape of the kernel and the byte offsets of its shared memory.
template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout>
struct TiledTraits {
  static constexpr int BLOCK_M = kConfig.block_m;
  static constexpr int BLOCK_N = kConfig.block_n;
  static constexpr int kStages = kConfig.num_stages;
  static constexpr int kWarps = kConfig.num_warps;
  static constexpr int kThreads = kWarps * kWarpSize;

  static constexpr WarpGrid kGrid = tiled_warp_grid(kConfig);
  static constexpr int kColumnGroups = kGrid.tokens;
  static constexpr int kGroupThreads = kColumnGroups * kWarpSize;
  static constexpr int kWarpRows = BLOCK_M / kGrid.rows;
  static constexpr int kRowTiles = kWarpRows / kMmaRows;
  static constexpr int kWarpTokens = BLOCK_N / kColumnGroups;  // scored by a warp
  static constexpr int kTokenTiles = kWarpTokens / kMmaTokens;
  static constexpr int kWarpColumns = kHeadDim / kColumnGroups;  // of the output
  static constexpr int kColumnTiles = kWarpColumns / kMmaTokens;
  static constexpr int kColumnSteps =
      kWarpColumns < kPanelColumns ? kWarpColumns / kMmaDepth : kPanelSteps;

  static constexpr bool kUnified = is_unified(kLayout);
  static constexpr bool kSharesP = kColumnGroups > 1;
  static constexpr bool kPInSlot = tiled_p_in_slot(kConfig, kLayout);
  // Unified rows in one slot are fetched when their slot is free, and nothing runs meanwhile.
  static constexpr bool kLoadsInPlace = kUnified && kStages == 1;

  static constexpr int kTileColumns = kv_row_columns(kLayout, kHeadDim);
  static constexpr int kTileBytes = BLOCK_N * kTileColumns * kBytesPerElement;
  static constexpr int kPitch = probability_pitch(kConfig) * kBytesPerElement;
  static constexpr int kSmemK = BLOCK_M * kHeadDim * kBytesPerElement;
  // A unified row's V part starts inside of its K tile.
  static constexpr int kSmemV =
      kSmemK + (kUnified ? kUnifiedRotated * kBytesPerElement : kStages * kTileBytes);
  static constexpr int kSmemP = kSmemK + (kUnified ? 1 : 2) * kStages * kTileBytes;
  static constexpr int kSmemRowMax = kSmemP + (kSharesP && !kPInSlot ? BLOCK_M * kPitch : 0);
  static constexpr int kSmemBytes = kSmemRowMax + (kSharesP ? kColumnGroups * BLOCK_M * 4 : 0);

  static_assert(kSmemBytes == tiled_smem_bytes(kConfig, kHeadDim, kLayout),
                "one formula for the size");
  static_assert(kGrid.rows > 0, "the warps divide the tiles");
  static_assert(kWarpColumns % kOutputColumnsPerWarp == 0, "a warp owns whole V fragments");
  static_assert(kTokenTiles % 2 == 0, "K fragments are 16 tokens");
  static_assert(kThreads % (kHeadDim / kChunkElements) == 0, "a pass copies whole rows");
  static_assert((BLOCK_N & (BLOCK_N - 1)) == 0 && (kWarps & (kWarps - 1)) == 0,
                "passes of a copy, tiles and pages divide each other");
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap>
struct Tiled {
  using T = TiledTraits<kConfig, kHeadDim, kLayout>;
  static constexpr int BLOCK_M = T::BLOCK_M;
  static constexpr int BLOCK_N = T::BLOCK_N;

  const AttentionParams& p;
  const RowWork& work;
  unsigned char* smem;
  ScoreScale<kSoftcap> scale;
  int thread = threadIdx.x;
  int lane = threadIdx.x % kWarpSize;
  int row_group = static_cast<int>(threadIdx.x) / kWarpSize / T::kColumnGroups;
  int column_group = static_cast<int>(threadIdx.x) / kWarpSize % T::kColumnGroups;
  KvRows<kLayout> key;
  KvRows<kLayout> value;
  int begin;  // of the first tile
  int num_tiles;

  // Rows of this thread, two per row tile.
  float row_max[T::kRowTiles][2];  // of kept scores
  float row_sum[T::kRowTiles][2];  // of this thread's tokens only
  KeyRange unmasked;               // keys that every row of the block sees

  float scores[T::kRowTiles][T::kTokenTiles][4];
  uint32 probabilities[T::kRowTiles][T::kTokenTiles][2];  // [1]: 8 rows below
  float output[T::kRowTiles][T::kColumnTiles][4];

  __device__ __forceinline__ uint32 tile_address(int offset) const {
    return smem_address(smem) + offset;
  }
  // The slot of a tile's K; slots of V are as far apart.
  __device__ __forceinline__ int slot(int tile) const {
    return T::kStages == 1 ? 0 : tile % T::kStages * T::kTileBytes;
  }
  // [column groups][BLOCK_M]
  __device__ __forceinline__ float* row_max_of_group() const {
    return reinterpret_cast<float*>(smem + T::kSmemRowMax);
  }
  // A row of this thread, inside the block.
  __device__ __forceinline__ int block_row(int m, int half) const {
    return row_group * T::kWarpRows + m * kMmaRows + half * 8 + lane / 4;
  }
  // Waits for the warps of the row group; what they wrote to shared memory is visible then.
  __device__ __forceinline__ void sync_row_group() const {
    if constexpr (T::kSharesP) {
      bar_sync(1 + row_group, T::kGroupThreads);
    } else {
      __syncwarp();
    }
  }
  // The query token of a row of this thread, -1 for padding. A division, but few tiles need it, and
  // registers are scarce in all.
  __device__ __forceinline__ int token_of(int m, int half) const {
    const int packed = work.first_row + block_row(m, half);
    return packed < work.num_rows ? packed / p.group_size : -1;
  }
  __device__ __forceinline__ KeyRange keys_of(int query) const {
    return query < 0 ? KeyRange{0, 0} : work.keys_of(p, query);
  }

  __device__ __forceinline__ void start() {
    key = kv_rows<kLayout>(p, work.sequence, work.kv_head, p.k_batch_stride, p.k_token_stride,
                           p.k_head_stride);
    value = kv_rows<kLayout>(p, work.sequence, work.kv_head, p.v_batch_stride, p.v_token_stride,
                             p.v_head_stride);
    begin = work.keys.begin / BLOCK_N * BLOCK_N;
    num_tiles =
        work.keys.end > work.keys.begin ? (work.keys.end - begin + BLOCK_N - 1) / BLOCK_N : 0;
    if (num_tiles > 0) copy_queries();
    if constexpr (T::kStages > 1) {
#pragma unroll
      for (int stage = 0; stage < T::kStages - 1; ++stage) {
        copy_keys(stage);
        copy_values(stage);
        cp_async_commit_group();
      }
    } else {
      if constexpr (!T::kLoadsInPlace) copy_keys(0);
      cp_async_commit_group();
    }
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_max[m][half] = negative_infinity();
        row_sum[m][half] = 0.0f;
      }
#pragma unroll
      for (int n = 0; n < T::kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] = 0.0f;
      }
    }
    unmasked = work.unmasked<BLOCK_M>(p);
  }

  __device__ __forceinline__ void copy_queries() {
    constexpr int kChunks = kHeadDim / kChunkElements;
    const uint16* const queries = static_cast<const uint16*>(p.q) +
                                  work.batch_idx * p.q_batch_stride +
                                  static_cast<int64>(work.kv_head) * p.group_size * p.q_head_stride;
    const int chunk = thread % kChunks;
#pragma unroll 4
    for (int row = thread / kChunks; row < BLOCK_M; row += T::kThreads / kChunks) {
      const int packed = work.first_row + row;
      const bool valid = packed < work.num_rows;
      const int64 offset = valid ? row_offset(p, packed, p.q_token_stride, p.q_head_stride) : 0;
      cp_async_16(tile_address(swizzled_offset<kHeadDim>(row, chunk)),
                  queries + offset + chunk * kChunkElements, valid ? 16 : 0);
    }
  }

  template <int kColumn, int kColumns>
  __device__ __forceinline__ void copy_tile(int slots, const void* buffer,
                                            const KvRows<kLayout>& rows, int tile) {
    if (tile >= num_tiles) return;
    copy_kv_tile<BLOCK_N, T::kTileColumns, kColumn, kColumns, T::kThreads, kLayout>(
        tile_address(slots) + slot(tile), static_cast<const uint16*>(buffer), rows,
        begin + tile * BLOCK_N, work.keys.begin, work.keys.end, thread);
  }
  __device__ __forceinline__ void copy_keys(int tile) {
    copy_tile<0, kHeadDim>(T::kSmemK, p.k, key, tile);
  }
  // Of a unified row the columns that the scores have no use for.
  __device__ __forceinline__ void copy_values(int tile) {
    if constexpr (T::kUnified) {
      copy_tile<kHeadDim, T::kTileColumns - kHeadDim>(T::kSmemK, p.k, key, tile);
    } else {
      copy_tile<0, kHeadDim>(T::kSmemV, p.v, value, tile);
    }
  }

  // scores = Q K^T. The fragments of a step are loaded one step ahead: a warp alone on its
  // sub-core would wait for each otherwise.
  __device__ __forceinline__ void make_scores(int tile) {
    constexpr int kSteps = kHeadDim / kMmaDepth;
    FragmentRow<kHeadDim> q_row;
    q_row.template locate<2>(tile_address(0), row_group * T::kWarpRows + a_fragment_row(lane),
                             a_fragment_chunk(lane));
    FragmentRow<T::kTileColumns> k_row;
    k_row.template locate<2>(tile_address(T::kSmemK) + slot(tile),
                             column_group * T::kWarpTokens + b_fragment_row(lane),
                             b_fragment_chunk(lane));
    uint32 a[2][T::kRowTiles][4];
    uint32 b[2][T::kTokenTiles / 2][4];
    const auto load = [&](int step) {
      const uint32 panel = step / kPanelSteps * kPanelBytes;
#pragma unroll
      for (int m = 0; m < T::kRowTiles; ++m) {
        ldmatrix_x4(a[step % 2][m], q_row.step[step % kPanelSteps] + panel +
                                        m * kMmaRows * kHeadDim * kBytesPerElement);
      }
#pragma unroll
      for (int n = 0; n < T::kTokenTiles / 2; ++n) {
        ldmatrix_x4(b[step % 2][n], k_row.step[step % kPanelSteps] + panel +
                                        n * 2 * kMmaTokens * T::kTileColumns * kBytesPerElement);
      }
    };
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < T::kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][n][i] = 0.0f;
      }
    }
    load(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) load(step + 1);
#pragma unroll
      for (int n = 0; n < T::kTokenTiles; ++n) {
#pragma unroll
        for (int m = 0; m < T::kRowTiles; ++m) {
          const uint32(&fragment)[4] = b[step % 2][n / 2];
          mma_m16n8k16(scores[m][n], a[step % 2][m], fragment[n % 2 * 2], fragment[n % 2 * 2 + 1]);
        }
      }
    }
  }

  // Caps the scores, hides what a row does not see.
  template <bool kMasked>
  __device__ __forceinline__ void keep_scores(int tile_begin) {
    const int first = tile_begin + column_group * T::kWarpTokens + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const KeyRange keys = kMasked ? keys_of(token_of(m, half)) : KeyRange{};
#pragma unroll
        for (int n = 0; n < T::kTokenTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = scores[m][n][2 * half + i];
            score = scale.keep(score);
            const int position = first + n * kMmaTokens + i;
            if (kMasked && (position < keys.begin || position >= keys.end)) {
              score = negative_infinity();
            }
          }
        }
      }
    }
  }

  // The maxima of the warp's tokens, shown to the row group.
  __device__ __forceinline__ void find_maxima(float (&tile_max)[T::kRowTiles][2]) const {
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = negative_infinity();
#pragma unroll
        for (int n = 0; n < T::kTokenTiles; ++n) {
          most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        tile_max[m][half] = quad_max(most);
        if (T::kSharesP && lane % 4 == 0) {
          row_max_of_group()[column_group * BLOCK_M + block_row(m, half)] = tile_max[m][half];
        }
      }
    }
  }

  // P, the new maxima and row sums; scales the output to them.
  __device__ __forceinline__ void make_probabilities(const float (&tile_max)[T::kRowTiles][2]) {
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
      float rescale[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = tile_max[m][half];
        if constexpr (T::kSharesP) {
#pragma unroll
          for (int group = 0; group < T::kColumnGroups; ++group) {
            most = fmaxf(most, row_max_of_group()[group * BLOCK_M + block_row(m, half)]);
          }
        }
        const float new_max = fmaxf(row_max[m][half], most);
        const float subtract = scale.subtrahend(new_max);
        rescale[half] = scale.rescale(row_max[m][half], subtract);
        row_max[m][half] = new_max;
        float sum = __fmul_rn(row_sum[m][half], rescale[half]);
#pragma unroll
        for (int n = 0; n < T::kTokenTiles; ++n) {
          const float p0 = scale.probability(scores[m][n][2 * half], subtract);
          const float p1 = scale.probability(scores[m][n][2 * half + 1], subtract);
          sum = __fadd_rn(sum, __fadd_rn(p0, p1));
          probabilities[m][n][half] = cvt_bf16x2(p0, p1);
        }
        row_sum[m][half] = sum;
      }
      // Once the maxima have settled nothing changes, and the multiplications would cost as much as
      // half of the tile's mma.
      if (__all_sync(0xffffffffu, rescale[0] == 1.0f && rescale[1] == 1.0f)) continue;
#pragma unroll
      for (int n = 0; n < T::kColumnTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] = __fmul_rn(output[m][n][i], rescale[i / 2]);
      }
    }
  }

  // Where 8 probabilities of a row lie, in bytes from the start of shared memory. In a slot the
  // rows share the unused panels of the tile's rows.
  __device__ __forceinline__ int probability_offset(int tile, int row, int chunk) const {
    if constexpr (!T::kPInSlot) return T::kSmemP + row * T::kPitch + chunk * 16;
    const int panel = row / BLOCK_N + chunk * kChunkElements / kPanelColumns;
    return T::kSmemK + slot(tile) + row % BLOCK_N * (T::kTileColumns * kBytesPerElement) +
           panel * kPanelBytes + (chunk % (kPanelColumns / kChunkElements) ^ (row & 7)) * 16;
  }
  __device__ __forceinline__ void show_probabilities(int tile) const {
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < T::kTokenTiles; ++n) {
          const int chunk = column_group * T::kTokenTiles + n;
          const int at = probability_offset(tile, block_row(m, half), chunk) + lane % 4 * 4;
          *reinterpret_cast<uint32*>(smem + at) = probabilities[m][n][half];
        }
      }
    }
  }

  // The A fragment of P for 16 rows and 16 tokens: an accumulator and an A fragment hold the same
  // elements in a thread, so with one column group it is there already.
  __device__ __forceinline__ void load_probabilities(uint32 (&a)[4], int tile, int m,
                                                     int step) const {
    if constexpr (T::kSharesP) {
      const int row = row_group * T::kWarpRows + m * kMmaRows + a_fragment_row(lane);
      ldmatrix_x4(a,
                  tile_address(probability_offset(tile, row, 2 * step + a_fragment_chunk(lane))));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = probabilities[m][2 * step + i / 2][i % 2];
    }
  }

  // output += P V, V fragments loaded one ahead.
  __device__ __forceinline__ void add_values(int tile) {
    constexpr int kPairs = T::kColumnTiles / 2;
    constexpr int kSteps = BLOCK_N / kMmaDepth;
    FragmentRow<T::kTileColumns, T::kColumnSteps> v_row;
    v_row.template locate<2>(
        tile_address(T::kSmemV) + slot(tile), v_fragment_row(lane),
        column_group * (T::kWarpColumns / kChunkElements) + v_fragment_chunk(lane));
    uint32 a[T::kRowTiles][4];
    uint32 b[2][4];
    const auto load = [&](int at) {
      const int step = at / kPairs;
      const int pair = at % kPairs;
      ldmatrix_x4_trans(b[at % 2], v_row.step[pair % T::kColumnSteps] +
                                       pair / T::kColumnSteps * kPanelBytes +
                                       step * kMmaDepth * T::kTileColumns * kBytesPerElement);
    };
    load(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int m = 0; m < T::kRowTiles; ++m) load_probabilities(a[m], tile, m, step);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const int at = step * kPairs + pair;
        const uint32(&fragment)[4] = b[at % 2];
        if (at + 1 < kSteps * kPairs) load(at + 1);
#pragma unroll
        for (int m = 0; m < T::kRowTiles; ++m) {
          mma_m16n8k16(output[m][2 * pair], a[m], fragment[0], fragment[1]);
          mma_m16n8k16(output[m][2 * pair + 1], a[m], fragment[2], fragment[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void run_tile(int tile) {
    const int tile_begin = begin + tile * BLOCK_N;
    // A
    if constexpr (T::kStages > 1) {
      cp_async_wait_group<T::kStages - 2>();
      __syncthreads();
      copy_keys(tile + T::kStages - 1);
      copy_values(tile + T::kStages - 1);
      cp_async_commit_group();
    } else if constexpr (T::kLoadsInPlace) {
      __syncthreads();
      copy_keys(tile);
      copy_values(tile);
      cp_async_commit_group();
      cp_async_wait_group<0>();
      __syncthreads();
    } else {
      cp_async_wait_group<0>();
      __syncthreads();
      copy_values(tile);
      cp_async_commit_group();
    }
    make_scores(tile);
    if (tile_begin < unmasked.begin || tile_begin + BLOCK_N > unmasked.end) {
      keep_scores<true>(tile_begin);
    } else {
      keep_scores<false>(tile_begin);
    }
    float tile_max[T::kRowTiles][2];
    find_maxima(tile_max);
    // B
    if constexpr (T::kStages == 1 && !T::kLoadsInPlace) {
      __syncthreads();
      copy_keys(tile + 1);
      cp_async_commit_group();
    } else if constexpr (T::kPInSlot) {
      __syncthreads();
    } else if constexpr (T::kSharesP) {
      sync_row_group();
    }
    make_probabilities(tile_max);
    if constexpr (T::kSharesP) show_probabilities(tile);
    // C
    if constexpr (T::kStages == 1 && !T::kLoadsInPlace) {
      cp_async_wait_group<1>();
      __syncthreads();
    } else if constexpr (T::kSharesP) {
      sync_row_group();
    }
    add_values(tile);
  }

  // The sum of a row over all tokens, the column groups in order.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_sum[m][half] = quad_sum(row_sum[m][half]);
        if (T::kSharesP && lane % 4 == 0) {
          row_max_of_group()[column_group * BLOCK_M + block_row(m, half)] = row_sum[m][half];
        }
      }
    }
    // The sums are visible, and the row group has read its queries for the last time.
    sync_row_group();
    if constexpr (T::kSharesP) {
#pragma unroll
      for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float sum = 0.0f;
#pragma unroll
          for (int group = 0; group < T::kColumnGroups; ++group) {
            sum = __fadd_rn(sum, row_max_of_group()[group * BLOCK_M + block_row(m, half)]);
          }
          row_sum[m][half] = sum;
        }
      }
    }
  }

  // Writes the normalized output over the queries of the row group, and lse to memory.
  __device__ __forceinline__ void finish_rows() {
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = block_row(m, half);
        const bool seen = row_sum[m][half] > 0.0f;
        const float inverse = seen ? rcp(row_sum[m][half]) : 0.0f;
#pragma unroll
        for (int n = 0; n < T::kColumnTiles; ++n) {
          const int summed = column_group * T::kWarpColumns + n * kMmaTokens;
          const int column = T::kUnified ? unified_value_dim(summed) : summed;
          const uint32 at = swizzled_offset<kHeadDim>(row, column / kChunkElements) + lane % 4 * 4;
          *reinterpret_cast<uint32*>(smem + at) =
              cvt_bf16x2(__fmul_rn(output[m][n][2 * half], inverse),
                         __fmul_rn(output[m][n][2 * half + 1], inverse));
        }
        const int query = token_of(m, half);
        if (p.lse == nullptr || column_group != 0 || lane % 4 != 0 || query < 0) continue;
        const int head = work.first_row + row - query * p.group_size;
        const float lse = scale.subtrahend(row_max[m][half]) + lg2(row_sum[m][half]);
        const int64 at = (static_cast<int64>(work.batch_idx) * p.seqlen_q + query) * p.num_kv_heads;
        p.lse[(at + work.kv_head) * p.group_size + head] = seen ? lse * kLn2 : negative_infinity();
      }
    }
  }

  // Whole rows to memory, 16 bytes a lane.
  __device__ __forceinline__ void write_rows() const {
    constexpr int kChunks = kHeadDim / kChunkElements;
    uint16* const out = static_cast<uint16*>(p.out) + work.batch_idx * p.out_batch_stride +
                        static_cast<int64>(work.kv_head) * p.group_size * p.out_head_stride;
#pragma unroll 4
    for (int i = column_group * kWarpSize + lane; i < T::kWarpRows * kChunks;
         i += T::kGroupThreads) {
      const int row = row_group * T::kWarpRows + i / kChunks;
      const int chunk = i % kChunks;
      const int packed = work.first_row + row;
      if (packed >= work.num_rows) break;
      *reinterpret_cast<uint4*>(out + row_offset(p, packed, p.out_token_stride, p.out_head_stride) +
                                chunk * kChunkElements) =
          *reinterpret_cast<const uint4*>(smem + swizzled_offset<kHeadDim>(row, chunk));
    }
  }
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
__device__ __forceinline__ void tiled(const AttentionParams& p) {
  static_assert(!kInvariant, "keys are summed up in one go, not in chunks");
  extern __shared__ __align__(128) unsigned char smem[];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const RowWork work = row_work<kConfig.block_m>(p, blockIdx.x, blockIdx.y, blockIdx.z);
  Tiled<kConfig, kHeadDim, kLayout, kSoftcap> cta{p, work, smem,
                                                  ScoreScale<kSoftcap>(p.sm_scale, p.softcap)};
  cta.start();
  for (int tile = 0; tile < cta.num_tiles; ++tile) cta.run_tile(tile);
  cp_async_wait_group<0>();
  cta.finish_sums();
  cta.finish_rows();
  cta.sync_row_group();
  cta.write_rows();
}

}  // namespace attune
