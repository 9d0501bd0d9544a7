// The promise of invariant problems on a real GPU, with the heads of Gemma 4 31B: verifying gives
// the bits that decoding gives, in every layout, at every length up to 131072.
#include <chrono>
#include <set>

#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "templates/split_plan.h"
#include "tests/support/invariance.h"
#include "tests/support/require_gpu.h"
#include "tuner/space.h"

namespace attune {
namespace {

constexpr int kMaxLen = 131072;
constexpr int kRandomLens = 200;
constexpr int kMaxTileEdge = 1024;    // later tiles are like those before
constexpr int kMaxWindowEdge = 4096;  // later chunks of a window are like those before
// A verify step around a position of interest: as many rows before it as after.
constexpr int kRowsAfter = kMaxVerifyTokens / 2;

// Problems that are alike but for the layout.
struct Layouts {
  const char* name;
  const char* problem;               // less layout and dtype
  std::vector<const char*> layouts;  // with their page size
};
void PrintTo(const Layouts& one, std::ostream* out) { *out << one.problem; }

// Lengths at which something begins or ends: the sequence, a tile, a chunk, a window; and others.
std::set<int> lengths_of_interest(const Problem& problem) {
  std::set<int> lens = {1, 2, 5, kMaxVerifyTokens, kMaxLen - kRowsAfter};
  const ChunkRule rule = chunk_rule(problem.head_dim, problem.num_kv_heads, problem.window);
  const int last_edge = problem.window > 0 ? kMaxWindowEdge : kMaxLen - kRowsAfter - 1;
  for (int chunk = 1; chunk_begin(rule, chunk) < last_edge; ++chunk) {
    lens.insert(chunk_begin(rule, chunk));
  }
  const int tile = invariant_block_n(problem.head_dim);
  for (int edge = tile; edge <= kMaxTileEdge; edge += tile) lens.insert(edge);
  if (problem.window > 0) {
    lens.insert({problem.window, problem.window + tile, 2 * problem.window});
    lens.insert({ring_rows(problem), 2 * ring_rows(problem)});  // the ring wraps
  }
  std::uint64_t state = 1;
  for (int i = 0; i < kRandomLens; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    lens.insert(1 + static_cast<int>((state >> 33) % (kMaxLen - kRowsAfter - 1)));
  }
  return lens;
}

// The default config, and the one that has the most in it that is different.
std::vector<KernelConfig> two_configs(const Problem& problem, const DeviceInfo& device) {
  const KernelConfig first = default_candidate(problem, device).config;
  const auto differences = [&](const Candidate& candidate) {
    const KernelConfig& config = candidate.config;
    return (config.block_m != first.block_m) + (config.num_stages != first.num_stages) +
           (config.num_warps != first.num_warps);
  };
  const std::vector<Candidate> kept = candidate_space(problem, device).kept;
  const auto other = std::max_element(
      kept.begin(), kept.end(),
      [&](const Candidate& a, const Candidate& b) { return differences(a) < differences(b); });
  return {first, other->config};
}

class InvarianceGpu : public GpuTest, public testing::WithParamInterface<Layouts> {
 protected:
  // One problem for each layout and seqlen_q, and the configs to be run.
  struct Step {
    Problem problem;
    std::vector<KernelConfig> configs;
  };
  std::vector<Step> steps_of(const Problem& layout) {
    std::vector<Step> steps;
    for (int seqlen_q = 1; seqlen_q <= kMaxVerifyTokens; ++seqlen_q) {
      const Problem problem = with_tokens(layout, seqlen_q);
      steps.push_back({problem, two_configs(problem, device().info())});
      for (const KernelConfig& config : steps.back().configs) {
        variants_.insert(Candidate{"splitkv", config, 1}.variant(problem));
      }
    }
    return steps;
  }

