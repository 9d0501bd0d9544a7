#include "cli/explain_report.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/workplace.h"
#include "tests/cli/made_up_results.h"
#include "tests/support/key_mutations.h"
#include "tuner/timer.h"

namespace attune {
namespace {

struct Cache {
  std::unique_ptr<TuneStore> store = TuneStore::open_in_memory();
  Explanation explain(const std::string& problem, const DeviceInfo& gpu = made_up_gpu(),
                      const std::string& nvrtc = kNvrtc) const {
    return attune::explain(Scene::of(*store, gpu, Problem::parse(problem), nvrtc));
  }
};

TEST(Explain, NamesTheExactWinnerAndRanksTheTimedCandidates) {
  const Cache cache;
  const Winner winner = store_made_up_winner(*cache.store);
  const Explanation explanation = cache.explain(kTuned);
  EXPECT_EQ(explanation.match, "exact");
  EXPECT_EQ(explanation.candidate, winner.candidate.text());
  EXPECT_TRUE(explanation.misses.empty());
  ASSERT_GE(explanation.candidates.size(), 3U);
  EXPECT_EQ(explanation.candidates[0].candidate, winner.candidate);
  EXPECT_EQ(explanation.candidates[0].worst_regret, 0.0);
  EXPECT_NEAR(explanation.candidates[1].worst_regret.value(), 0.1, 1e-9);
  const std::string text = explain_text(explanation);
  EXPECT_NE(text.find("5.00 +/- 0.11"), std::string::npos) << text;
  EXPECT_NE(text.find("rejected: wrong_result: relative_l2=0.5 limit=0.0025"), std::string::npos);
  EXPECT_NE(text.find("would serve " + winner.candidate.text() + " (exact)"), std::string::npos);
}

TEST(Explain, ShowsTheEvidenceOfTheWinner) {
  const Cache cache;
  Winner winner = store_made_up_winner(*cache.store);
  winner.margin_default_low = 0.18;
  winner.effort = "quick";
  for (Measurement& point : winner.measurements) {
    point.num_dropped = 1;
    point.sm_clock_mhz = 1980;
    point.memory_clock_mhz = 3201;
  }
  winner.measurements[3].sm_clock_mhz = 1755;
  winner.measurements[3].throttle = "power";
  winner.measurements[3].provisional = true;
  cache.store->put_winner(made_up_gpu(), winner);
  const Explanation explanation = cache.explain(kTuned);
  const std::string text = explain_text(explanation);
  const std::string method = fmt::format("method {}, effort quick", kTimingMethod);
  for (const std::string_view part :
       {std::string_view("21.0%, at least 18.0% with 99.9% confidence"), std::string_view(method),
        std::string_view("13 dropped"), std::string_view("clocks 1755 MHz, memory 3201 MHz"),
        std::string_view("held back by power"), std::string_view("provisional: other processes")}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const Json json = explain_json(explanation);
  EXPECT_EQ(json["winner"]["provisional"], true);
  EXPECT_EQ(json["winner"]["effort"], "quick");
  EXPECT_EQ(json["winner"]["margin_default_low"], 0.18);
  EXPECT_EQ(json["winner"]["measurements"][3]["throttle"], "power");
  EXPECT_EQ(json["winner"]["measurements"][3]["sm_clock_mhz"], 1755);
  EXPECT_EQ(json["winner"]["measurements"][0]["dropped_samples"], 1);
  EXPECT_EQ(json["winner"]["measurements"][0]["provisional"], false);
}

TEST(Explain, SaysWhyABetterNumberDidNotWin) {
  const Cache cache;
  Winner winner = store_made_up_winner(*cache.store);
  winner.default_candidate = winner.candidate.text();
  winner.margin_runner_up = -0.04;
  cache.store->put_winner(made_up_gpu(), winner);
  const std::string text = explain_text(cache.explain(kTuned));
  EXPECT_NE(
      text.find(winner.runner_up + " has 4.0% less of worst regret, but is not surely faster"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("over the default"), std::string::npos);
}

TEST(Explain, RanksWhatWasNotTimed) {
  const Cache cache;
  const Explanation explanation = cache.explain(kTuned);
  EXPECT_FALSE(explanation.winner);
  EXPECT_EQ(explain_json(explanation)["winner"], nullptr);
  EXPECT_NE(explain_text(explanation).find("not timed, rank 1 by the cost model"),
            std::string::npos);
}

TEST(Explain, NamesTheNearestProblemAndWhatDiffers) {
  const Cache cache;
  store_made_up_winner(*cache.store);
  const Explanation explanation = cache.explain("decode/b1/q1/kv1-1024/h8x2/d128/contiguous/bf16");
  EXPECT_EQ(explanation.match, "nearest");
  EXPECT_NE(explanation.reason.find(kTuned), std::string::npos);
  EXPECT_NE(explanation.reason.find("kv is 1-4096, not 1-1024"), std::string::npos)
      << explanation.reason;
}

TEST(Explain, FallsBackToTheDefaultAndNamesTheField) {
  const Cache cache;
  store_made_up_winner(*cache.store);
  const std::string asked = "decode/b1/q1/kv1-4096/h8x2/d128/softcap/contiguous/bf16";
  const Explanation explanation = cache.explain(asked);
  EXPECT_EQ(explanation.match, "default");
  EXPECT_EQ(explanation.candidate, default_candidate(Problem::parse(asked), made_up_gpu()).text());
  ASSERT_EQ(explanation.misses.size(), 1U);
  EXPECT_EQ(explanation.misses[0], std::string(kTuned) + ": softcap is false, not true");
  EXPECT_EQ(explanation.tune_command, "attune tune --problem '" + asked + "'");
}

TEST(Explain, SaysWhenOnlyTheToolchainOrTheGpuDiffers) {
  const Cache cache;
  store_made_up_winner(*cache.store);
  const Explanation other_nvrtc = cache.explain(kTuned, made_up_gpu(), "12.8");
  EXPECT_EQ(other_nvrtc.match, "default");
  EXPECT_EQ(other_nvrtc.misses.at(0), std::string(kTuned) + ": nvrtc is 99.9, not 12.8");
  const Explanation other_gpu = cache.explain(kTuned, made_up_gpu("NVIDIA H100"));
  EXPECT_EQ(other_gpu.match, "default");
  EXPECT_NE(other_gpu.misses.at(0).find("gpu is NVIDIA H200, not NVIDIA H100"), std::string::npos);
}

TEST(Explain, AcceptsAnyNvrtcOfTheCacheWhereThereIsNone) {
  const Cache cache;
  store_made_up_winner(*cache.store);
  EXPECT_EQ(cache.explain(kTuned, made_up_gpu(), "").match, "exact");
}

TEST(Explain, TellsStaleWinners) {
  const Cache cache;
  store_made_up_winner(*cache.store);
  DeviceInfo gpu = made_up_gpu();
  gpu.driver_version = "14.0";
  EXPECT_NE(cache.explain(kTuned, gpu).reason.find("timed with driver 13.0, this is 14.0"),
            std::string::npos);
}

TEST(Explain, ListsEveryPrunedCandidateWithItsReason) {
  const Cache cache;
  const std::string asked = "verify/b1/q16/kv1-1024/h32x4/d512/contiguous/bf16";
  const Explanation explanation = cache.explain(asked);
  const CandidateSpace space = candidate_space(Problem::parse(asked), made_up_gpu());
  EXPECT_EQ(explanation.candidates.size(), space.kept.size() + space.pruned.size());
  const auto num_pruned = std::count_if(
      explanation.candidates.begin(), explanation.candidates.end(),
      [](const auto& row) { return row.rejected && row.rejected->stage == Stage::kPrune; });
  EXPECT_EQ(static_cast<std::size_t>(num_pruned), space.pruned.size());
  EXPECT_GT(num_pruned, 0);
  EXPECT_NE(explain_text(explanation).find("pruned: smem: smem_bytes="), std::string::npos);
}

TEST(Explain, WritesTheSameAsJson) {
  const Cache cache;
  store_made_up_winner(*cache.store);
  const Json json = explain_json(cache.explain(kTuned));
  EXPECT_EQ(json["match"], "exact");
  EXPECT_EQ(json["gpu"]["name"], "NVIDIA H200");
  EXPECT_EQ(json["candidates"][0]["measurements"].size(), 13U);
  EXPECT_EQ(json["candidates"][0]["rejected"], nullptr);
  EXPECT_EQ(json["candidates"][0]["fate"], "timed");
  EXPECT_EQ(json["candidates"].back()["fate"].get<std::string>().substr(0, 7), "pruned:");
}

TEST(DifferingFields, AreNoneForEqualProblemsAndFindEveryField) {
  const Problem base = Problem::parse(kTuned);
  EXPECT_TRUE(differing_fields(base, base).empty());
  Problem other = Problem::parse("verify/b2/q3/kv2-99/h12x3/d64/w128/full/softcap/ring/bf16");
  EXPECT_EQ(differing_fields(base, other).size(), 11U);
}

TEST(Explain, SumsUpWhyCandidatesWereDropped) {
  const Candidate a = Candidate::parse("splitkv/m16n64s2w8/x1");
  const Candidate b = Candidate::parse("splitkv/m16n64s2w8/x2");
  std::vector<CandidateRow> rows(5);
  for (CandidateRow& row : rows) row.candidate = b;
  rows[0].candidate = a;
  rows[0].rejected = RejectionRecord{a, Stage::kVerify, {RejectReason::kWrongResult, "l2=0.5"}};
  rows[1].rejected = RejectionRecord{b, Stage::kPrune, {RejectReason::kSmem, "first"}};
  rows[2].rejected = RejectionRecord{b, Stage::kPrune, {RejectReason::kSmem, "second"}};
  rows[3].rejected = RejectionRecord{b, Stage::kCompile, {RejectReason::kCompile, "error"}};
  const auto causes = causes_of(rows);
  ASSERT_EQ(causes.size(), 3U);
  EXPECT_EQ(causes[0].cause, "prune: smem");
  EXPECT_EQ(causes[0].count, 2U);
  EXPECT_EQ(causes[0].example, b.text() + ": first");
  EXPECT_EQ(causes[1].cause, "verify: wrong_result");
  EXPECT_EQ(causes[1].example, a.text() + ": l2=0.5");
  EXPECT_EQ(causes[2].cause, "compile: compile");
}

TEST(Explain, NamesTheFieldThatAloneDiffers) {
  const Problem base = Problem::parse("verify/b1/q8/kv1-4096/h32x16/d256/w1024/ring/bf16");
  const auto expect_named = [&](const Problem& asked, const Problem& tuned,
                                const std::string& field) {
    const auto differences = differing_fields(asked, tuned);
    ASSERT_EQ(differences.size(), 1U) << field;
    EXPECT_TRUE(differences[0].starts_with(field + " is ")) << differences[0];
  };
  for (const auto& [field, what, mutate] : problem_mutations()) {
    Problem asked = base;
    mutate(asked);
    expect_named(asked, base, field);
  }
  Problem paged = base;
  paged.kv_layout = KvLayout::kPaged;
  paged.page_size = 32;
  for (const auto& [field, what, mutate] : paged_problem_mutations()) {
    Problem asked = paged;
    mutate(asked);
    expect_named(asked, paged, field);
  }
  const Problem linear = Problem::parse("linear/m8/n512/k256/store/bf16");
  for (const auto& [field, what, mutate] : linear_problem_mutations()) {
    Problem asked = linear;
    mutate(asked);
    expect_named(asked, linear, what);
  }
  const Problem experts = Problem::parse("experts/m8/n512/k256/store/bf16/e128x8");
  for (const auto& [field, what, mutate] : expert_problem_mutations()) {
    Problem asked = experts;
    mutate(asked);
    expect_named(asked, experts, what);
  }
}

TEST(Explain, NamesThePartOfTheGpuThatAloneDiffers) {
  const Cache cache;
  store_made_up_winner(*cache.store);
  for (const auto& [field, what, mutate] : gpu_mutations()) {
    DeviceInfo gpu = made_up_gpu();
    mutate(gpu);
    const auto reasons =
        miss_reasons(Scene::of(*cache.store, gpu, Problem::parse(kTuned), kNvrtc), 1);
    ASSERT_EQ(reasons.size(), 1U) << field;
    const std::string name = field == "name"                 ? "gpu is "
                             : field.starts_with("compute_") ? "compute capability is "
                                                             : field + " is ";
    EXPECT_NE(reasons[0].find(": " + name), std::string::npos) << reasons[0];
  }
}

TEST(DeviceOfIdentity, ReadsBackWhatTheCacheStores) {
  const DeviceInfo gpu = made_up_gpu();
  const auto read = device_of_identity(gpu.identity());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->identity(), gpu.identity());
  EXPECT_EQ(read->max_smem_per_block_bytes, gpu.max_smem_per_block_bytes);
  EXPECT_FALSE(device_of_identity(""));
  EXPECT_FALSE(device_of_identity("a|sm_1|1.0|1|1|0"));
  EXPECT_FALSE(device_of_identity("a|sm_90a|9.0|x|1|0"));
}

}  // namespace
}  // namespace attune
