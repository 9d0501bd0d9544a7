// The rows of a CTA of tiled.cuh and slices.cuh: their queries, the softmax of score tiles in the accumulators
// of mma.sync, their sums, and how they leave.
#pragma once

#include "templates/config.h"
#include "templates/device/kv_rows.cuh"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/softmax.cuh"
#include "templates/params.h"
#include "templates/row_work.cuh"

namespace attune {

// The rows of a CTA and what is done with tiles of their scores, wherever K and V lie: T says how the
// warps divide them and where P is.
template <typename T, int kHeadDim, KvLayout kLayout, bool kSoftcap>
struct TiledRows {
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

  __device__ __forceinline__ void start_rows() {
    key = kv_rows<kLayout>(p, work.sequence, work.kv_head, p.k_batch_stride, p.k_token_stride,
                           p.k_head_stride);
    value = kv_rows<kLayout>(p, work.sequence, work.kv_head, p.v_batch_stride, p.v_token_stride,
                             p.v_head_stride);
    begin = work.keys.begin / BLOCK_N * BLOCK_N;
    num_tiles =
        work.keys.end > work.keys.begin ? (work.keys.end - begin + BLOCK_N - 1) / BLOCK_N : 0;
    if (num_tiles > 0) copy_queries();
  }
  // While the first copies are under way.
  __device__ __forceinline__ void clear_rows() {
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

  __device__ __forceinline__ void clear_scores() {
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < T::kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][n][i] = 0.0f;
      }
    }
  }
  // scores += Q K^T of kColumns columns of Q from kFirstColumn on and as many of `keys` [BLOCK_N,
  // kTileColumns]. The fragments of a step are loaded one step ahead: a warp alone on its sub-core
  // would wait for each otherwise.
  template <int kTileColumns, int kFirstColumn, int kColumns>
  __device__ __forceinline__ void add_scores(uint32 keys) {
    constexpr int kSteps = kColumns / kMmaDepth;
    static_assert(kFirstColumn % kPanelColumns == 0, "whole panels");
    FragmentRow<kHeadDim> q_row;
    q_row.template locate<2>(tile_address(0), row_group * T::kWarpRows + a_fragment_row(lane),
                             a_fragment_chunk(lane));
    FragmentRow<kTileColumns> k_row;
    k_row.template locate<2>(keys, column_group * T::kWarpTokens + b_fragment_row(lane),
                             b_fragment_chunk(lane));
    uint32 a[2][T::kRowTiles][4];
    uint32 b[2][T::kTokenTiles / 2][4];
    const auto load = [&](int step) {
      const uint32 panel = step / kPanelSteps * kPanelBytes;
#pragma unroll
      for (int m = 0; m < T::kRowTiles; ++m) {
        ldmatrix_x4(a[step % 2][m], q_row.step[step % kPanelSteps] +
                                        kFirstColumn * kBytesPerElement + panel +
                                        m * kMmaRows * kHeadDim * kBytesPerElement);
      }
#pragma unroll
      for (int n = 0; n < T::kTokenTiles / 2; ++n) {
        ldmatrix_x4(b[step % 2][n], k_row.step[step % kPanelSteps] + panel +
                                        n * 2 * kMmaTokens * kTileColumns * kBytesPerElement);
      }
    };
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
  __device__ __forceinline__ void keep_scores(int tile_begin) {
    if (tile_begin < unmasked.begin || tile_begin + BLOCK_N > unmasked.end) {
      keep_scores<true>(tile_begin);
    } else {
      keep_scores<false>(tile_begin);
    }
  }
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
  __device__ __forceinline__ int probability_offset(int slot, int row, int chunk) const {
    if constexpr (!T::kPInSlot) {
      return T::kSmemP + row * T::kPitch + chunk * 16;
    } else {
      const int panel = row / BLOCK_N + chunk * kChunkElements / kPanelColumns;
      return T::kSmemK + slot + row % BLOCK_N * (T::kTileColumns * kBytesPerElement) +
             panel * kPanelBytes + (chunk % (kPanelColumns / kChunkElements) ^ (row & 7)) * 16;
    }
  }
  __device__ __forceinline__ void show_probabilities(int slot) const {
#pragma unroll
    for (int m = 0; m < T::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < T::kTokenTiles; ++n) {
          const int chunk = column_group * T::kTokenTiles + n;
          const int at = probability_offset(slot, block_row(m, half), chunk) + lane % 4 * 4;
          *reinterpret_cast<uint32*>(smem + at) = probabilities[m][n][half];
        }
      }
    }
  }

  // The A fragment of P for 16 rows and 16 tokens: an accumulator and an A fragment hold the same
  // elements in a thread, so with one column group it is there already.
  __device__ __forceinline__ void load_probabilities(uint32 (&a)[4], int slot, int m,
                                                     int step) const {
    if constexpr (T::kSharesP) {
      const int row = row_group * T::kWarpRows + m * kMmaRows + a_fragment_row(lane);
      ldmatrix_x4(a,
                  tile_address(probability_offset(slot, row, 2 * step + a_fragment_chunk(lane))));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = probabilities[m][2 * step + i / 2][i % 2];
    }
  }

  // output += P V of kColumns columns of the warp, which are its column tiles from kFirstTile on and
  // begin at chunk `chunk` of `values` [BLOCK_N, kTileColumns]; fragments loaded one ahead.
  // fragments_of(step) are those of P.
  template <int kTileColumns, int kFirstTile, int kColumns, typename Fragments>
  __device__ __forceinline__ void add_products(uint32 values, int chunk,
                                               const Fragments& fragments_of) {
    constexpr int kPairs = kColumns / kMmaDepth;
    constexpr int kColumnSteps = kPairs < kPanelSteps ? kPairs : kPanelSteps;
    constexpr int kSteps = BLOCK_N / kMmaDepth;
    FragmentRow<kTileColumns, kColumnSteps> v_row;
    v_row.template locate<2>(values, v_fragment_row(lane), chunk + v_fragment_chunk(lane));
    uint32 b[2][4];
    const auto load = [&](int at) {
      const int step = at / kPairs;
      const int pair = at % kPairs;
      ldmatrix_x4_trans(b[at % 2], v_row.step[pair % kColumnSteps] +
                                       pair / kColumnSteps * kPanelBytes +
                                       step * kMmaDepth * kTileColumns * kBytesPerElement);
    };
    load(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32(&a)[T::kRowTiles][4] = fragments_of(step);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const int at = step * kPairs + pair;
        const uint32(&fragment)[4] = b[at % 2];
        if (at + 1 < kSteps * kPairs) load(at + 1);
#pragma unroll
        for (int m = 0; m < T::kRowTiles; ++m) {
          mma_m16n8k16(output[m][kFirstTile + 2 * pair], a[m], fragment[0], fragment[1]);
          mma_m16n8k16(output[m][kFirstTile + 2 * pair + 1], a[m], fragment[2], fragment[3]);
        }
      }
    }
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
          const int summed = T::column_of(column_group, n);
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
  // When all tiles are done.
  __device__ __forceinline__ void finish() {
    cp_async_wait_group<0>();
    finish_sums();
    finish_rows();
    sync_row_group();
    write_rows();
  }
};

}  // namespace attune
