// The CTA of wgmma.cuh: its places in shared memory, the thread that requests its tiles, and what
// the two warpgroups that compute have in common.
#pragma once

#include "templates/config.h"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/warpgroup_rows.cuh"
#include "templates/device/wgmma_tile.cuh"
#include "templates/params.h"
#include "templates/split_work.cuh"

namespace attune {

// Compile-time shape of the kernel and the places in its shared memory.
template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout>
struct WgmmaTraits {
  static constexpr int BLOCK_M = kConfig.block_m;
  static constexpr int kRows = kWgmmaBlockM;
  static constexpr int BLOCK_N = kConfig.block_n;
  static constexpr int kStages = kConfig.num_stages;
  static constexpr KvLayout kKvLayout = kLayout;
  static constexpr bool kUnified = is_unified(kLayout);
  using Place = RingPlace<kStages>;

  static constexpr int kQueryPanels = kHeadDim / kPanelColumns;
  static constexpr int kQueryPanelBytes = kRows * kPanelBytes;
  static constexpr int kSlotPanels = kv_row_columns(kLayout, kHeadDim) / kPanelColumns;
  static constexpr int kTilePanelBytes = BLOCK_N * kPanelBytes;
  static constexpr int kSlotBytes = kSlotPanels * kTilePanelBytes;
  static constexpr int kHalfColumns = kHeadDim / 2;  // of the output, a warpgroup's
  static constexpr int kHalfPanels = kQueryPanels / 2;
  static constexpr int kHalfBytes = kHalfPanels * kTilePanelBytes;
  // V begins here in its slot.
  static constexpr int kValuePanel = kUnified ? kUnifiedRotated / kPanelColumns : 0;

  // Parts 0 and 1 of a slot hold what the first and the second half of the scores read; parts 2 and
  // 3 of a separate V slot the columns of the two warpgroups. In a unified slot part 0 is K_rot and
  // the columns of the "values", which end last, and part 1 the columns of the "scores" (60% of
  // the next tile starts 1000 cycles earlier on an H200).
  static constexpr int kParts = kUnified ? 2 : 4;
  static constexpr int kScoresPart = kUnified ? 1 : 2;  // with the values of the "scores"
  static constexpr int kValuesPart = kUnified ? 0 : 3;  // with those of the "values"
  static constexpr int kBoxPanels = wgmma_box_panels(kLayout);
  static constexpr int part_boxes(int part) { return !kUnified ? 1 : part == 0 ? 3 : 2; }
  static constexpr int part_bytes(int part) {
    return part_boxes(part) * kBoxPanels * kTilePanelBytes;
  }
  // First panel of box `box` of the part.
  static constexpr int part_panel(int part, int box) {
    if (!kUnified) return part % 2 * kHalfPanels;
    return part == 1 ? 2 + 2 * box : box == 0 ? 0 : 4 + 2 * box;
  }
  // The panel that comes `i`-th in the scores: those of part 0 first.
  static constexpr int key_panel(int i) { return !kUnified || i < 2 ? i : i < 4 ? i + 4 : i - 2; }

  static constexpr int kBuffers = wgmma_p_buffers(kConfig, kLayout);
  static constexpr int kSmemK = kRows * kHeadDim * kBytesPerElement;
  static constexpr int kSmemV = kSmemK + (kUnified ? 0 : kStages * kSlotBytes);
  static constexpr int kSmemP = kSmemV + kStages * kSlotBytes;
  static constexpr int kBufferBytes = kUnified ? kSlotBytes : kRows * kPanelBytes;
  static constexpr int kSmemFactors = kSmemP + (kUnified ? 0 : kBuffers * kBufferBytes);
  static constexpr int kSmemMagnitudes = kSmemFactors + kBuffers * kRows * 4;
  static constexpr int kSmemInverses = kSmemMagnitudes + 2 * kRows * 4;
  static constexpr int kSmemBarriers = kSmemInverses + kRows * 4;
  static constexpr int kNumBarriers = 2 * kStages * kParts + (kUnified ? 2 : 3) * kBuffers + 1;
  static constexpr int kSmemBytes = kSmemBarriers + kNumBarriers * 8;

  static constexpr int full(int slot, int part) {
    return kSmemBarriers + 8 * (slot * kParts + part);
  }
  static constexpr int empty(int slot, int part) { return full(kStages + slot, part); }
  static constexpr int ready(int buffer) { return full(2 * kStages, buffer); }
  static constexpr int done(int buffer) { return ready(kBuffers + buffer); }
  static constexpr int asked() { return done(kBuffers); }
  static constexpr int scored(int buffer) {
    return asked() + 8 * (1 + buffer);
  }  // separate K and V
  static constexpr int keys(int slot) { return kSmemK + slot * kSlotBytes; }
  static constexpr int values(int slot) {
    return kSmemV + slot * kSlotBytes + kValuePanel * kTilePanelBytes;
  }
  static constexpr int probabilities(int buffer) {
    return (kUnified ? kSmemK : kSmemP) + buffer * kBufferBytes;
  }

