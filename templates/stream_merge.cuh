// Merges what the streams of a CTA have of its rows, and in a cluster what its CTAs have: the end of
// kernels with device/stream_tiles.cuh.
#pragma once

#include "templates/config.h"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/softmax.cuh"
#include "templates/params.h"
#include "templates/split_work.cuh"

namespace attune {

// Every thread of the CTA calls every function, with a CTA barrier between them.
template <typename T, int kHeadDim, typename Scale>
struct StreamMerge {
  static constexpr int BLOCK_M = T::BLOCK_M;
  static constexpr int kRowUnits = kHeadDim / 4;
  static constexpr int kThreads = T::kWarps * kWarpSize;

  const AttentionParams& p;
  const SplitWork& work;
  unsigned char* smem;
  Scale scale;
  int num_streams;  // that have anything
  int num_rows = min(BLOCK_M, work.num_rows - work.first_row);

  // [streams][BLOCK_M / 8][head_dim][8 rows]: the order in which a warp's stores of two rows meet
  // no bank twice.
  __device__ __forceinline__ float* output(int stream, int row, int column) const {
    return reinterpret_cast<float*>(smem) + stream * (BLOCK_M * kHeadDim) +
           (row / kMmaTokens * kHeadDim + column) * kMmaTokens + row % kMmaTokens;
  }
  // [streams][BLOCK_M], maximum and sum of a row
  __device__ __forceinline__ float2* stats() const {
    return reinterpret_cast<float2*>(smem + T::kSmemStats);
  }
  // [streams][BLOCK_M]
  __device__ __forceinline__ float* factors() const {
    return reinterpret_cast<float*>(smem + T::kSmemFactors);
  }
  // [BLOCK_M], of a row in what write() writes to
  __device__ __forceinline__ int64* row_offset() const {
    return reinterpret_cast<int64*>(smem + T::kSmemRowOffset);
  }
  // Where a column of V goes in a row of the output.
  static __device__ __forceinline__ int output_column(int column) {
    return T::kUnified ? unified_value_dim(column) : column;
  }

  // A thread per row: the factors of its streams, where it goes, and its lse.
  __device__ __forceinline__ void weigh() const {
    const int row = threadIdx.x;
    if (row >= num_rows) return;
    float new_max = negative_infinity();
    for (int i = 0; i < num_streams; ++i) new_max = fmaxf(new_max, stats()[i * BLOCK_M + row].x);
    const float subtract = scale.subtrahend(new_max);
    float factor[T::kStreams];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < T::kStreams; ++i) {
      const float2 part = stats()[i * BLOCK_M + row];
      factor[i] = i < num_streams ? scale.rescale(part.x, subtract) : 0.0f;
      if (i < num_streams) sum += part.y * factor[i];
    }
    const float inverse = sum > 0.0f ? rcp(sum) : 0.0f;
#pragma unroll
    for (int i = 0; i < T::kStreams; ++i) factors()[i * BLOCK_M + row] = factor[i] * inverse;
    const RowTarget to = row_target<BLOCK_M, kHeadDim>(p, work, row, work.num_splits <= 1);
    to.write_lse(sum > 0.0f ? subtract + lg2(sum) : negative_infinity());
    row_offset()[row] = to.offset;
  }

