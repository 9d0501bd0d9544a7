#include "tuner/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "common/text.h"
#include "tests/support/fake_device.h"
#include "tuner/search.h"
#include "tuner/select.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

const std::string kResults = std::string(ATTUNE_SOURCE_DIR) + "/bench/results/";

// Times of all candidates of a problem.
using Measured = std::map<std::string, std::vector<CandidateMeasurements>>;

// candidates.csv: a line for each problem and candidate, a column for each kv_len.
Measured read_candidates() {
  std::ifstream file(kResults + "h200-2026-11-30-candidates/candidates.csv");
  Measured measured;
  std::string line;
  std::getline(file, line);
  const std::string header = line;
  const auto columns = split(header, ',');
  while (std::getline(file, line)) {
    const auto cells = split(line, ',');
    CandidateMeasurements one{Candidate::parse(cells[1]), {}};
    for (std::size_t i = 2; i < cells.size(); ++i) {
      if (cells[i].empty()) continue;
      Measurement point;
      point.kv_len = static_cast<int>(*parse_int(columns[i]));
      point.median_us = std::stod(std::string(cells[i]));
      one.points.push_back(point);
    }
    measured[std::string(cells[0])].push_back(std::move(one));
  }
  return measured;
}

// What was timed at one length, in the order of the model.
struct RankedTimes {
  std::string problem;
  int kv_len;
  std::vector<double> times_us;
  double best_us;
};

std::vector<RankedTimes> rank_all() {
  std::vector<RankedTimes> all;
  for (const auto& [text, candidates] : read_candidates()) {
    Problem problem = Problem::parse(text);
    std::map<int, std::map<Candidate, double>> by_length;
    for (const CandidateMeasurements& one : candidates) {
      for (const Measurement& point : one.points) {
        by_length[point.kv_len][one.candidate] = point.median_us;
      }
    }
    for (const auto& [kv_len, times] : by_length) {
      problem.kv = {kv_len, kv_len};
      std::vector<Candidate> candidates_there;
      for (const auto& [candidate, us] : times) candidates_there.push_back(candidate);
      RankedTimes one{text, kv_len, {}, 0};
      for (const Candidate& candidate : ranked(problem, candidates_there, fake_device_info())) {
        one.times_us.push_back(times.at(candidate));
      }
      one.best_us = *std::min_element(one.times_us.begin(), one.times_us.end());
      all.push_back(std::move(one));
    }
  }
  return all;
}

bool has_within(const RankedTimes& one, std::size_t first, double regret) {
  const auto end = one.times_us.begin() + static_cast<long>(std::min(first, one.times_us.size()));
  return *std::min_element(one.times_us.begin(), end) <= one.best_us * (1 + regret);
}

TEST(CostModel, RanksWhatWasMeasured) {
  const std::vector<RankedTimes> all = rank_all();
  ASSERT_GT(all.size(), 120u);
  const auto share = [&](int from, std::size_t first, double regret) {
    double hits = 0, count = 0;
    for (const RankedTimes& one : all) {
      if (one.kv_len < from) continue;
      ++count;
      if (has_within(one, first, regret)) ++hits;
    }
    return hits / count;
  };
  std::printf("first pick within 5%% of the best: %.0f%% of %zu lengths, from 512 keys on %.0f%%\n",
              100 * share(1, 1, 0.05), all.size(), 100 * share(512, 1, 0.05));
  std::printf("first three contain the best: %.0f%%, from 512 keys on %.0f%%\n",
              100 * share(1, 3, 0), 100 * share(512, 3, 0));
  EXPECT_GT(share(512, 1, 0.05), 0.75);
  EXPECT_GT(share(512, 3, 0), 0.78);
  EXPECT_GT(share(1, 1, 0.05), 0.72);
  EXPECT_GT(share(1, 3, 0), 0.68);
}