  static_assert(kSmemBytes == wgmma_smem_bytes(kConfig, kHeadDim, kLayout),
                "one formula for the size");
  static_assert(BLOCK_M == kRows && kHeadDim == kWgmmaHeadDim,
                "two warpgroups hold 64 rows of output");
  static_assert(kConfig.num_warps == kWgmmaWarps, "a producer and two consumers");
  static_assert(kLayout != KvLayout::kRing, "a box of rows does not wrap");
  static_assert(BLOCK_N == 32 || BLOCK_N == 64, "P is one panel");
  static_assert(!kUnified ||
                    kRows * kPanelBytes <= kUnifiedRotated / kPanelColumns * kTilePanelBytes,
                "P finds room in K_rot");
};

// Named barriers. All that wait at one in a round wait at the same instruction, as bar.sync demands:
// between the warpgroups, whose code differs, one waits and the other only arrives.
constexpr int kQueriesThere = 1;     // values -> scores: Q is visible
constexpr int kResultsKnown = 2;     // scores -> values: inverse sums and magnitudes of the rows
constexpr int kMagnitudesKnown = 3;  // values -> scores
constexpr int kScoresBarrier = 4;    // among the "scores"; the "values" have the next one
constexpr int kConsumers = 2 * kWarpGroupThreads;

// Pages are whole tiles, so that a tile is one box: it begins at a multiple of BLOCK_N there.
template <typename T>
__device__ __forceinline__ int first_tile_key(const SplitWork& work) {
  return is_paged(T::kKvLayout) ? work.begin / T::BLOCK_N * T::BLOCK_N : work.begin;
}

template <typename T>
__device__ __forceinline__ void init_barriers(uint32 smem) {
  for (int slot = 0; slot < T::kStages; ++slot) {
    for (int part = 0; part < T::kParts; ++part) {
      mbarrier_init(smem + T::full(slot, part), 1);
      mbarrier_init(smem + T::empty(slot, part), kWarpGroupWarps);
    }
  }
  for (int buffer = 0; buffer < T::kBuffers; ++buffer) {
    mbarrier_init(smem + T::ready(buffer), kWarpGroupWarps);
    mbarrier_init(smem + T::done(buffer), kWarpGroupWarps);
  }
  if constexpr (!T::kUnified) {
    for (int buffer = 0; buffer < T::kBuffers; ++buffer) {
      mbarrier_init(smem + T::scored(buffer), kWarpGroupWarps);
    }
  }
  mbarrier_init(smem + T::asked(), 2 * kWarpGroupWarps);
  fence_mbarrier_init();
}

// The thread that requests all tiles.
template <typename T>
struct WgmmaProducer {
  const AttentionParams& p;
  const SplitWork& work;
  uint32 smem;
  int first_key;  // of tile 0
  int num_tiles;
  bool waited;  // for the kernel in front

  // And until the queries have been asked for: behind the tiles of all slots they come 2 us later.
  __device__ __forceinline__ void wait_for_front() {
    if (waited) return;
    waited = true;
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    publish_plan<T::BLOCK_M, true>(p, work);
    if (num_tiles > 0) mbarrier_wait_parity(smem + T::asked(), 0);
  }
  template <int kPart>
  __device__ __forceinline__ void request_part(const TensorMap& map, int slot_address, int row,
                                               int block, const typename T::Place& place) {
    const uint32 full = smem + T::full(place.slot, kPart);
    mbarrier_wait_parity(smem + T::empty(place.slot, kPart), place.parity ^ 1);
    mbarrier_arrive_expect_tx(full, T::part_bytes(kPart));
#pragma unroll
    for (int box = 0; box < T::part_boxes(kPart); ++box) {
      const int panel = T::part_panel(kPart, box);
      const int at[5] = {0, row, panel, work.kv_head, block};
      const uint32 to = smem + slot_address + panel * T::kTilePanelBytes;
      cp_async_bulk_tensor_load<5>(to, &map, at, full);
    }
  }
  // Two parts: of K or of a unified slot from kFirstPart 0 on, of V from 2 on.
  template <int kFirstPart>
  __device__ __forceinline__ void request(int tile, typename T::Place& place) {
    if (tile >= num_tiles) return;
    const int begin = first_key + tile * T::BLOCK_N;
    // Before the end of the kernel in front only the first tile of K or of a unified slot, if its
    // keys are all older than it.
    const bool is_early = kFirstPart == 0 && tile == 0;
    if (!is_early || begin + T::BLOCK_N > work.kv_len - p.seqlen_q) wait_for_front();
    const TensorMap& map = kFirstPart == 0 ? p.k_map : p.v_map;
    const int slot = kFirstPart == 0 ? T::keys(place.slot) : T::values(place.slot);
    int row = begin;
    int block = work.sequence;
    if constexpr (is_paged(T::kKvLayout)) {
      const int* const pages = p.block_table + work.sequence * p.block_table_stride;
      block = pages[begin >> p.page_shift];
      row = begin & ((1 << p.page_shift) - 1);
    }
    request_part<kFirstPart>(map, slot, row, block, place);
    request_part<kFirstPart + 1>(map, slot, row, block, place);
    place.advance();
  }

