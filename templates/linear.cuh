// Computes  y = W x for up to BLOCK_M tokens, with W read once.
// Grid      CTAs, each with a share of the outputs that is equal to one. Threads: linear_warps() * 32.
// Tiles     a slot has a panel of the pass's rows of W and of all tokens. Tokens come by bulk tensor
//           copies, with the 128-byte swizzle; rows of bf16 too, packed rows by bulk copies. A share
//           (a warp, for packed rows two) has num_stages slots of its own and of every row one group of
//           panels: group, group + kLinearShares, ... Some groups have a panel more, so a share has another
//           one in the next pass. No share waits for another but to add up.
// Fragments W is the left operand of mma.sync, so that 8 tokens fill it. A lane loads 16 bytes of a
//           row at once, and both operands of an mma take the same columns in the same order: which
//           column is which k is free. So no ldmatrix, and the rows that a lane group reads are
//           permuted for the banks (lane_row).
// Int4      numbers become bf16 by or-ing their bits into the mantissa of 128: 128 + n. A group's sum
//           is then 136 times the sum of its x too large, so it begins at -136 times that, a product
//           that all row tiles share; in fp32 that costs 1e-5 of the result, where each number would
//           cost half an instruction more.
// Tokens    that are not there leave rows of a slot of x as they were: theirs are columns of an mma
//           of their own, which nobody reads.
// Smem      slots | partial sums of the warps, of two passes | barriers.
// Sync      full barriers of the slots, and a barrier of the warps' partial sums of a pass. A pass's sums
//           are added when the next one has been multiplied, so that no share waits for a longer one; who
//           then writes sums knows that all have added those of the pass before the last.
// Overlap   the first slot of W is under way before griddepcontrol.wait.
// Bits      of an output depend on its row of W, its token's x, and in_features alone: sums run over
//           the same columns in the same order whatever the tokens, the config and the CTAs.
// Limits    linear_limits (model_plan.h).
#pragma once

#include "templates/device/bf16.cuh"
#include "templates/device/gated.cuh"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/softmax.cuh"
#include "templates/linear_config.h"
#include "templates/model_params.h"

namespace attune {

template <KernelConfig kConfig, LinearEpilogue kEpilogue, LinearWeights kWeights>
struct Linear {
  static constexpr int BLOCK_M = kConfig.block_m;
  static constexpr int BLOCK_N = kConfig.block_n;
  static constexpr int kStages = kConfig.num_stages;
  static constexpr int kWarps = kConfig.num_warps;
  static constexpr int kSharing = linear_warps_of_panel(kWeights);  // warps of one slot
  static constexpr int kTokenTiles = (BLOCK_M + kMmaTokens - 1) / kMmaTokens;
  static constexpr int kRowTiles = BLOCK_N / kMmaRows;
  static constexpr int kRowsPerOutput = linear_rows_per_output(kEpilogue);
  static constexpr int kOutputs = BLOCK_N / kRowsPerOutput;  // most of a pass
  static constexpr bool kInt4 = kWeights == LinearWeights::kInt4;
  static constexpr int kColumns = linear_panel_columns(kWeights);
  static constexpr int kRowBytes = kInt4 ? kInt4RowBytes : kLinearRowBytes;
  static constexpr int kSlotBytes = linear_slot_bytes(kConfig, kWeights);
  static constexpr int kInputBytes = linear_input_bytes(kConfig, kWeights);
  static constexpr int kInputBoxes = linear_input_boxes(kConfig, kWeights);
  static constexpr int kPartBytes = linear_part_bytes(kConfig, kWeights, kRowsPerOutput);
  static constexpr int kPartialOffset = kLinearShares * kStages * kSlotBytes;
  static constexpr int kPartials = linear_partials(kConfig);
  static constexpr int kBarrierOffset = kPartialOffset + 2 * 4 * kPartials;
  static constexpr int kSumsBarrierOffset = kBarrierOffset + kLinearShares * kStages * 8;
  static constexpr int kGroupStep = 3;  // from a share's group to its next: all in turn
  static_assert(kWarps == linear_warps(kWeights), "sums depend on it");
  static_assert(BLOCK_M == 8 || BLOCK_M == 16 || (BLOCK_M == 1 && kInt4));
  static_assert(BLOCK_N % kMmaRows == 0 && kOutputs % 8 == 0, "boxes begin at a swizzle");
  static_assert(kSumsBarrierOffset + 2 * 8 == linear_smem_bytes(kConfig, kWeights));