TEST(CostModel, KnowsWhatHasToBeSlower) {
  const DeviceInfo gpu = fake_device_info();
  const Problem problem = Problem::parse("decode/b1/q1/kv1-131072/h32x4/d512/unified/bf16");
  const auto us = [&](const char* candidate, int kv_len) {
    return predicted_us(problem, Candidate::parse(candidate), gpu, kv_len);
  };
  // A long context on few CTAs; more keys; slots that few bytes are under way in.
  EXPECT_GT(us("swapab/m8n32s1w4/x4", 131072), 2 * us("swapab/m8n32s1w4/x33", 131072));
  EXPECT_GT(us("swapab/m8n32s1w4/x33", 131072), 3 * us("swapab/m8n32s1w4/x33", 32768));
  EXPECT_GT(us("splitkv/m16n16s1w4/x33", 131072), us("splitkv/m16n16s4w4/x33", 131072));
  // No keys at all, and fewer than splits.
  EXPECT_GT(us("splitkv/m16n64s1w8/x33", 0), 0);
  EXPECT_LT(us("splitkv/m16n64s1w8/x33", 1), us("splitkv/m16n64s1w8/x33", 8192));
  // Registers that leave room for one CTA where shared memory has it for more.
  KernelResources split;
  split.registers = 255;
  const Candidate small = Candidate::parse("splitkv/m16n16s2w8/x66");
  EXPECT_GT(predicted_us(problem, small, gpu, 131072, &split),
            predicted_us(problem, small, gpu, 131072));
}

TEST(CostModel, KnowsTheRatesOfItsArchitecturesAlone) {
  DeviceInfo gpu = architecture_limits("sm_90a");
  gpu.num_sms = 132;
  const auto h200 = known_ceilings(gpu);
  ASSERT_TRUE(h200);
  EXPECT_NEAR(h200->read_bytes_per_s, 4.5e12, 0.1e12);    // measured
  EXPECT_NEAR(h200->tensor_flops_per_s, 989e12, 100e12);  // published
  EXPECT_FALSE(known_ceilings(architecture_limits("host")));
  gpu.num_sms = 0;
  EXPECT_FALSE(known_ceilings(gpu));
}

TEST(CostModel, GivesEveryCandidateOfEveryProblemATime) {
  for (const char* text : {"decode/b8/q1/kv1-65536/h32x4/d512/unified/bf16",
                           "verify/b1/q8/kv1-8192/h32x4/d512/invariant/contiguous/bf16",
                           "prefill/b1/q512/kv512-8192/h32x4/d512/contiguous/bf16",
                           "verify/b2/q4/kv1-131072/h32x16/d256/w1024/ring/bf16",
                           "decode/b1/q1/kv1-4096/h8x1/d64/p64/paged/bf16"}) {
    const Problem problem = Problem::parse(text);
    for (const char* arch : {"sm_80", "sm_90a", "sm_120", "host"}) {
      const DeviceInfo device = architecture_limits(arch);
      for (const Candidate& candidate : candidate_space(problem, device).kept) {
        for (const int kv_len : {1, problem.kv.max}) {
          const double us = predicted_us(problem, candidate, device, kv_len);
          EXPECT_TRUE(std::isfinite(us) && us > 0) << text << " " << candidate.text();
        }
      }
    }
  }
}

TEST(PlanSearch, KeepsTheDefaultAndSaysWhatItLeavesOut) {
  const Problem problem = Problem::parse("decode/b1/q1/kv1-131072/h32x4/d512/unified/bf16");
  const DeviceInfo gpu = fake_device_info();
  const CandidateSpace all = candidate_space(problem, gpu);
  std::size_t fewer = 0;
  for (const Effort effort : {Effort::kQuick, Effort::kNormal, Effort::kExhaustive}) {
    const SearchPlan plan = plan_search(problem, gpu, effort);
    const auto& kept = plan.space.kept;
    EXPECT_EQ(kept.size() + plan.space.pruned.size(), all.kept.size() + all.pruned.size());
    EXPECT_EQ(plan.default_candidate, default_candidate(problem, gpu));
    EXPECT_EQ(std::count(kept.begin(), kept.end(), plan.default_candidate), 1);
    EXPECT_GT(kept.size(), fewer) << name_of(effort);
    fewer = kept.size();
  }
  EXPECT_EQ(fewer, all.kept.size());
  const PrunedCandidate left_out = plan_search(problem, gpu, Effort::kQuick).space.pruned.back();
  EXPECT_EQ(left_out.rejection.reason, RejectReason::kSlow);
  EXPECT_NE(left_out.rejection.detail.find("effort quick tries"), std::string::npos);
}