  // In the order in which slots come free: one thread waits for one at a time.
  __device__ __forceinline__ void run() {
    typename T::Place key;
    if constexpr (T::kUnified) {
      for (int tile = 0; tile < num_tiles; ++tile) request<0>(tile, key);
    } else {
      typename T::Place value;
      for (int tile = 0; tile < T::kStages; ++tile) {
        request<0>(tile, key);
        request<2>(tile, value);
      }
      request<0>(T::kStages, key);
      for (int tile = T::kStages; tile < num_tiles; ++tile) {
        request<0>(tile + 1, key);
        request<2>(tile, value);
      }
    }
    wait_for_front();
  }
};

// What the consumer warpgroups have in common: 64 rows x half of the output's columns.
template <typename T, int kHalf>
struct WgmmaOutput : RowSums<T::kHalfColumns> {
  using RowSums<T::kHalfColumns>::sums;
  const AttentionParams& p;
  const SplitWork& work;
  unsigned char* memory;
  uint32 smem = smem_address(memory);
  int lane = threadIdx.x % kWarpSize;
  int warp_row = threadIdx.x % kWarpGroupThreads / kWarpSize * kMmaRows;

  __device__ __forceinline__ WgmmaOutput(const AttentionParams& params, const SplitWork& cta,
                                         unsigned char* shared)
      : p(params), work(cta), memory(shared) {}

  __device__ __forceinline__ float* factors(int buffer) const {
    return reinterpret_cast<float*>(memory + T::kSmemFactors) + buffer * T::kRows;
  }
  __device__ __forceinline__ float* inverses() const {
    return reinterpret_cast<float*>(memory + T::kSmemInverses);
  }
  // The largest magnitude of each row in a half of its columns, NaN where one is.
  __device__ __forceinline__ float* magnitudes(int half) const {
    return reinterpret_cast<float*>(memory + T::kSmemMagnitudes) + half * T::kRows;
  }
  __device__ __forceinline__ int row(int half) const { return warp_row + half * 8 + lane / 4; }

