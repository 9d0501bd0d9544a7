// The prefill kernels of mma.sync tiles on the host device: a row has the same bits whatever chunk it came
// in.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ostream>

#include <gtest/gtest.h>

#include "templates/launch_plan.h"
#include "tests/support/host_kernels.h"

namespace attune {
namespace {

// A sequence of kPrefix tokens that are there and kTokens that are prefilled.
constexpr int kPrefix = 100;
constexpr int kTokens = 131;
constexpr int kEnd = kPrefix + kTokens;
constexpr int kRingCapacity = 192;  // the positions wrap, and no key that is seen is overwritten
constexpr std::uint16_t kNan = 0x7fff;

struct ChunkProblem {
  const char* name;
  const char* problem;  // its seqlen_q is that of the whole
  const char* config;
  const char* family = "tiled";
};
void PrintTo(const ChunkProblem& one, std::ostream* out) {
  *out << one.problem << one.family << one.config;
}

// A small whole number as bf16, so that sums of products round often but not everywhere.
class Noise {
 public:
  void fill(std::uint16_t* to, int count) {
    for (int i = 0; i < count; ++i) {
      state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
      // Sign, an exponent of 2^-3 to 2^0 and 7 bits.
      const auto bits = static_cast<std::uint16_t>(state_ >> 40);
      to[i] = static_cast<std::uint16_t>((bits & 0x807f) | (124 + (bits >> 8 & 3)) << 7);
    }
  }

 private:
  std::uint64_t state_ = 1;
};

struct Rows {
  std::vector<std::uint16_t> out;
  std::vector<float> lse;
};

// One sequence in a device's memory. Rows that hold no token are NaN.
class Sequence {
 public:
  Sequence(Device& device, const Problem& problem) : device_(device), problem_(problem) {
    const int columns = kv_row_columns(problem.kv_layout, problem.head_dim);
    const int row_size = problem.num_kv_heads * columns;
    const bool is_ring = problem.kv_layout == KvLayout::kRing;
    const int num_pages = is_paged(problem.kv_layout) ? kEnd / problem.page_size + 1 : 0;
    const int rows =
        is_ring ? kRingCapacity : std::max(kEnd + kMinRingCapacity, num_pages * problem.page_size);
    std::vector<int> pages(std::max(num_pages, 1));
    for (int i = 0; i < num_pages; ++i) pages[i] = num_pages - 1 - i;
    std::vector<std::uint16_t> k(std::size_t{1} * rows * row_size, kNan);
    std::vector<std::uint16_t> v = k;
    Noise noise;
    const int first = problem.window > 0 ? kPrefix - problem.window + 1 : 0;
    for (int position = first; position < kEnd; ++position) {
      int row = is_ring ? position % kRingCapacity : position;
      if (num_pages > 0) {
        row =
            pages[position / problem.page_size] * problem.page_size + position % problem.page_size;
      }
      noise.fill(&k[std::size_t{1} * row * row_size], row_size);
      noise.fill(&v[std::size_t{1} * row * row_size], row_size);
    }
    std::vector<std::uint16_t> q(std::size_t{1} * kTokens * token_size());
    noise.fill(q.data(), static_cast<int>(q.size()));
    q_ = upload(q);
    k_ = upload(k);
    v_ = upload(v);
    pages_ = upload(pages);
    kv_len_ = device.allocate(sizeof(int));
    params_.k = pointer(k_);
    params_.v = pointer(v_);
    params_.block_table = reinterpret_cast<const int*>(pages_.ptr());
    params_.kv_len = reinterpret_cast<const int*>(kv_len_.ptr());
    params_.k_batch_stride = std::int64_t{1} * problem.page_size * row_size;
    params_.k_token_stride = row_size;
    params_.k_head_stride = columns;
    params_.v_batch_stride = params_.k_batch_stride;
    params_.v_token_stride = params_.k_token_stride;
    params_.v_head_stride = params_.k_head_stride;
    params_.q_token_stride = params_.out_token_stride = token_size();
    params_.q_head_stride = params_.out_head_stride = problem.head_dim;
    params_.ring_capacity = is_ring ? kRingCapacity : 0;
    params_.sm_scale = 0.25f;
    params_.softcap = 4.0f;
  }

  // The rows of the sequence, prefilled in chunks of `length` tokens.
  Rows run(const AttentionKernels& kernels, const Candidate& candidate, int length) const {
    Rows rows;
    for (int first = 0; first < kTokens; first += length) {
      Problem chunk = problem_;
      chunk.seqlen_q = std::min(length, kTokens - first);
      append(kernels, candidate, chunk, first, &rows);
    }
    return rows;
  }