  // Writes the rows: fp32 to the workspace where there are other splits, else bf16 to the caller.
  // A thread takes four rows of a column at a time.
  __device__ __forceinline__ void write() const {
    constexpr int kQuads = BLOCK_M * kHeadDim / 4;
    constexpr int kBatch = kQuads % (4 * kThreads) == 0 ? 4 : 1;
    for (int first = threadIdx.x; first < kQuads; first += kBatch * kThreads) {
      // Stores would hold up the loads behind them.
      float4 sum[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) sum[i] = merged(first + i * kThreads);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) write_quad(first + i * kThreads, sum[i]);
    }
  }

  // Merges the splits of the rows, which the CTAs of the cluster have written: each some units of
  // all of them, four columns of a row. Through the workspace: distributed shared memory takes 2300 cycles for 16 KB of
  // every CTA to be sent, and as many with the barriers to be fetched [h200].
  __device__ __forceinline__ void merge_cluster() const {
    const int per_cta = num_rows * kRowUnits / p.split_cap;  // the largest cluster divides a row
    barrier_cluster_arrive();
    SplitUnit unit = split_unit(per_cta, threadIdx.x);  // while the others come
    barrier_cluster_wait();
    if (work.num_splits <= 1) return;
    for (int i = threadIdx.x; i < per_cta; i += kThreads) {
      if (i >= kThreads) unit = split_unit(per_cta, i);
      float lse[kMaxClusterSplits];
      uint32 value[kMaxClusterSplits][4];
#pragma unroll
      for (int part = 0; part < kMaxClusterSplits; ++part) {
        if (part >= work.num_splits) continue;
        ld_global_cg_v4(value[part], unit.o_partial + part * (BLOCK_M * kHeadDim));
        lse[part] = unit.lse_partial[part * BLOCK_M];
      }
      float new_max = negative_infinity();
#pragma unroll
      for (int part = 0; part < kMaxClusterSplits; ++part) {
        if (part < work.num_splits) new_max = fmaxf(new_max, lse[part]);
      }
      const float subtract = finite_or_zero(new_max);
      float weight = 0.0f;
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int part = 0; part < kMaxClusterSplits; ++part) {
        if (part >= work.num_splits) continue;
        const float of_part = ex2(lse[part] - subtract);
        weight += of_part;
        add(sum,
            make_float4(__int_as_float(value[part][0]), __int_as_float(value[part][1]),
                        __int_as_float(value[part][2]), __int_as_float(value[part][3])),
            of_part);
      }
      const bool seen = weight > 0.0f;
      const float inverse = seen ? rcp(weight) : 0.0f;
      // Partial results are in the order of the output already.
      uint16* const out = static_cast<uint16*>(p.out) + unit.to.offset + unit.column;
      *reinterpret_cast<uint2*>(out) = make_uint2(cvt_bf16x2(sum.x * inverse, sum.y * inverse),
                                                  cvt_bf16x2(sum.z * inverse, sum.w * inverse));
      if (unit.column == 0) {
        unit.to.write_lse(seen ? subtract + lg2(weight) : negative_infinity());
      }
    }
  }

 private:
  // A unit of all splits.
  struct SplitUnit {
    const float* o_partial;  // of the first split
    const float* lse_partial;
    RowTarget to;
    int column;
  };
  __device__ __forceinline__ SplitUnit split_unit(int per_cta, int i) const {
    const int idx = static_cast<int>(cluster_ctarank()) * per_cta + i;
    const int row = min(idx / kRowUnits, num_rows - 1);
    const int column = idx % kRowUnits * 4;
    const int64 first = partial_row(work.batch_idx, p.num_kv_heads, work.kv_head, p.num_row_blocks,
                                    work.row_block, p.split_cap, 0, BLOCK_M, row);
    return {p.o_partial + first * kHeadDim + column, p.lse_partial + first,
            row_target<BLOCK_M, kHeadDim>(p, work, row, true), column};
  }

  static __device__ __forceinline__ void add(float4& sum, const float4& value, float factor) {
    sum.x += value.x * factor;
    sum.y += value.y * factor;
    sum.z += value.z * factor;
    sum.w += value.w * factor;
  }

  static __device__ __forceinline__ int row_of_quad(int quad) {
    return quad / (2 * kHeadDim) * kMmaTokens + quad % 2 * 4;
  }

  // The streams' sum of four rows of a column.
  __device__ __forceinline__ float4 merged(int quad) const {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (num_streams == 0) return sum;
#pragma unroll
    for (int i = 0; i < T::kStreams; ++i) {
      // One without anything has factor 0; the last one's memory stands in for its own. A branch
      // would make the loads wait for each other.
      const int from = min(i, num_streams - 1);
      const float4 value = reinterpret_cast<const float4*>(output(from, 0, 0))[quad];
      const float4 factor =
          *reinterpret_cast<const float4*>(factors() + i * BLOCK_M + row_of_quad(quad));
      sum.x += value.x * factor.x;
      sum.y += value.y * factor.y;
      sum.z += value.z * factor.z;
      sum.w += value.w * factor.w;
    }
    return sum;
  }

  __device__ __forceinline__ void write_quad(int quad, const float4& value) const {
    const int row = row_of_quad(quad);
    const int column = output_column(quad / 2 % kHeadDim);
    const float of_row[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row + i >= num_rows) break;
      const int64 at = row_offset()[row + i] + column;
      if (work.num_splits > 1) {
        p.o_partial[at] = of_row[i];
      } else {
        static_cast<uint16*>(p.out)[at] = static_cast<uint16>(cvt_bf16x2(of_row[i], 0.0f));
      }
    }
  }
};

}  // namespace attune