  const LinearParams& p;
  unsigned char* const smem;
  // The same in all lanes, as the compiler sees: what follows from it is computed once a warp.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpSize, 0);
  const int lane = threadIdx.x % kWarpSize;
  const int share = warp / kSharing;
  // A lane of the share's first warp asks for W, one of its last for x: a copy takes the lane that asks for
  // it some 160 cycles.
  const bool copies = warp % kSharing == 0;
  const bool copies_input = warp % kSharing == kSharing - 1;
  const int num_panels = linear_panels(kWeights, p.in_features);
  int first_output;
  int num_outputs;

  // A step is one slot: a panel of a pass.
  struct Place {
    int pass = 0;
    int panel;
    int step = 0;
  };
  Place next;  // to be copied

  float sums[kRowTiles][kTokenTiles][4];

  __device__ __forceinline__ Linear(const LinearParams& params, unsigned char* shared)
      : p(params), smem(shared) {
    const int64 outputs = p.out_features;
    first_output = static_cast<int>(blockIdx.x * outputs / gridDim.x);
    num_outputs = static_cast<int>((blockIdx.x + 1) * outputs / gridDim.x) - first_output;
    next.panel = group_of(0);
    if (copies && lane == 0) {
      for (int slot = 0; slot < kStages; ++slot) mbarrier_init(barrier(slot), 1);
      if (share == 0) {
        for (int pass = 0; pass < 2; ++pass) mbarrier_init(sums_barrier(pass), kWarps);
      }
      fence_mbarrier_init();
    }
    __syncthreads();
  }

  // The share's first panel of a pass.
  __device__ __forceinline__ int group_of(int pass) const {
    return num_panels < kLinearShares ? share : (share + pass * kGroupStep) % kLinearShares;
  }

  __device__ __forceinline__ void sync_share() const {
    if constexpr (kSharing == 1) {
      __syncwarp();
    } else {
      bar_sync(1 + share, kSharing * kWarpSize);
    }
  }

  // Outputs of a pass, relative to the CTA's first: long passes come first.
  __device__ __forceinline__ int num_long_passes() const {
    return p.num_passes - (p.num_passes * p.outputs_per_pass - num_outputs);
  }
  __device__ __forceinline__ int pass_begin(int pass) const {
    return pass * p.outputs_per_pass - max(0, pass - num_long_passes());
  }
  __device__ __forceinline__ int pass_outputs(int pass) const {
    return p.outputs_per_pass - (pass < num_long_passes() ? 0 : 1);
  }

  // Of the weights.
  __device__ __forceinline__ int first_row(int pass) const {
    return first_output + pass_begin(pass);
  }

  __device__ __forceinline__ int outputs_of(int pass) const { return pass_outputs(pass); }
  __device__ __forceinline__ bool has_pass(int pass) const { return pass < p.num_passes; }
  __device__ __forceinline__ bool is_there(const Place& place) const {
    return has_pass(place.pass) && place.panel < num_panels;
  }
  __device__ __forceinline__ void advance(Place& place) const {
    ++place.step;
    place.panel += kLinearShares;
    if (place.panel >= num_panels) place.panel = group_of(++place.pass);
  }

  __device__ __forceinline__ int slot_offset(int step) const {
    return (share * kStages + step % kStages) * kSlotBytes;
  }
  __device__ __forceinline__ uint32 barrier(int slot) const {
    return smem_address(smem) + kBarrierOffset + (share * kStages + slot) * 8;
  }

  __device__ __forceinline__ uint32 sums_barrier(int pass) const {
    return smem_address(smem) + kSumsBarrierOffset + pass % 2 * 8;
  }

  // Rows of a panel of packed ones in front of row `row`, and of a part behind it.
  __device__ __forceinline__ int64 packed_row(int panel, int row, int part) const {
    return static_cast<int64>(panel) * p.weight_rows + row + part * p.out_features;
  }
  // Bytes that a copy of packed rows begins early, so that it begins with a line of the memory.
  __device__ __forceinline__ static int lead_bytes(int64 packed_row) {
    constexpr int kPeriod = 8;  // rows
    static_assert(kPeriod * kInt4RowBytes % kInt4LineBytes == 0);
    return static_cast<int>(packed_row & (kPeriod - 1)) * kInt4RowBytes % kInt4LineBytes;
  }