TEST(PlanSearch, NamesTheCandidatesByADigest) {
  const DeviceInfo gpu = fake_device_info();
  const Problem problem = Problem::parse("decode/b1/q1/kv1-1024/h8x1/d128/contiguous/bf16");
  const auto digest = [&](Effort effort, std::vector<std::string> disabled) {
    return plan_search(problem, gpu, effort, disabled).digest;
  };
  EXPECT_EQ(digest(Effort::kNormal, {}), digest(Effort::kNormal, {}));
  EXPECT_NE(digest(Effort::kNormal, {}), digest(Effort::kExhaustive, {}));
  EXPECT_EQ(digest(Effort::kNormal, {"swapab"}), "");
}

TEST(CostModel, LeavesTheBestWithinEveryEffort) {
  for (const Effort effort : {Effort::kQuick, Effort::kNormal}) {
    const EffortPlan plan = plan_of(effort);
    double missed = 0, count = 0, worst = 0;
    for (const RankedTimes& one : rank_all()) {
      if (one.kv_len < 512) continue;
      const auto share = static_cast<std::size_t>(
          std::ceil(plan.share * static_cast<double>(one.times_us.size())));
      const std::size_t tried = std::max(share, plan.least_candidates);
      ++count;
      if (!has_within(one, tried, 0.02)) ++missed;
      const auto end =
          one.times_us.begin() + static_cast<long>(std::min(tried, one.times_us.size()));
      worst = std::max(worst, *std::min_element(one.times_us.begin(), end) / one.best_us - 1);
    }
    std::printf("effort %s: %.0f of %.0f lengths lose over 2%%, the worst %.1f%%\n",
                std::string(name_of(effort)).c_str(), missed, count, 100 * worst);
    EXPECT_LE(missed / count, effort == Effort::kQuick ? 0.1 : 0.0);
  }
}

// The candidates of a tune of all problems of a table; problems that differ in their range share them.
std::map<std::string, std::set<Candidate>> searched(const std::vector<Problem>& problems,
                                                    Effort effort) {
  std::map<std::string, std::set<Candidate>> all;
  for (const TuneUnit& unit : group_problems(problems)) {
    std::set<Candidate> candidates;
    for (const KvRange& range : unit.ranges) {
      Problem problem = unit.problem;
      problem.kv = range;
      const SearchPlan plan = plan_search(problem, fake_device_info(), effort);
      candidates.insert(plan.space.kept.begin(), plan.space.kept.end());
    }
    for (const KvRange& range : unit.ranges) {
      Problem problem = unit.problem;
      problem.kv = range;
      all[problem.text()] = candidates;
    }
  }
  return all;
}

// Winners of narrow ranges that were chosen from every candidate.
TEST(CostModel, KeepsTheWinnersThatItWasNotFittedTo) {
  int num_winners = 0, num_kept = 0;
  double worst = 0;
  for (const char* table : {"31b-global", "31b-sliding", "12b-global", "12b-sliding",
                            "26b-a4b-global", "26b-a4b-sliding"}) {
    std::ifstream file(kResults + "h200-2026-11-30-families/" + table + ".csv");
    std::vector<std::string> lines;
    std::vector<Problem> problems;
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      lines.push_back(line);
      problems.push_back(Problem::parse(split(line, ',')[6]));
    }
    const auto normal = searched(problems, Effort::kNormal);
    for (const std::string& one : lines) {
      const auto cells = split(one, ',');
      const std::string problem(cells[6]);
      ++num_winners;
      if (normal.at(problem).count(Candidate::parse(cells[8])) > 0) {
        ++num_kept;
        continue;
      }
      const double loss = std::stod(std::string(cells[15])) / std::stod(std::string(cells[10])) - 1;
      worst = std::max(worst, loss);
      std::printf("not tried: %s of %s; the default takes %.1f%% longer\n",
                  std::string(cells[8]).c_str(), problem.c_str(), 100 * loss);
    }
  }
  std::printf(
      "%d of %d winners are in a normal search; without one the default is at most %.1f%% slower\n",
      num_kept, num_winners, 100 * worst);
  EXPECT_GT(num_kept, num_winners * 9 / 10);
}

}  // namespace
}  // namespace attune