  // Both warpgroups copy; only the "scores" wait for the copies of all.
  __device__ __forceinline__ void request_queries() {
    constexpr int kChunks = T::kQueryPanels * (kPanelBytes / 16);
    constexpr int kRows = kConsumers / kChunks;
    constexpr int kCopies = T::kRows / kRows;
    static_assert(kChunks % kWarpSize == 0 && kCopies <= kWarpSize,
                  "a warp copies from one row at a time, and has a lane for each of its rows");
    const int thread = threadIdx.x - kWarpGroupThreads;
    const int first_copied = thread / kChunks;
    // Of row first_copied + lane * kRows in q; -1 is padding.
    const int packed = work.first_row + first_copied + lane * kRows;
    const int token = token_of(p, packed);
    const int head = packed - token * p.group_size;
    const int64 row_offset =
        packed < work.num_rows ? token * p.q_token_stride + head * p.q_head_stride : -1;
    griddepcontrol_wait();
    const int chunk = thread % kChunks;
    const uint16* const from = static_cast<const uint16*>(p.q) + work.batch_idx * p.q_batch_stride +
                               static_cast<int64>(work.kv_head) * p.group_size * p.q_head_stride +
                               chunk * kChunkElements;
    const uint32 panel = smem + chunk / 8 * T::kQueryPanelBytes;
#pragma unroll 4
    for (int i = 0; i < kCopies; ++i) {
      const int64 offset = __shfl_sync(0xffffffffu, row_offset, i);
      cp_async_16(panel + panel_offset(first_copied + i * kRows, chunk % 8),
                  from + (offset < 0 ? 0 : offset), offset < 0 ? 0 : 16);
    }
    cp_async_commit_group();
    warp_arrive(smem + T::asked(), lane);
  }
  __device__ __forceinline__ void wait_for_queries() {
    cp_async_wait_group<0>();
    fence_proxy_async();
    if constexpr (kHalf == 0) {
      bar_sync(kQueriesThere, kConsumers);
    } else {
      bar_arrive(kQueriesThere, kConsumers);
    }
  }
  // Rows of V beyond the end of the sequence: their P is 0, but 0 * NaN would not be. The caller
  // has waited for the part, which nobody else reads.
  __device__ __forceinline__ void clear_tail(int slot, int num_keys) {
    if (num_keys >= T::BLOCK_N) return;
    constexpr int kChunks = T::kHalfPanels * (kPanelBytes / 16);
    constexpr int kRows = kWarpGroupThreads / kChunks;
    const int thread = threadIdx.x % kWarpGroupThreads;
    const int chunk = thread % kChunks;
    unsigned char* const panel =
        memory + T::values(slot) + kHalf * T::kHalfBytes + chunk / 8 * T::kTilePanelBytes;
    for (int key = num_keys + thread / kChunks; key < T::BLOCK_N; key += kRows) {
      *reinterpret_cast<uint4*>(panel + panel_offset(key, chunk % 8)) = make_uint4(0, 0, 0, 0);
    }
    fence_proxy_async();
    bar_sync(kScoresBarrier + kHalf, kWarpGroupThreads);
  }
  __device__ __forceinline__ uint64 value_descriptor(int slot) const {
    uint64 descriptor =
        token_descriptor(smem + T::values(slot) + kHalf * T::kHalfBytes, T::kTilePanelBytes);
    opaque(descriptor);
    return descriptor;
  }
  __device__ __forceinline__ RowTarget target(int of_row) const {
    return row_target<T::BLOCK_M, 2 * T::kHalfColumns, true>(p, work, of_row, work.num_splits <= 1);
  }
  // The rows to where they go: bf16 of the only split, else packed. They are collected in the place
  // of Q, so that little code, which is cold, stores them: 128 stores from registers took 4 us [h200].
  __device__ __forceinline__ void write() const {
    const bool is_complete = work.num_splits <= 1;
    if (!is_complete) publish_magnitudes();
    // The inverse sums of a warp's rows come from itself in the "scores". When the "values" are done,
    // so are all that read Q.
    if constexpr (kHalf == 0) {
      bar_arrive(kResultsKnown, kConsumers);
      bar_sync(kMagnitudesKnown, kConsumers);
    } else {
      bar_arrive(kMagnitudesKnown, kConsumers);
      bar_sync(kResultsKnown, kConsumers);
    }
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int of = row(half);
      const bool is_row = work.first_row + of < work.num_rows;
      const float inverse = is_row ? inverses()[of] : 0.0f;
      factor[half] = inverse;
      if (is_complete) continue;
      const float most = max_nan(magnitudes(0)[of], magnitudes(1)[of]);
      factor[half] = most > 0.0f ? rcp(most) * kPackedMax : 0.0f;
      if (kHalf == 0 && lane % 4 == 0 && is_row) {
        target(of).lse[1] = most * inverse * (1.0f / kPackedMax);
      }
    }
    if (is_complete) {
      collect_rows<false>(factor);
    } else {
      collect_rows<true>(factor);
    }
    __syncwarp();
    store_rows(is_complete);
  }

 private:
  __device__ __forceinline__ void publish_magnitudes() const {
    float most[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < T::kHalfColumns / 2; ++i) {
      most[i / 2 % 2] = max_nan(most[i / 2 % 2], fabsf(sums[i]));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = max_nan(most[half], __shfl_xor_sync(0xffffffffu, most[half], 1));
      most[half] = max_nan(most[half], __shfl_xor_sync(0xffffffffu, most[half], 2));
      if (lane % 4 == 0) magnitudes(kHalf)[row(half)] = most[half];
    }
  }
  __device__ __forceinline__ uint32 collected() const {
    return smem + kHalf * T::kQueryPanels / 2 * T::kQueryPanelBytes;
  }
  // The warp's rows, panels as those of Q.
  template <bool kPacked>
  __device__ __forceinline__ void collect_rows(const float (&factor)[2]) const {
    this->collect(collected(), T::kQueryPanelBytes, warp_row, [&](float low, float high, int half) {
      if constexpr (kPacked) return pack_fixed(low, high, factor[half]);
      return cvt_bf16x2(low * factor[half], high * factor[half]);
    });
  }
  __device__ __forceinline__ void store_rows(bool is_complete) const {
    static_assert(T::kHalfColumns == kWarpSize * kChunkElements, "a warp stores a row at once");
    const int rows = min(kMmaRows, work.num_rows - work.first_row - warp_row);
    if (rows <= 0) return;
    const int column = kHalf * T::kHalfColumns + lane * kChunkElements;
    uint16* const out = static_cast<uint16*>(is_complete ? p.out : p.o_partial) +
                        (T::kUnified ? unified_value_dim(column) : column);
    const int64 offset = target(warp_row + min(lane, rows - 1)).offset;  // of a row a lane
    store_panel_rows(memory + (collected() - smem), T::kQueryPanelBytes, warp_row, rows, out,
                     offset);
  }
};

}  // namespace attune
