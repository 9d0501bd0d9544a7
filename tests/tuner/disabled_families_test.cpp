// Families that are switched off, and which of two families' winners serves.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/tuner/fake_attention.h"
#include "tuner/local_measure.h"
#include "tuner/select.h"
#include "tuner/space.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

const Problem kDecode = Problem::parse("decode/b1/q1/kv1-64/h2x1/d64/contiguous/bf16");
const Problem kPrefill = Problem::parse("prefill/b1/q128/kv1-4096/h4x2/d128/contiguous/bf16");

std::set<std::string> families_of(const CandidateSpace& space) {
  std::set<std::string> names;
  for (const Candidate& candidate : space.kept) names.insert(candidate.family);
  for (const PrunedCandidate& pruned : space.pruned) names.insert(pruned.candidate.family);
  return names;
}

TEST(DisabledFamilies, TakeNoPartInTheSpaceAndAreNoDefault) {
  const DeviceInfo device = architecture_limits("sm_90a");
  std::set<std::string> able;
  for (const Candidate& one : candidate_space(kPrefill, device).kept) able.insert(one.family);
  for (const Family& family : families()) {
    const std::vector<std::string> off = {std::string(family.name)};
    EXPECT_FALSE(families_of(candidate_space(kPrefill, device, off)).contains(off[0]));
    if (std::any_of(able.begin(), able.end(), [&](const auto& name) { return name != off[0]; })) {
      EXPECT_NE(default_candidate(kPrefill, device, off).family, off[0]);
    } else {
      EXPECT_THROW(default_candidate(kPrefill, device, off), InvalidArgument);
    }
  }
}

TEST(DisabledFamilies, ATuneOfNothingElseFailsWithTheirNames) {
  FakeDevice device(small_l2_device_info());
  FakeCompiles compiles;
  const auto store = TuneStore::open_in_memory();
  TuneOptions options;
  options.disabled_families = {"splitkv", "oneround", "swapab"};
  LocalMeasure measure(device);
  const TuneReport report = Tuner(&measure, *store, compiles).tune({kDecode}, options);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_NE(report.failures[0].find("disabled_families=splitkv,oneround,swapab"), std::string::npos)
      << report.failures[0];
  EXPECT_EQ(compiles.num_compiled, 0);
}

WinnerHit hit(Match match, const std::string& created_at, std::vector<double> times_us) {
  WinnerHit one{.winner = {}, .match = match, .freshness = Freshness::kFresh};
  one.winner.created_at = created_at;
  for (const double time_us : times_us) {
    Measurement& point = one.winner.measurements.emplace_back();
    point.kv_len = static_cast<int>(one.winner.measurements.size());
    point.median_us = time_us;
  }
  return one;
}

TEST(ServesBetter, ExactBeforeNearestThenTheMoreRecent) {
  const WinnerHit old_exact = hit(Match::kExact, "2025-01-01T00:00:00Z", {10, 10});
  const WinnerHit new_nearest = hit(Match::kNearestShape, "2025-01-02T00:00:00Z", {5, 5});
  EXPECT_TRUE(serves_better(old_exact, new_nearest));
  EXPECT_FALSE(serves_better(new_nearest, old_exact));
  const WinnerHit new_exact = hit(Match::kExact, "2025-01-02T00:00:00Z", {10.2, 10.2});
  EXPECT_TRUE(serves_better(new_exact, old_exact));
  EXPECT_FALSE(serves_better(old_exact, new_exact));
}

TEST(ServesBetter, TheGpusOwnBeforeThatOfAnother) {
  const WinnerHit own = hit(Match::kNearestShape, "2025-01-01T00:00:00Z", {10, 10});
  WinnerHit sibling = hit(Match::kExact, "2025-01-02T00:00:00Z", {5, 5});
  sibling.freshness = Freshness::kOtherGpu;
  EXPECT_TRUE(serves_better(own, sibling));
  EXPECT_FALSE(serves_better(sibling, own));
}

TEST(ServesBetter, AnOlderWinnerThatIsClearlyFasterEverywhereStays) {
  const WinnerHit older = hit(Match::kExact, "2025-01-01T00:00:00Z", {10, 10});
  const WinnerHit slower = hit(Match::kExact, "2025-01-02T00:00:00Z", {12, 11});
  EXPECT_TRUE(serves_better(older, slower));
  EXPECT_FALSE(serves_better(slower, older));
  // Slower at one end only: another choice, not a worse one.
  const WinnerHit mixed = hit(Match::kExact, "2025-01-02T00:00:00Z", {12, 9});
  EXPECT_TRUE(serves_better(mixed, older));
  // Not timed at the same points: nothing to compare.
  const WinnerHit elsewhere = hit(Match::kExact, "2025-01-02T00:00:00Z", {12, 12, 12});
  EXPECT_TRUE(serves_better(elsewhere, older));
}

}  // namespace
}  // namespace attune
