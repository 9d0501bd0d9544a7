// Every field of a key, changed alone, leads to another row or to none: a choice tuned for one
// thing is never replayed for another.
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "jit/compiler.h"
#include "jit/host/host_info.h"
#include "tests/cache/fixtures.h"
#include "tests/support/key_mutations.h"

namespace attune {
namespace {

using testing::sample_gpu;
using testing::sample_problem;
using testing::sample_toolchain;
using testing::sample_winner;

class CacheKey : public ::testing::Test {
 protected:
  CacheKey() { store_->put_winner(sample_gpu(), sample_winner()); }

  std::unique_ptr<TuneStore> store_ = TuneStore::open_in_memory();
};

TEST_F(CacheKey, UnchangedIsAHit) {
  const auto hit = store_->find_winner(sample_gpu(), sample_problem(), sample_toolchain());
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->match, Match::kExact);
}

TEST_F(CacheKey, EveryFieldOfTheProblemCounts) {
  for (const auto& [field, what, mutate] : problem_mutations()) {
    Problem problem = sample_problem();
    mutate(problem);
    EXPECT_NE(problem.text(), sample_problem().text()) << field;
    const auto hit = store_->find_winner(sample_gpu(), problem, sample_toolchain());
    if (what == "min") {
      // A range inside the tuned one: answered, and never as exact.
      ASSERT_TRUE(hit);
      EXPECT_EQ(hit->match, Match::kNearestShape);
      EXPECT_EQ(hit->winner.problem, sample_problem());
    } else {
      EXPECT_FALSE(hit) << field << " " << what;
    }
  }
}

TEST_F(CacheKey, EveryFieldOfAPagedProblemCounts) {
  Problem paged = sample_problem();
  paged.kv_layout = KvLayout::kPaged;
  paged.page_size = 32;
  store_->put_winner(sample_gpu(), sample_winner(paged));
  ASSERT_TRUE(store_->find_winner(sample_gpu(), paged, sample_toolchain()));
  for (const auto& [field, what, mutate] : paged_problem_mutations()) {
    Problem problem = paged;
    mutate(problem);
    EXPECT_FALSE(store_->find_winner(sample_gpu(), problem, sample_toolchain())) << field;
  }
}

TEST_F(CacheKey, EveryFieldOfALinearProblemCounts) {
  const auto expect_key = [&](const char* text, const char* candidate, const auto& mutations) {
    const Problem linear = Problem::parse(text);
    Winner winner = sample_winner(linear);
    winner.candidate = Candidate::parse(candidate);
    winner.measurements = {testing::sample_measurement(1, 3)};
    store_->put_winner(sample_gpu(), winner);
    const auto hit = store_->find_winner(sample_gpu(), linear, sample_toolchain());
    ASSERT_TRUE(hit);
    EXPECT_EQ(hit->match, Match::kExact);
    EXPECT_EQ(hit->winner.problem, linear);
    EXPECT_EQ(hit->winner.candidate, winner.candidate);
    for (const auto& [field, what, mutate] : mutations) {
      Problem problem = linear;
      mutate(problem);
      EXPECT_NE(problem.text(), linear.text()) << what;
      EXPECT_FALSE(store_->find_winner(sample_gpu(), problem, sample_toolchain())) << what;
    }
  };
  expect_key("linear/m8/n512/k256/store/bf16", "linear/m8n48s2w8/x1", linear_problem_mutations());
  expect_key("experts/m8/n512/k256/store/bf16/e128x8", "experts/m8n48s2w8/x1",
             linear_problem_mutations());
  expect_key("experts/m8/n512/k256/store/bf16/e128x8", "experts/m8n48s2w8/x1",
             expert_problem_mutations());
  // Texts of attention are as ever.
  EXPECT_EQ(sample_problem().text(), "verify/b1/q8/kv1-4096/h32x16/d256/w1024/ring/bf16");
}

TEST_F(CacheKey, EveryFieldOfTheToolchainCounts) {
  for (const auto& [field, what, mutate] : toolchain_mutations()) {
    Toolchain toolchain = sample_toolchain();
    mutate(toolchain);
    EXPECT_FALSE(store_->find_winner(sample_gpu(), sample_problem(), toolchain)) << field;
    EXPECT_TRUE(store_->measurements(sample_gpu(), sample_problem(), toolchain).empty()) << field;
  }
}

TEST_F(CacheKey, EveryFieldOfTheGpuIdentityCounts) {
  for (const auto& [field, what, mutate] : gpu_mutations()) {
    DeviceInfo gpu = sample_gpu();
    mutate(gpu);
    EXPECT_FALSE(store_->find_winner(gpu, sample_problem(), sample_toolchain())) << field << what;
    EXPECT_TRUE(store_->measurements(gpu, sample_problem(), sample_toolchain()).empty()) << field;
    EXPECT_TRUE(store_->winners(gpu.identity()).empty()) << field;
  }
}

// Two architectures of one capability, and one architecture with and without its suffix.
TEST_F(CacheKey, ArchitecturesAreToldApartWhateverElseIsEqual) {
  std::set<std::string> identities;
  std::set<Digest> keys;
  Source source;
  source.text = "kernel";
  for (const char* arch : {"sm_90", "sm_90a", "sm_120", "sm_120a", "sm_121", "host"}) {
    DeviceInfo gpu = sample_gpu();
    gpu.arch = arch;
    identities.insert(gpu.identity());
    keys.insert(source_key(source, arch, "options", "13.0"));
  }
  EXPECT_EQ(identities.size(), 6u);
  EXPECT_EQ(keys.size(), 6u);
}

TEST(BinaryKey, EveryInputCountsAndNothingElse) {
  Source source;
  source.text = "kernel";
  source.symbols = {"k"};
  source.headers = {{"a.h", "text"}};
  const auto key = [](const Source& of, const char* arch = "sm_90a", const char* options = "-O3",
                      const char* version = "13.0") {
    return source_key(of, arch, options, version);
  };
  const auto with = [&](auto change) {
    Source other = source;
    change(other);
    return key(other);
  };
  std::set<Digest> keys = {key(source),
                           with([](Source& s) { s.text = "kernel2"; }),
                           with([](Source& s) {
                             s.headers = {{"b.h", "text"}};
                           }),
                           with([](Source& s) {
                             s.headers = {{"a.h", "text2"}};
                           }),
                           with([](Source& s) { s.headers = {}; }),
                           key(source, "sm_90"),
                           key(source, "sm_90a", "-O2"),
                           key(source, "sm_90a", "-O3", "13.1")};
  EXPECT_EQ(keys.size(), 8u);
  EXPECT_EQ(with([](Source& s) { s.symbols = {"other"}; }), key(source));
  EXPECT_EQ(num_fields<Source>(), 5u);  // a new input has to be a part of the key
}

TEST_F(CacheKey, AWinnerOfTheHostNeverAnswersForAGpu) {
  const auto store = TuneStore::open_in_memory();
  const DeviceInfo host = host_device_info();
  Winner winner = sample_winner();
  winner.toolchain.compiler_version = "g++ 12.2.0";
  winner.driver_version.clear();
  store->put_winner(host, winner);
  const auto answers = [&](const DeviceInfo& device) {
    Problem narrower = winner.problem;
    narrower.kv.min = 2;
    return store->find_winner(device, winner.problem, winner.toolchain).has_value() ||
           store->find_winner(device, narrower, winner.toolchain).has_value() ||
           !store->winners(device.identity()).empty();
  };
  EXPECT_TRUE(answers(host));
  EXPECT_FALSE(answers(sample_gpu()));
  DeviceInfo alike = host;  // a GPU that differs from the host in nothing but what it runs
  alike.arch = "sm_90a";
  EXPECT_FALSE(answers(alike));
  EXPECT_FALSE(answers(host_device_info({.checks = HostChecks::kAccesses})));
}

TEST_F(CacheKey, AWinnerOfAGpuNeverAnswersForTheHost) {
  DeviceInfo host = sample_gpu();
  host.arch = "host";
  EXPECT_FALSE(store_->find_winner(host, sample_problem(), sample_toolchain()));
  EXPECT_NE(compile_options("host"), compile_options("sm_90a"));
}

TEST_F(CacheKey, WhatIsNotTheGpusIdentityDoesNotCount) {
  for (const auto& [field, what, mutate] : other_gpu_mutations()) {
    DeviceInfo gpu = sample_gpu();
    mutate(gpu);
    EXPECT_TRUE(store_->find_winner(gpu, sample_problem(), sample_toolchain())) << field;
  }
  DeviceInfo gpu = sample_gpu();
  gpu.memory_bytes += 4096;  // reserved by the driver, differs between boots
  EXPECT_TRUE(store_->find_winner(gpu, sample_problem(), sample_toolchain()));
}

TEST_F(CacheKey, MutationsAreStoredBesideEachOther) {
  std::size_t num_winners = 1;
  for (const auto& [field, what, mutate] : problem_mutations()) {
    Winner winner = sample_winner();
    mutate(winner.problem);
    if (winner.problem.op == Op::kDecode) winner.problem.seqlen_q = 1;
    winner.measurements = {testing::sample_measurement(winner.problem.kv.max, 3)};
    store_->put_winner(sample_gpu(), winner);
    EXPECT_EQ(store_->winners().size(), ++num_winners) << field;
  }
  for (const auto& [field, what, mutate] : toolchain_mutations()) {
    Winner winner = sample_winner();
    mutate(winner.toolchain);
    store_->put_winner(sample_gpu(), winner);
    EXPECT_EQ(store_->winners().size(), ++num_winners) << field;
  }
  for (const auto& [field, what, mutate] : gpu_mutations()) {
    DeviceInfo gpu = sample_gpu();
    mutate(gpu);
    store_->put_winner(gpu, sample_winner());
    EXPECT_EQ(store_->winners().size(), ++num_winners) << field << what;
  }
}

TEST_F(CacheKey, EveryFieldOfTheCandidateCounts) {
  std::vector<CandidateMeasurements> measured = {
      {testing::sample_candidate(), {testing::sample_measurement(64, 1)}}};
  for (const auto& [field, what, mutate] : candidate_mutations()) {
    Candidate candidate = testing::sample_candidate();
    mutate(candidate);
    EXPECT_NE(candidate.text(), testing::sample_candidate().text()) << field;
    measured.push_back({candidate, {testing::sample_measurement(64, 2)}});
  }
  store_->put_measurements(sample_gpu(), sample_problem(), sample_toolchain(), measured);
  EXPECT_EQ(store_->measurements(sample_gpu(), sample_problem(), sample_toolchain()).size(),
            measured.size());
}

TEST(VariantKey, EveryFieldCounts) {
  const Variant base = testing::sample_candidate().variant(sample_problem());
  Variant contiguous = base;
  contiguous.kv_layout = KvLayout::kContiguous;
  for (const auto& [field, what, mutate] : variant_mutations()) {
    Variant variant = contiguous;
    mutate(variant);
    EXPECT_NE(variant.text(), contiguous.text()) << field << what;
  }
}

TEST(VariantKey, EveryFieldOfALinearLayerCounts) {
  const Variant base = Variant::parse("linear/bf16/store/m8n48s2w8");
  for (const auto& [field, what, mutate] : linear_variant_mutations()) {
    Variant variant = base;
    mutate(variant);
    EXPECT_NE(variant.text(), base.text()) << field;
  }
}

// A new field without a change in key_mutations.h fails here.
TEST(CacheKeyCoverage, NoFieldIsForgotten) {
  auto problem_fields = fields_of(problem_mutations());
  problem_fields.merge(fields_of(paged_problem_mutations()));
  problem_fields.merge(fields_of(linear_problem_mutations()));
  problem_fields.insert("dtype");
  EXPECT_EQ(problem_fields.size(), num_fields<Problem>());
  EXPECT_EQ(num_fields<KvRange>(), 2u);
  EXPECT_EQ(fields_of(toolchain_mutations()).size(), num_fields<Toolchain>());
  auto gpu_fields = fields_of(gpu_mutations());
  gpu_fields.merge(fields_of(other_gpu_mutations()));
  EXPECT_EQ(gpu_fields.size(), num_fields<DeviceInfo>());
  EXPECT_EQ(fields_of(candidate_mutations()).size(), num_fields<Candidate>());
  EXPECT_EQ(num_fields<KernelConfig>(), 4u);
  EXPECT_EQ(num_fields<LinearShape>(),
            linear_problem_mutations().size() - 1 + expert_problem_mutations().size());
  auto variant_fields = fields_of(variant_mutations());
  variant_fields.merge(fields_of(linear_variant_mutations()));
  variant_fields.insert("dtype");
  EXPECT_EQ(variant_fields.size(), num_fields<Variant>());
}

}  // namespace
}  // namespace attune