  // W of a step, of rows `row` on; the barrier expects x too.
  __device__ __forceinline__ void copy_weights(const Place& place, int row, int outputs) const {
    const uint32 full = barrier(place.step % kStages);
    const uint32 slot = smem_address(smem) + slot_offset(place.step) + kInputBytes;
    int bytes = outputs * kRowsPerOutput * kRowBytes + p.num_tokens * kColumns * kBytesPerElement;
    if constexpr (kInt4) {
#pragma unroll
      for (int part = 0; part < kRowsPerOutput; ++part) {
        bytes += lead_bytes(packed_row(place.panel, row, part));
      }
    }
    mbarrier_arrive_expect_tx(full, bytes);
#pragma unroll
    for (int part = 0; part < kRowsPerOutput; ++part) {
      const uint32 to = slot + part * kPartBytes;
      const int from = row + part * p.out_features;
      if constexpr (kInt4) {
        const int64 at = packed_row(place.panel, row, part);
        const int lead = lead_bytes(at);
        cp_async_bulk_load(to, static_cast<const unsigned char*>(p.packed) + at * kRowBytes - lead,
                           lead + outputs * kRowBytes, full);
      } else {
        const bool is_long = outputs == p.outputs_per_pass;
        const int at[2] = {place.panel * kColumns, from};
        cp_async_bulk_tensor_load_once<2>(to, is_long ? &p.weight_map : &p.short_weight_map, at,
                                          full);
      }
    }
  }
  template <typename Cta>
  __device__ __forceinline__ void copy_weights(const Cta& cta, const Place& place) const {
    copy_weights(place, cta.first_row(place.pass), cta.outputs_of(place.pass));
  }
  // Columns behind the last one become zeros.
  __device__ __forceinline__ void copy_input(const Place& place, int row = 0) const {
    const uint32 slot = smem_address(smem) + slot_offset(place.step);
#pragma unroll
    for (int i = 0; i < kInputBoxes; ++i) {
      const int at[2] = {place.panel * kColumns + i * kLinearColumns, row};
      cp_async_bulk_tensor_load<2>(slot + i * BLOCK_M * kLinearRowBytes, &p.input_map, at,
                                   barrier(place.step % kStages));
    }
  }

  // `cta` is this, as the kernel that it is of: what is there and what a copy brings is that one's.
  // Fills all slots, the first one with W before the kernel in front has ended: W does not depend on
  // it, x does. More W in front of the first x would keep it waiting.
  template <typename Cta>
  __device__ __forceinline__ void start(Cta& cta) {
    if (copies && cta.is_there(next) && elect_sync()) copy_weights(cta, next);
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    for (; next.step < kStages && cta.is_there(next); advance(next)) {
      if (copies && next.step > 0 && elect_sync()) copy_weights(cta, next);
      if (copies_input && elect_sync()) cta.copy_input(next);
    }
  }

