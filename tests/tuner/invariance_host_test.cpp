// A row of an invariant problem has the same bits however it was computed: by the real templates on
// the host device. Bugs planted in the templates are seen to be found.
#include <chrono>
#include <ctime>
#include <deque>
#include <ostream>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tests/support/invariance.h"

namespace attune {
namespace {

// Problems that are alike but for the layout, so that all of them give the same bits.
struct InvariantCase {
  const char* name;
  const char* problem;               // less layout and dtype
  std::vector<const char*> layouts;  // with their page size
  std::vector<const char*> configs;
  std::vector<int> seqlens_q;
  std::vector<int> kv_lens;
};
void PrintTo(const InvariantCase& one, std::ostream* out) { *out << one.problem; }

using ChangeSource = std::function<void(Source&)>;

// Decodes every position that the verify steps cover, then takes these steps in every layout and
// config, for one sequence and for three of different lengths.
RowBook compare_rows(const InvariantCase& one, const ChangeSource& change = {}) {
  const HostBench bench;
  std::vector<Problem> problems;
  for (const char* layout : one.layouts) {
    problems.push_back(Problem::parse(fmt::format("{}/{}/bf16", one.problem, layout)));
  }
  std::vector<KernelConfig> configs;
  for (const char* config : one.configs) configs.push_back(parse_config(config));
  const LogicalSequence sequence(problems.front(), 509);
  InvarianceRun run(*bench.device, sequence, [&](const Variant& variant) {
    Source source = attention_source(variant);
    if (change) change(source);
    return bench.compile(source);
  });

  RowBook book;
  for (const Problem& problem : problems) {
    const bool is_ring = problem.kv_layout == KvLayout::kRing;
    SequenceCache cache(*bench.device, sequence, problem,
                        is_ring ? ring_rows(problem) : problem.kv.max);
    const auto step = [&](const KernelConfig& config, int seqlen_q,
                          const std::vector<int>& kv_lens) {
      if (is_ring) cache.hold(*std::max_element(kv_lens.begin(), kv_lens.end()) + kTokensAfter);
      const int batch = static_cast<int>(kv_lens.size());
      run.run(with_tokens(problem, seqlen_q, batch), config, cache, kv_lens, book);
    };
    if (&problem == &problems.front()) {
      std::set<int> covered;
      for (const int kv_len : one.kv_lens) {
        for (int i = 0; i < one.seqlens_q.back(); ++i) covered.insert(std::max(kv_len - i, 1));
      }
      for (const int kv_len : covered) step(configs.front(), 1, {kv_len});
    }
    for (const KernelConfig& config : configs) {
      for (const int seqlen_q : one.seqlens_q) {
        for (const int kv_len : one.kv_lens) step(config, seqlen_q, {kv_len});
      }
      if (is_ring) continue;  // one ring does not hold the keys of distant positions
      for (const int seqlen_q : {1, one.seqlens_q.back()}) {
        const std::vector<int>& lens = one.kv_lens;
        step(config, seqlen_q, {lens.back(), lens.front(), lens[lens.size() / 2]});
      }
    }
  }
  return book;
}

class InvarianceHost : public testing::TestWithParam<InvariantCase> {};

TEST_P(InvarianceHost, GivesARowTheSameBitsHoweverItIsComputed) {
  const std::clock_t start = std::clock();
  const RowBook book = compare_rows(GetParam());
  EXPECT_GT(book.num_compared(), 0);
  EXPECT_EQ(book.num_differing_bits(), 0) << book.first_difference();
  std::printf("%s: compared rows=%lld differing bits=%lld processor_s=%.1f\n", GetParam().name,
              static_cast<long long>(book.num_compared()),
              static_cast<long long>(book.num_differing_bits()),
              static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
}

const std::vector<int> kAllSeqlens = {1, 2, 3, 5, 8, 16};
// Tiles of 32, chunks of 64 and pages of 16 and 32 end here; the first ones are shorter than the
// longest verify step.
const std::vector<int> kFullKvLens = {2, 7, 17, 32, 33, 63, 64, 65, 70, 97, 129, 136, 197};
// Windows of 32 and 100 begin to hide keys, the chunks are of 64, and the rings wrap.
const std::vector<int> kWindowKvLens = {1, 6, 31, 33, 40, 64, 66, 99, 101, 115, 130, 163, 205, 330};

INSTANTIATE_TEST_SUITE_P(
    Problems, InvarianceHost,
    testing::Values(InvariantCase{"d512",
                                  "decode/b1/q1/kv1-512/h4x1/d512/invariant",
                                  {"contiguous", "p16/paged"},
                                  {"m16n32s2w4", "m64n32s1w8"},
                                  kAllSeqlens,
                                  kFullKvLens},
                    InvariantCase{"d512_unified",
                                  "decode/b1/q1/kv1-512/h4x1/d512/invariant",
                                  {"unified", "p32/unified-paged"},
                                  {"m16n32s2w4", "m32n32s1w8"},
                                  kAllSeqlens,
                                  kFullKvLens},
                    InvariantCase{"d256_w32",
                                  "decode/b1/q1/kv1-512/h2x1/d256/w32/invariant",
                                  {"contiguous", "ring"},
                                  {"m16n64s2w8", "m32n64s1w4"},
                                  kAllSeqlens,
                                  kWindowKvLens},
                    InvariantCase{"d256_w100",
                                  "decode/b1/q1/kv1-512/h2x1/d256/w100/invariant",
                                  {"ring", "contiguous", "p64/paged"},
                                  {"m16n64s2w8", "m32n64s1w4"},
                                  {1, 3, 5, 16},
                                  kWindowKvLens},
                    // 16 heads have chunks of 64 keys up to 1024, of 128 from there on.
                    InvariantCase{"d64_long",
                                  "decode/b1/q1/kv1-1280/h16x16/d64/invariant",
                                  {"contiguous", "p256/paged"},
                                  {"m16n64s2w4", "m16n64s1w2"},
                                  {1, 5, 16},
                                  {1025, 1033}},
                    InvariantCase{"d128_softcap",
                                  "decode/b1/q1/kv1-512/h3x1/d128/softcap/invariant",
                                  {"contiguous", "p16/paged"},
                                  {"m16n64s2w8", "m64n64s1w4"},
                                  kAllSeqlens,
                                  {3, 63, 66, 130, 197}}),
    [](const auto& instance) { return std::string(instance.param.name); });

// One line of a template, or of the combine.
struct Change {
  const char* file;
  const char* from;
  const char* to;
};
struct Bug {
  const char* name;
  const char* problem;
  std::vector<const char*> configs;
  std::vector<int> kv_lens;
  std::vector<Change> changes;
};
void PrintTo(const Bug& bug, std::ostream* out) { *out << bug.name; }

constexpr const char* kSplit = "templates/splitkv.cuh";
constexpr const char* kWork = "templates/split_work.cuh";
constexpr const char* kCombine = "templates/combine.cuh";

class InvarianceBugs : public testing::TestWithParam<Bug> {};

TEST_P(InvarianceBugs, AreFound) {
  const Bug& bug = GetParam();
  const InvariantCase one{bug.name, bug.problem, {"contiguous"}, bug.configs, {1, 16}, bug.kv_lens};
  EXPECT_EQ(compare_rows(one).num_differing_bits(), 0) << "without the bug";
  std::deque<std::string> texts;
  const RowBook book = compare_rows(one, [&](Source& source) {
    for (const Change& change : bug.changes) {
      const auto header =
          std::find_if(source.headers.begin(), source.headers.end(),
                       [&](const EmbeddedFile& file) { return file.name == change.file; });
      ASSERT_NE(header, source.headers.end()) << change.file;
      std::string& text = texts.emplace_back(header->text);
      const std::size_t at = text.find(change.from);
      ASSERT_NE(at, std::string::npos) << "the template has changed: " << change.from;
      text.replace(at, std::string_view(change.from).size(), change.to);
      header->text = text;
    }
  });
  EXPECT_GT(book.num_differing_bits(), 0);
  std::printf("%s: %lld differing bits; %s\n", bug.name,
              static_cast<long long>(book.num_differing_bits()), book.first_difference().c_str());
}

INSTANTIATE_TEST_SUITE_P(
    Planted, InvarianceBugs,
    testing::Values(
        // A warp of one token tile sums the products of a score up in two chains.
        Bug{"two_chains_for_a_score",
            "decode/b1/q1/kv1-256/h2x1/d256/invariant",
            {"m16n64s1w8", "m32n64s1w4"},
            {70, 130},
            {{kSplit, "kInvariant ? scores[m][0] : odd[m]", "odd[m]"},
             {kSplit, "m < T::kRowTiles && !kInvariant", "m < T::kRowTiles"}}},
        Bug{"row_sums_by_warp",
            "decode/b1/q1/kv1-256/h2x1/d64/invariant",
            {"m16n64s2w4", "m32n64s1w2"},
            {70, 130},
            {{kSplit, "kSums = kInvariant ? kTokenTiles : 1", "kSums = 1"},
             {kSplit, "kRowSums = kInvariant ? BLOCK_N / kMmaTokens : kGrid.tokens",
              "kRowSums = kGrid.tokens"},
             {kSplit, "kInvariant ? warp_token / kMmaTokens + i : token_group", "token_group"}}},
        Bug{"splits_from_the_length",
            "decode/b1/q1/kv1-256/h2x1/d64/invariant",
            {"m16n64s2w4"},
            {70, 130},
            {{kWork, "if constexpr (kInvariant) {\n    const ChunkRule",
              "if constexpr (false) {\n    const ChunkRule"},
             {kCombine, "if constexpr (kInvariant) {\n    const ChunkPlan",
              "if constexpr (false) {\n    const ChunkPlan"}}},
        // The first of a window's chunks goes to warp 0, whatever its number is.
        Bug{"combine_counts_from_the_first_chunk",
            "decode/b1/q1/kv1-1024/h2x1/d64/w300/invariant",
            {"m32n64s2w4"},
            {365, 375, 690},
            {{kCombine, "first_split = (warp - plan.first_chunk % kWarps + kWarps) % kWarps;",
              "first_split = warp;"}}},
        // A maximum that stays is rounded in two ways, so a tile that a row does not see counts.
        Bug{"tile_that_is_not_seen_rescales",
            "decode/b1/q1/kv1-256/h2x1/d512/invariant",
            {"m16n32s2w4"},
            {36, 47, 110},
            {{kSplit, "scale.rescale(row_max[m][half]", "scale.probability(row_max[m][half]"}}}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace attune
