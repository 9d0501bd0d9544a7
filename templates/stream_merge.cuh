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
  static constexpr int kPartFloats = kRowUnits * kMmaTokens + 8;
  static constexpr int kTileFloats = 4 * kPartFloats;
  static_assert(kTileFloats == kMmaTokens * stream_row_floats(kHeadDim), "one formula");
  static constexpr int kThreads = T::kWarps * kWarpSize;

  const AttentionParams& p;
  const SplitWork& work;
  unsigned char* smem;
  Scale scale;
  int num_streams;  // that have anything
  int num_rows = min(BLOCK_M, work.num_rows - work.first_row);

  // [streams][BLOCK_M / 8][column % 4][column / 4][8 rows], the four parts 8 floats apart: a warp's
  // stores of two rows of 8 columns and its loads of four rows of every fourth column meet no bank
  // twice.
  __device__ __forceinline__ float* output(int stream, int row, int column) const {
    return reinterpret_cast<float*>(smem) + stream * (BLOCK_M * stream_row_floats(kHeadDim)) +
           row / kMmaTokens * kTileFloats + column % 4 * kPartFloats + column / 4 * kMmaTokens +
           row % kMmaTokens;
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
  // A thread takes four columns of four rows at a time.
  __device__ __forceinline__ void write() const {
    constexpr int kBlocks = BLOCK_M / 4 * kRowUnits;
#pragma unroll 1
    for (int block = threadIdx.x; block < kBlocks; block += kThreads) {
      const int row = block / (2 * kRowUnits) * kMmaTokens + block % 2 * 4;
      if (row >= num_rows) break;
      const int column = block / 2 % kRowUnits * 4;
      float4 sum[4];  // of a column: four rows
      merge_block(row, column, sum);
      write_block(row, output_column(column), sum);
    }
  }

  // Merges the splits of the rows, which the CTAs of the cluster have written: each some units of
  // all of them, four columns of a row. Two lanes share a unit, one has the odd splits of it: there
  // are more threads than units. Through the workspace: distributed shared memory takes 2300 cycles
  // for 16 KB of every CTA to be sent, and as many with the barriers to be fetched [h200].
  __device__ __forceinline__ void merge_cluster() const {
    barrier_cluster_arrive();
    constexpr int kHalfWarp = kWarpSize / 2;
    constexpr int kParts = kMaxClusterSplits / 2;            // of a lane
    const int per_cta = num_rows * kRowUnits / p.split_cap;  // the largest cluster divides a row
    const int lane = threadIdx.x % kWarpSize;
    const int odd = lane / kHalfWarp;
    const int first = static_cast<int>(threadIdx.x) / kWarpSize * kHalfWarp;  // unit of the warp
    SplitUnit unit = split_unit(per_cta, first + lane % kHalfWarp, odd);  // while the others come
    barrier_cluster_wait();
    if (work.num_splits <= 1) return;
    for (int i = first; i < per_cta; i += kThreads / 2) {
      if (i >= kThreads / 2) unit = split_unit(per_cta, i + lane % kHalfWarp, odd);
      float lse[kParts];
      uint32 value[kParts][4];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        if (2 * part + odd >= work.num_splits) continue;
        ld_global_cg_v4(value[part], unit.o_partial + 2 * part * (BLOCK_M * kHeadDim));
        lse[part] = unit.lse_partial[2 * part * BLOCK_M];
      }
      float new_max = negative_infinity();
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        if (2 * part + odd < work.num_splits) new_max = fmaxf(new_max, lse[part]);
      }
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, kHalfWarp));
      const float subtract = finite_or_zero(new_max);
      float weight = 0.0f;
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        if (2 * part + odd >= work.num_splits) continue;
        const float of_part = ex2(lse[part] - subtract);
        weight += of_part;
        add(sum,
            make_float4(__int_as_float(value[part][0]), __int_as_float(value[part][1]),
                        __int_as_float(value[part][2]), __int_as_float(value[part][3])),
            of_part);
      }
      weight += __shfl_xor_sync(0xffffffffu, weight, kHalfWarp);
      const float4 other = make_float4(__shfl_xor_sync(0xffffffffu, sum.x, kHalfWarp),
                                       __shfl_xor_sync(0xffffffffu, sum.y, kHalfWarp),
                                       __shfl_xor_sync(0xffffffffu, sum.z, kHalfWarp),
                                       __shfl_xor_sync(0xffffffffu, sum.w, kHalfWarp));
      add(sum, other, 1.0f);
      if (odd == 0 && i + lane < per_cta) write_unit(unit, sum, subtract, weight);
    }
  }

 private:
  // A unit of all splits.
  struct SplitUnit {
    const float* o_partial;  // of the first split that is asked for
    const float* lse_partial;
    RowTarget to;
    int column;
  };
  __device__ __forceinline__ SplitUnit split_unit(int per_cta, int i, int split) const {
    const int idx = static_cast<int>(cluster_ctarank()) * per_cta + i;
    const int row = min(idx / kRowUnits, num_rows - 1);
    const int column = idx % kRowUnits * 4;
    const int64 first = partial_row(work.kv_head, p.num_row_blocks, work.row_block, p.num_slots,
                                    work.first_slot + split, BLOCK_M, row);
    return {static_cast<const float*>(p.o_partial) + first * kHeadDim + column,
            p.lse_partial + first, row_target<BLOCK_M, kHeadDim>(p, work, row, true), column};
  }
  __device__ __forceinline__ void write_unit(const SplitUnit& unit, const float4& sum,
                                             float subtract, float weight) const {
    const bool seen = weight > 0.0f;
    const float inverse = seen ? rcp(weight) : 0.0f;
    // Partial results are in the order of the output already.
    uint16* const out = static_cast<uint16*>(p.out) + unit.to.offset + unit.column;
    *reinterpret_cast<uint2*>(out) = make_uint2(cvt_bf16x2(sum.x * inverse, sum.y * inverse),
                                                cvt_bf16x2(sum.z * inverse, sum.w * inverse));
    if (unit.column == 0) unit.to.write_lse(seen ? subtract + lg2(weight) : negative_infinity());
  }

  static __device__ __forceinline__ void add(float4& sum, const float4& value, float factor) {
    sum.x += value.x * factor;
    sum.y += value.y * factor;
    sum.z += value.z * factor;
    sum.w += value.w * factor;
  }

  // The streams' sums of columns [column, column + 4) of rows [row, row + 4).
  __device__ __forceinline__ void merge_block(int row, int column, float4 (&sum)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (num_streams == 0) return;
#pragma unroll
    for (int stream = 0; stream < T::kStreams; ++stream) {
      // One without anything has factor 0; the last one's memory stands in for its own. A branch
      // would make the loads wait for each other.
      const float* const from = output(min(stream, num_streams - 1), row, column);
      const float4 factor = *reinterpret_cast<const float4*>(factors() + stream * BLOCK_M + row);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 value = *reinterpret_cast<const float4*>(from + i * kPartFloats);
        sum[i].x += value.x * factor.x;
        sum[i].y += value.y * factor.y;
        sum[i].z += value.z * factor.z;
        sum[i].w += value.w * factor.w;
      }
    }
  }

  // `at_column` is a column of the output; the next three follow it.
  __device__ __forceinline__ void write_block(int row, int at_column,
                                              const float4 (&sum)[4]) const {
    const float of_row[4][4] = {{sum[0].x, sum[1].x, sum[2].x, sum[3].x},
                                {sum[0].y, sum[1].y, sum[2].y, sum[3].y},
                                {sum[0].z, sum[1].z, sum[2].z, sum[3].z},
                                {sum[0].w, sum[1].w, sum[2].w, sum[3].w}};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row + i >= num_rows) break;
      const int64 at = row_offset()[row + i] + at_column;
      const float(&value)[4] = of_row[i];
      if (work.num_splits > 1) {
        *reinterpret_cast<float4*>(static_cast<float*>(p.o_partial) + at) =
            make_float4(value[0], value[1], value[2], value[3]);
      } else {
        *reinterpret_cast<uint2*>(static_cast<uint16*>(p.out) + at) =
            make_uint2(cvt_bf16x2(value[0], value[1]), cvt_bf16x2(value[2], value[3]));
      }
    }
  }
};

}  // namespace attune