  // The slot that was read is filled again.
  template <typename Cta>
  __device__ __forceinline__ void refill(Cta& cta) {
    sync_share();
    if (!cta.is_there(next)) return;
    // Behind the fence, because the copies write what the share's warps have read, in another proxy.
    if (copies && elect_sync()) {
      fence_proxy_async();
      copy_weights(cta, next);
    }
    if (copies_input && elect_sync()) {
      fence_proxy_async();
      cta.copy_input(next);
    }
    advance(next);
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][t][i] = 0.0f;
      }
    }
  }

  // The row of eight that a lane group (lane / 4) stands for. Groups 2 i and 2 i + 1 load together;
  // rows that differ by 4 lie in different halves of the banks.
  __device__ __forceinline__ static int lane_row(int group) {
    return group >> 1 | (group & 1) << 2;
  }

  // Of the lane: 16 bytes of token tile t, columns `chunk` * 8 to + 7 of a panel of x. One token
  // stands for all columns of an mma.
  __device__ __forceinline__ static uint4 input_chunk(const unsigned char* panel, int t, int row,
                                                      int chunk) {
    const int at =
        BLOCK_M == 1 ? chunk * 16 : (t * kMmaTokens + row) * kLinearRowBytes + (chunk ^ row) * 16;
    return *reinterpret_cast<const uint4*>(panel + at);
  }

  // A panel of the pass whose weights begin at `row`.
  __device__ __forceinline__ void multiply(int step, int panel, int row) {
    const unsigned char* const slot = smem + slot_offset(step);
    int leads[kRowsPerOutput];
#pragma unroll
    for (int part = 0; part < kRowsPerOutput; ++part) {
      leads[part] = lead_bytes(packed_row(panel, row, part));
    }
    mbarrier_wait_parity(barrier(step % kStages), step / kStages & 1);
    if constexpr (kInt4) {
      multiply_int4(slot, leads);
    } else {
      multiply_bf16(slot);
    }
  }

  __device__ __forceinline__ void multiply_bf16(const unsigned char* slot) {
    const int row = lane_row(lane / 4);
    const unsigned char* const weights = slot + kInputBytes + row * kRowBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int chunk = lane % 4 + 4 * half;
      uint4 x[kTokenTiles];
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) x[t] = input_chunk(slot, t, row, chunk);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        // Rows of a multiple of 8 have the swizzle of row 0.
        const unsigned char* const tile = weights + m * kMmaRows * kRowBytes + (chunk ^ row) * 16;
        const uint4 low = *reinterpret_cast<const uint4*>(tile);
        const uint4 high = *reinterpret_cast<const uint4*>(tile + 8 * kRowBytes);
        const uint32 first[4] = {low.x, high.x, low.y, high.y};
        const uint32 second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          mma_m16n8k16(sums[m][t], first, x[t].x, x[t].y);
          mma_m16n8k16(sums[m][t], second, x[t].z, x[t].w);
        }
      }
    }
  }

  // Numbers 2 p and 2 p + 1 of a word, each + 128.
  __device__ __forceinline__ static uint32 widen(uint32 word, int pair) {
    return and_or(word >> 4 * pair, 0x000f000fu, 0x43004300u);
  }
  // bf16 number i of the four in 8 bytes.
  __device__ __forceinline__ static float scale_of(const uint2& scales, int i) {
    const uint32 pair = i < 2 ? scales.x : scales.y;
    return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  }

  static constexpr int kHalf = kInt4Groups / 2;

  // Eight packed rows of a slot.
  __device__ __forceinline__ static const unsigned char* packed_rows(
      const unsigned char* slot, const int (&leads)[kRowsPerOutput], int eight) {
    const int part = eight * 8 / kOutputs;
    return slot + kInputBytes + part * kPartBytes + leads[part < kRowsPerOutput ? part : 0] +
           (eight * 8 - part * kOutputs) * kRowBytes;
  }

  // One half of the groups; the other is another warp's.
  __device__ __forceinline__ void multiply_int4(const unsigned char* slot,
                                                const int (&leads)[kRowsPerOutput]) {
    constexpr uint32 kOffset = 0xc308c308u;  // two of -(128 + kInt4Zero)
    const uint32 offsets[4] = {kOffset, kOffset, kOffset, kOffset};
    const int row = lane_row(lane / 4);
    const int half = warp % kSharing;
    uint4 x[kHalf][kTokenTiles];
    float base[kHalf][kTokenTiles][4] = {};
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const unsigned char* const panel = slot + (2 * half + i / 2) * BLOCK_M * kLinearRowBytes;
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        x[i][t] = input_chunk(panel, t, row, i % 2 * 4 + lane % 4);
        mma_m16n8k16(base[i][t], offsets, x[i][t].x, x[i][t].y);
        mma_m16n8k16(base[i][t], offsets, x[i][t].z, x[i][t].w);
      }
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const unsigned char* const low = packed_rows(slot, leads, 2 * m) + row * kRowBytes;
      const unsigned char* const high = packed_rows(slot, leads, 2 * m + 1) + row * kRowBytes;
      const int at = (lane % 4 + 4 * half) * 16;
      const uint4 words[2] = {*reinterpret_cast<const uint4*>(low + at),
                              *reinterpret_cast<const uint4*>(high + at)};
      const int scales_at = kInt4ScalesOffset + half * kHalf * kBytesPerElement;
      const uint2 scales[2] = {*reinterpret_cast<const uint2*>(low + scales_at),
                               *reinterpret_cast<const uint2*>(high + scales_at)};
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        const uint32 word[2] = {word_of(words[0], i), word_of(words[1], i)};
        const float scale[2] = {scale_of(scales[0], i), scale_of(scales[1], i)};
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) {
          add_group(sums[m][t], word, scale, x[i][t], base[i][t]);
        }
      }
    }
  }

  // Adds the products of one group of 16 rows.
  __device__ __forceinline__ void add_group(float (&to)[4], const uint32 (&word)[2],
                                            const float (&scale)[2], const uint4& x,
                                            const float (&base)[4]) const {
    const uint32 first[4] = {widen(word[0], 0), widen(word[1], 0), widen(word[0], 1),
                             widen(word[1], 1)};
    const uint32 second[4] = {widen(word[0], 2), widen(word[1], 2), widen(word[0], 3),
                              widen(word[1], 3)};
    float sum[4] = {base[0], base[1], base[2], base[3]};
    mma_m16n8k16(sum, first, x.x, x.y);
    mma_m16n8k16(sum, second, x.z, x.w);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __fmaf_rn(scale[i / 2], sum[i], to[i]);
  }
  __device__ __forceinline__ static uint32 word_of(const uint4& words, int i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
  }

  // [groups, kSharing, BLOCK_M, BLOCK_N], of even and of odd passes.
  __device__ __forceinline__ float* partials(int pass) const {
    return reinterpret_cast<float*>(smem + kPartialOffset) + pass % 2 * kPartials;
  }

  __device__ __forceinline__ void publish(int pass) const {
    const int part = group_of(pass) * kSharing + warp % kSharing;
    float* const to = partials(pass) + part * BLOCK_M * BLOCK_N + lane_row(lane / 4);
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = t * kMmaTokens + lane_row(lane % 4 * 2 + i % 2);
        if (BLOCK_M == 1 && token > 0) continue;
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          to[token * BLOCK_N + m * kMmaRows + i / 2 * 8] = sums[m][t][i];
        }
      }
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(sums_barrier(pass));
  }

  __device__ __forceinline__ static float add_up(const float* from) {
    float sum = from[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) sum = __fadd_rn(sum, from[i * BLOCK_M * BLOCK_N]);
    return sum;
  }

  __device__ __forceinline__ void write(const float* from, int token, int output,
                                        int column) const {
    const float* const row = from + token * BLOCK_N + output;
    const float sum = add_up(row);
    const int64 at = token * p.out_stride + column;
    if constexpr (kEpilogue == LinearEpilogue::kLogits) {
      static_cast<float*>(p.out)[at] =
          p.softcap > 0.0f ? p.softcap * tanh_accurate(sum / p.softcap) : sum;
    } else {
      float value = sum;
      if constexpr (kRowsPerOutput == 2) {
        value = gated<kEpilogue>(sum, add_up(row + kOutputs));
      }
      static_cast<uint16*>(p.out)[at] = static_cast<uint16>(cvt_bf16x2(value, 0.0f));
    }
  }

  // Outputs of a pass of the plan, that is the CTA's pass-th.
  __device__ __forceinline__ void finish(int planned, int pass) {
    mbarrier_wait_parity(sums_barrier(pass), pass / 2 & 1);
    const int outputs = pass_outputs(planned);
    const int column = first_output + pass_begin(planned);
    for (int i = threadIdx.x; i < p.num_tokens * kOutputs; i += kWarps * kWarpSize) {
      const int output = i % kOutputs;
      if (output < outputs) write(partials(pass), i / kOutputs, output, column + output);
    }
  }
  __device__ __forceinline__ void finish(int pass) { finish(pass, pass); }

  // Passes of `cta` until one is not there.
  template <typename Cta>
  __device__ __forceinline__ void run(Cta& cta) {
    start(cta);
    int step = 0;
    int pass = 0;
    for (; cta.has_pass(pass); ++pass) {
      clear();
      const int row = cta.first_row(pass);
      for (int panel = group_of(pass); panel < num_panels; panel += kLinearShares) {
        multiply(step++, panel, row);
        refill(cta);
      }
      if (pass > 0) cta.finish(pass - 1);
      publish(pass);
    }
    if (pass > 0) cta.finish(pass - 1);
  }
};

template <KernelConfig kConfig, LinearEpilogue kEpilogue, LinearWeights kWeights>
__device__ __forceinline__ void linear(const LinearParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  Linear<kConfig, kEpilogue, kWeights> cta(p, smem);
  cta.run(cta);
}

}  // namespace attune
