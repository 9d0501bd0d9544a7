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

// Four columns of a row are a unit: what a thread merges at a time. Every thread of the CTA calls
// every function, with a CTA barrier between them.
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
  int num_parts = max(work.num_splits, 1);  // CTAs of the cluster that have anything

  // [streams][BLOCK_M][T::kOutputPitch]
  __device__ __forceinline__ float* output(int stream, int row) const {
    return reinterpret_cast<float*>(smem) + (stream * BLOCK_M + row) * T::kOutputPitch;
  }
  // [streams][BLOCK_M], maximum and sum of a row; after weigh() the first stream's are the CTA's
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
  // What the CTAs of the cluster have of this CTA's units: [parts][units()]
  __device__ __forceinline__ float4* received() const {
    return reinterpret_cast<float4*>(smem + T::kSmemReceived);
  }
  // [parts][BLOCK_M]
  __device__ __forceinline__ float2* received_stats() const {
    return reinterpret_cast<float2*>(smem + T::kSmemReceivedStats);
  }
  // Of a CTA of the cluster. head_dim / 4 is a multiple of the largest cluster.
  __device__ __forceinline__ int units() const { return num_rows * kRowUnits / p.split_cap; }

  // Where a column of V goes in a row of the output.
  static __device__ __forceinline__ int output_column(int column) {
    return T::kUnified ? unified_value_dim(column) : column;
  }

  // A thread per row: its maximum and sum, the factors of its streams, and its lse where this is
  // all there is of the row.
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
    float inverse = sum > 0.0f ? rcp(sum) : 0.0f;
    if (p.merges_in_cluster != 0) {
      inverse = 1.0f;
      stats()[row] = make_float2(new_max, sum);
    } else {
      const RowTarget to = row_target(row);
      to.write_lse(sum > 0.0f ? subtract + lg2(sum) : negative_infinity());
      row_offset()[row] = to.offset;
    }
#pragma unroll
    for (int i = 0; i < T::kStreams; ++i) factors()[i * BLOCK_M + row] = factor[i] * inverse;
  }

  // Writes the rows: fp32 to the workspace where there are other splits, else bf16 to the caller.
  __device__ __forceinline__ void write() const {
#pragma unroll 4
    for (int unit = threadIdx.x; unit < num_rows * kRowUnits; unit += kThreads) {
      const int row = unit / kRowUnits;
      write_unit(row_offset()[row], unit % kRowUnits * 4, merged(unit), work.num_splits > 1);
    }
  }

  // Sends every unit, not normalized, to the CTA that merges it.
  __device__ __forceinline__ void send() const {
    const int rank = static_cast<int>(cluster_ctarank());
    const int per_cta = units();
    for (int i = threadIdx.x; i < num_rows * p.split_cap; i += kThreads) {
      const int row = i / p.split_cap;
      const float2 own = stats()[row];
      const uint32 to =
          mapa(smem_address(received_stats() + rank * BLOCK_M + row), i % p.split_cap);
      st_shared_cluster(to, __float_as_int(own.x));
      st_shared_cluster(to + 4, __float_as_int(own.y));
    }
#pragma unroll 4
    for (int unit = threadIdx.x; unit < num_rows * kRowUnits; unit += kThreads) {
      const float4 value = merged(unit);
      const int to_cta = unit / per_cta;
      const uint32 bits[4] = {static_cast<uint32>(__float_as_int(value.x)),
                              static_cast<uint32>(__float_as_int(value.y)),
                              static_cast<uint32>(__float_as_int(value.z)),
                              static_cast<uint32>(__float_as_int(value.w))};
      st_shared_cluster_v4(
          mapa(smem_address(received() + rank * per_cta + unit - to_cta * per_cta), to_cta), bits);
    }
  }

  // Merges this CTA's units of all CTAs and writes them to the caller.
  __device__ __forceinline__ void receive() const {
    const int rank = static_cast<int>(cluster_ctarank());
    const int per_cta = units();
    for (int i = threadIdx.x; i < per_cta; i += kThreads) {
      const int unit = rank * per_cta + i;
      const int row = unit / kRowUnits;
      float new_max = negative_infinity();
#pragma unroll 4
      for (int part = 0; part < num_parts; ++part) {
        new_max = fmaxf(new_max, received_stats()[part * BLOCK_M + row].x);
      }
      const float subtract = scale.subtrahend(new_max);
      float sum = 0.0f;
      float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
      for (int part = 0; part < num_parts; ++part) {
        const float2 of_part = received_stats()[part * BLOCK_M + row];
        const float factor = scale.rescale(of_part.x, subtract);
        sum += of_part.y * factor;
        add(value, received()[part * per_cta + i], factor);
      }
      const bool seen = sum > 0.0f;
      const RowTarget to = row_target(row);
      const float inverse = seen ? rcp(sum) : 0.0f;
      write_unit(
          to.offset, unit % kRowUnits * 4,
          make_float4(value.x * inverse, value.y * inverse, value.z * inverse, value.w * inverse),
          false);
      if (unit % kRowUnits == 0) to.write_lse(seen ? subtract + lg2(sum) : negative_infinity());
    }
  }

 private:
  __device__ __forceinline__ RowTarget row_target(int row) const {
    const bool is_complete = work.num_splits <= 1 || p.merges_in_cluster != 0;
    return attune::row_target<BLOCK_M, kHeadDim>(p, work, row, is_complete);
  }

  static __device__ __forceinline__ void add(float4& sum, const float4& value, float factor) {
    sum.x += value.x * factor;
    sum.y += value.y * factor;
    sum.z += value.z * factor;
    sum.w += value.w * factor;
  }

  // The streams' sum of a unit.
  __device__ __forceinline__ float4 merged(int unit) const {
    const int row = unit / kRowUnits;
    const int column = unit % kRowUnits * 4;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < T::kStreams; ++i) {
      if (i >= num_streams) break;
      add(sum, *reinterpret_cast<const float4*>(output(i, row) + column),
          factors()[i * BLOCK_M + row]);
    }
    return sum;
  }

  __device__ __forceinline__ void write_unit(int64 offset, int column, const float4& value,
                                             bool is_partial) const {
    const int64 at = offset + output_column(column);
    if (is_partial) {
      *reinterpret_cast<float4*>(p.o_partial + at) = value;
    } else {
      *reinterpret_cast<uint2*>(static_cast<uint16*>(p.out) + at) =
          make_uint2(cvt_bf16x2(value.x, value.y), cvt_bf16x2(value.z, value.w));
    }
  }
};

}  // namespace attune