  void compile() {
    CompilePoolOptions options;
    options.compilers.nvrtc = test_nvrtc_search();
    CompilePool pool(options);
    const std::vector<Variant> variants(variants_.begin(), variants_.end());
    std::vector<CompileJob> jobs;
    for (const Variant& variant : variants) {
      jobs.push_back({jobs.size(), attention_source(variant), device().info().arch});
    }
    pool.run(std::move(jobs), [&](const CompileOutcome& outcome) {
      ASSERT_TRUE(outcome.binary) << outcome.error << outcome.log;
      binaries_.emplace(variants[outcome.id], *outcome.binary);
    });
    ASSERT_EQ(binaries_.size(), variants_.size());
  }

  std::set<Variant> variants_;
  std::map<Variant, Binary> binaries_;
};

TEST_P(InvarianceGpu, GivesARowTheSameBitsHoweverItIsComputed) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Problem> problems;
  std::vector<std::vector<Step>> steps;
  for (const char* layout : GetParam().layouts) {
    problems.push_back(Problem::parse(fmt::format("{}/{}/bf16", GetParam().problem, layout)));
    steps.push_back(steps_of(problems.back()));
  }
  ASSERT_NO_FATAL_FAILURE(compile());
  const auto compiled = std::chrono::steady_clock::now();

  const LogicalSequence sequence(problems.front());
  InvarianceRun run(device(), sequence,
                    [&](const Variant& variant) { return binaries_.at(variant); });
  std::vector<SequenceCache> caches;
  for (const Problem& problem : problems) {
    const bool is_ring = problem.kv_layout == KvLayout::kRing;
    caches.emplace_back(device(), sequence, problem, is_ring ? ring_rows(problem) : kMaxLen);
  }

  RowBook book;
  const std::set<int> lens = lengths_of_interest(problems.front());
  for (const int len : lens) {
    // Rows of other lengths lie elsewhere, or are compared with each other here.
    book.forget_rows();
    const int last = len + kRowsAfter;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      if (caches[i].is_ring()) caches[i].hold(last + kTokensAfter);
      // The longest first: it has the rows of most others.
      for (auto step = steps[i].rbegin(); step != steps[i].rend(); ++step) {
        const int seqlen_q = step->problem.seqlen_q;
        for (const KernelConfig& config : step->configs) {
          run.run(step->problem, config, caches[i], {last}, book);
          // The edge is the end of the sequence or one off, in turn.
          const int kv_len = std::max(len - 1 + static_cast<int>(run.num_launches() / 2 % 3), 1);
          run.run(step->problem, config, caches[i], {kv_len}, book);
        }
        if (seqlen_q != 1 && seqlen_q != 7) continue;
        const std::vector<int> kv_lens = {last, std::max(len - 3, 1), std::max(len / 3, 1)};
        if (caches[i].is_ring()) continue;  // does not hold the keys of the third
        run.run(with_tokens(step->problem, seqlen_q, 3), step->configs.front(), caches[i], kv_lens,
                book);
      }
    }
    ASSERT_FALSE(HasFailure()) << len;
  }
  EXPECT_EQ(book.num_differing_bits(), 0) << book.first_difference();
  EXPECT_GT(book.num_compared(), 0);
  const auto end = std::chrono::steady_clock::now();
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  std::printf(
      "%s: lengths=%zu launches=%lld compared rows=%lld differing bits=%lld "
      "variants=%zu compile_s=%.1f run_s=%.1f\n",
      GetParam().name, lens.size(), static_cast<long long>(run.num_launches()),
      static_cast<long long>(book.num_compared()),
      static_cast<long long>(book.num_differing_bits()), variants_.size(), seconds(start, compiled),
      seconds(compiled, end));
}

INSTANTIATE_TEST_SUITE_P(
    Gemma4, InvarianceGpu,
    testing::Values(Layouts{"global",
                            "decode/b1/q1/kv1-131072/h32x4/d512/invariant",
                            {"contiguous", "p16/paged", "p64/paged", "p256/paged"}},
                    Layouts{"global_unified",
                            "decode/b1/q1/kv1-131072/h32x4/d512/invariant",
                            {"unified", "p16/unified-paged", "p256/unified-paged"}},
                    Layouts{"sliding",
                            "decode/b1/q1/kv1-131072/h32x16/d256/w1024/invariant",
                            {"ring", "contiguous", "p64/paged"}}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace attune
