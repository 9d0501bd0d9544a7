// Merges the splits of a row block that are a cluster: every CTA owns some columns of the output and
// is sent what the others have of them. A word is stored into the owner's shared memory and counts at
// its mbarrier, so that nobody waits for more than the words that it needs: the barrier of the
// cluster and the way through L2 took 2000 cycles more [h200].
#pragma once

#include "templates/config.h"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/softmax.cuh"
#include "templates/params.h"
#include "templates/split_work.cuh"

namespace attune {

// T: kThreads, BLOCK_M, kSmemExchange. Columns are those of the output.
template <typename T, int kHeadDim>
struct ClusterExchange {
  static constexpr int BLOCK_M = T::BLOCK_M;
  static constexpr int kThreads = T::kWarps * kWarpSize;
  static constexpr int kSmemLse = T::kSmemExchange + BLOCK_M * kHeadDim * 4;
  static constexpr int kSmemBarrier = kSmemLse + kMaxClusterSplits * BLOCK_M * 4;

  const AttentionParams& p;
  const SplitWork& work;
  unsigned char* smem;
  int num_rows = min(BLOCK_M, work.num_rows - work.first_row);
  int log2_columns = 31 - __clz(kHeadDim / p.split_cap);  // of a CTA

  // Tells the cluster that this CTA can be sent to. Every thread of every CTA of it.
  __device__ __forceinline__ void open() const {
    if (threadIdx.x == 0) {
      const uint32 barrier = smem_address(smem) + kSmemBarrier;
      mbarrier_init(barrier, 1);
      fence_mbarrier_init();
      mbarrier_arrive_expect_tx(barrier, work.num_splits * num_rows * 4 * ((1 << log2_columns) + 1));
    }
    __syncwarp();
    barrier_cluster_arrive();
  }
  // Until all can be sent to: before the first word, and before the end.
  __device__ __forceinline__ void wait_for_others() const { barrier_cluster_wait(); }

  // To the owner of the column.
  __device__ __forceinline__ void send(int row, int column, float value) const {
    const int in_cta = column & ((1 << log2_columns) - 1);
    const int word = (work.split * BLOCK_M + row) * (1 << log2_columns) + in_cta;
    send_word(T::kSmemExchange + word * 4, column >> log2_columns, value);
  }
  // To all, in log2 units.
  __device__ __forceinline__ void send_lse(int row, float lse) const {
    for (int cta = 0; cta < p.split_cap; ++cta) {
      send_word(kSmemLse + (work.split * BLOCK_M + row) * 4, cta, lse);
    }
  }

  // Merges and writes the columns of this CTA, two at a time. All threads.
  __device__ __forceinline__ void merge() const {
    const int rank = static_cast<int>(cluster_ctarank());
    const int log2_pairs = log2_columns - 1;
    const int num_pairs = num_rows << log2_pairs;
    Pair pair = pair_of(threadIdx.x, rank, log2_pairs);  // while the words come
    mbarrier_wait_parity(smem_address(smem) + kSmemBarrier, 0);
    for (int i = threadIdx.x; i < num_pairs; i += kThreads) {
      if (i >= kThreads) pair = pair_of(i, rank, log2_pairs);
      write_pair(pair);
    }
  }

 private:
  // Two columns of a row.
  struct Pair {
    int row;
    int column;         // of the output
    const float2* sum;  // of split 0
    RowTarget to;
  };

  __device__ __forceinline__ void send_word(int offset, int cta, float value) const {
    const uint32 own = smem_address(smem);
    st_async(mapa(own + offset, cta), __float_as_uint(value), mapa(own + kSmemBarrier, cta));
  }
  __device__ __forceinline__ Pair pair_of(int i, int rank, int log2_pairs) const {
    const int row = min(i >> log2_pairs, num_rows - 1);
    const int in_cta = (i & ((1 << log2_pairs) - 1)) * 2;
    const float* const sums = reinterpret_cast<const float*>(smem + T::kSmemExchange);
    return {row, (rank << log2_columns) + in_cta,
            reinterpret_cast<const float2*>(sums + (row << log2_columns) + in_cta),
            row_target<BLOCK_M, kHeadDim>(p, work, row, true)};
  }
  __device__ __forceinline__ void write_pair(const Pair& pair) const {
    const float* const lse = reinterpret_cast<const float*>(smem + kSmemLse) + pair.row;
    float most = negative_infinity();
    for (int split = 0; split < work.num_splits; ++split) most = fmaxf(most, lse[split * BLOCK_M]);
    const float subtract = finite_or_zero(most);
    float weight = 0.0f;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll 4
    for (int split = 0; split < work.num_splits; ++split) {
      const float of_split = ex2(lse[split * BLOCK_M] - subtract);
      const float2 value = pair.sum[split * (BLOCK_M / 2) << log2_columns];
      weight += of_split;
      sum.x += value.x * of_split;
      sum.y += value.y * of_split;
    }
    const bool seen = weight > 0.0f;
    const float inverse = seen ? rcp(weight) : 0.0f;
    uint16* const out = static_cast<uint16*>(p.out) + pair.to.offset + pair.column;
    *reinterpret_cast<uint32*>(out) = cvt_bf16x2(sum.x * inverse, sum.y * inverse);
    if (pair.column == 0) pair.to.write_lse(seen ? subtract + lg2(weight) : negative_infinity());
  }
};

}  // namespace attune