 private:
  int token_size() const { return problem_.num_q_heads * problem_.head_dim; }
  static const void* pointer(const DeviceMem& mem) {
    return reinterpret_cast<const void*>(mem.ptr());
  }
  template <typename T>
  DeviceMem upload(const std::vector<T>& data) const {
    DeviceMem mem = device_.allocate(data.size() * sizeof(T));
    device_.copy_to_device(mem.ptr(), std::as_bytes(std::span(data)), nullptr);
    return mem;
  }

  void append(const AttentionKernels& kernels, const Candidate& candidate, const Problem& chunk,
              int first, Rows* rows) const {
    const std::size_t size = std::size_t{1} * chunk.seqlen_q * token_size();
    const std::size_t heads = std::size_t{1} * chunk.seqlen_q * problem_.num_q_heads;
    const DeviceMem out = device_.allocate(size * sizeof(std::uint16_t));
    const DeviceMem lse = device_.allocate(heads * sizeof(float));
    const int kv_len = kPrefix + first + chunk.seqlen_q;
    device_.copy_to_device(kv_len_.ptr(), std::as_bytes(std::span(&kv_len, 1)), nullptr);
    AttentionParams params = params_;
    params.q = reinterpret_cast<const void*>(q_.ptr() + std::size_t{2} * first * token_size());
    params.out = reinterpret_cast<void*>(out.ptr());
    params.lse = reinterpret_cast<float*>(lse.ptr());
    const LaunchPlan plan = plan_launch(chunk, candidate);
    set_plan_params(chunk, plan, 0, &params);
    launch_attention(device_, kernels, plan, params, nullptr);
    rows->out.resize(rows->out.size() + size);
    device_.copy_to_host(std::as_writable_bytes(std::span(rows->out).last(size)), out.ptr(),
                         nullptr);
    rows->lse.resize(rows->lse.size() + heads);
    device_.copy_to_host(std::as_writable_bytes(std::span(rows->lse).last(heads)), lse.ptr(),
                         nullptr);
  }

  Device& device_;
  Problem problem_;
  DeviceMem q_, k_, v_, pages_, kv_len_;
  AttentionParams params_{};
};

class TiledChunks : public testing::TestWithParam<ChunkProblem> {};

TEST_P(TiledChunks, ChangeNoBit) {
  const HostBench bench;
  const Problem problem = Problem::parse(GetParam().problem);
  const Candidate candidate{GetParam().family, parse_config(GetParam().config), 1};
  const Variant variant = candidate.variant(problem);
  const AttentionKernels kernels =
      load_attention(*bench.device, bench.compile(attention_source(variant)), variant,
                     plan_launch(problem, candidate));
  const Sequence sequence(*bench.device, problem);
  const Rows whole = sequence.run(kernels, candidate, kTokens);
  const auto is_nan = [](std::uint16_t bits) { return (bits & 0x7fff) > 0x7f80; };
  ASSERT_TRUE(std::none_of(whole.out.begin(), whole.out.end(), is_nan));
  for (const int length : {1, 7, 16, 33}) {
    const Rows chunks = sequence.run(kernels, candidate, length);
    EXPECT_TRUE(chunks.out == whole.out) << length;
    EXPECT_TRUE(chunks.lse == whole.lse) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, TiledChunks,
    testing::Values(
        ChunkProblem{"d512", "prefill/b1/q131/kv1-8192/h4x1/d512/contiguous/bf16", "m64n64s1w8"},
        ChunkProblem{"d512_unified", "prefill/b1/q131/kv1-8192/h8x1/d512/unified/bf16",
                     "m64n64s2w8"},
        ChunkProblem{"d512_unified_paged",
                     "prefill/b1/q131/kv1-8192/h4x1/d512/p16/unified-paged/bf16", "m64n32s2w8"},
        ChunkProblem{"d512_paged", "prefill/b1/q131/kv1-8192/h4x1/d512/p64/paged/bf16",
                     "m32n32s1w4"},
        ChunkProblem{"d256_ring", "prefill/b1/q131/kv1-8192/h4x2/d256/w32/ring/bf16", "m64n64s1w4"},
        ChunkProblem{"d256_ring_wide", "prefill/b1/q131/kv1-8192/h4x2/d256/w48/ring/bf16",
                     "m128n64s1w8"},
        ChunkProblem{"d128_softcap", "prefill/b1/q131/kv1-8192/h3x1/d128/softcap/contiguous/bf16",
                     "m64n32s2w4"},
        ChunkProblem{"d64_window", "prefill/b1/q131/kv1-8192/h2x1/d64/w50/contiguous/bf16",
                     "m16n64s2w4"},
        ChunkProblem{"slices_unified_paged",
                     "prefill/b1/q131/kv1-8192/h4x1/d512/p16/unified-paged/bf16", "m64n32s3w8",
                     "slices"},
        ChunkProblem{"slices_ring", "prefill/b1/q131/kv1-8192/h4x2/d256/w48/ring/bf16",
                     "m128n64s4w8", "slices"}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace attune
