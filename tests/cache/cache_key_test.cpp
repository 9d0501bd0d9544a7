// Every field of a key, changed alone, leads to another row or to none: a choice tuned for one
// thing is never replayed for another.
#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "jit/compiler.h"
#include "jit/host/host_info.h"
#include "tests/cache/fixtures.h"

namespace attune {
namespace {

using testing::sample_gpu;
using testing::sample_problem;
using testing::sample_toolchain;
using testing::sample_winner;

template <typename Value>
using Mutations = std::vector<std::pair<const char*, std::function<void(Value&)>>>;

const Mutations<Problem> kProblemMutations = {
    {"op", [](Problem& p) { p.op = Op::kDecode; }},
    {"batch", [](Problem& p) { p.batch = 2; }},
    {"seqlen_q up", [](Problem& p) { p.seqlen_q = 9; }},
    {"seqlen_q far down", [](Problem& p) { p.seqlen_q = 3; }},
    {"kv.min", [](Problem& p) { p.kv.min = 2; }},
    {"kv.max", [](Problem& p) { p.kv.max = 4097; }},
    {"num_q_heads", [](Problem& p) { p.num_q_heads = 64; }},
    {"num_kv_heads", [](Problem& p) { p.num_kv_heads = 8; }},
    {"head_dim", [](Problem& p) { p.head_dim = 512; }},
    {"window", [](Problem& p) { p.window = 512; }},
    {"causal", [](Problem& p) { p.causal = false; }},
    {"softcap", [](Problem& p) { p.softcap = true; }},
    {"invariant", [](Problem& p) { p.invariant = true; }},
    {"kv_layout", [](Problem& p) { p.kv_layout = KvLayout::kContiguous; }},
    {"page_size of 32",
     [](Problem& p) {
       p.kv_layout = KvLayout::kPaged;
       p.page_size = 32;
     }},
    {"page_size of 64",
     [](Problem& p) {
       p.kv_layout = KvLayout::kPaged;
       p.page_size = 64;
     }},
};

const Mutations<Toolchain> kToolchainMutations = {
    {"template_digest", [](Toolchain& t) { t.template_digest = digest_of("edited template"); }},
    {"compiler_version", [](Toolchain& t) { t.compiler_version = "13.1"; }},
    {"options", [](Toolchain& t) { t.options += " -lineinfo"; }},
};

const Mutations<DeviceInfo> kGpuMutations = {
    {"name", [](DeviceInfo& g) { g.name += " NVL"; }},
    {"arch", [](DeviceInfo& g) { g.arch = "sm_90"; }},
    {"compute_major", [](DeviceInfo& g) { g.compute_major = 10; }},
    {"compute_minor", [](DeviceInfo& g) { g.compute_minor = 1; }},
    {"num_sms", [](DeviceInfo& g) { g.num_sms = 114; }},
    {"memory_bytes", [](DeviceInfo& g) { g.memory_bytes = std::size_t{80} << 30; }},
    {"mig", [](DeviceInfo& g) { g.mig = true; }},
};

const Mutations<Candidate> kCandidateMutations = {
    {"family", [](Candidate& c) { c.family = "other"; }},
    {"block_m", [](Candidate& c) { c.config.block_m = 32; }},
    {"block_n", [](Candidate& c) { c.config.block_n = 32; }},
    {"num_stages", [](Candidate& c) { c.config.num_stages = 3; }},
    {"num_warps", [](Candidate& c) { c.config.num_warps = 4; }},
    {"split_cap", [](Candidate& c) { c.split_cap = 34; }},
};

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
  for (const auto& [field, mutate] : kProblemMutations) {
    Problem problem = sample_problem();
    mutate(problem);
    EXPECT_NE(problem.text(), sample_problem().text()) << field;
    const auto hit = store_->find_winner(sample_gpu(), problem, sample_toolchain());
    if (std::string(field) == "kv.min") {
      // A range inside the tuned one: answered, and never as exact.
      ASSERT_TRUE(hit);
      EXPECT_EQ(hit->match, Match::kNearestShape);
      EXPECT_EQ(hit->winner.problem, sample_problem());
    } else {
      EXPECT_FALSE(hit) << field;
    }
  }
}

TEST_F(CacheKey, EveryFieldOfTheToolchainCounts) {
  for (const auto& [field, mutate] : kToolchainMutations) {
    Toolchain toolchain = sample_toolchain();
    mutate(toolchain);
    EXPECT_FALSE(store_->find_winner(sample_gpu(), sample_problem(), toolchain)) << field;
    EXPECT_TRUE(store_->measurements(sample_gpu(), sample_problem(), toolchain).empty()) << field;
  }
}

TEST_F(CacheKey, EveryFieldOfTheGpuIdentityCounts) {
  for (const auto& [field, mutate] : kGpuMutations) {
    DeviceInfo gpu = sample_gpu();
    mutate(gpu);
    EXPECT_FALSE(store_->find_winner(gpu, sample_problem(), sample_toolchain())) << field;
    EXPECT_TRUE(store_->measurements(gpu, sample_problem(), sample_toolchain()).empty()) << field;
    EXPECT_TRUE(store_->winners(gpu.identity()).empty()) << field;
  }
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
  DeviceInfo gpu = sample_gpu();
  gpu.uuid = "GPU-1234";
  gpu.driver_version = "14.0";
  gpu.memory_bytes += 4096;  // reserved by the driver, differs between boots
  gpu.l2_bytes = 1;
  EXPECT_TRUE(store_->find_winner(gpu, sample_problem(), sample_toolchain()));
}

TEST_F(CacheKey, MutationsAreStoredBesideEachOther) {
  std::size_t num_winners = 1;
  for (const auto& [field, mutate] : kProblemMutations) {
    Winner winner = sample_winner();
    mutate(winner.problem);
    if (winner.problem.op == Op::kDecode) winner.problem.seqlen_q = 1;
    winner.measurements = {testing::sample_measurement(winner.problem.kv.max, 3)};
    store_->put_winner(sample_gpu(), winner);
    EXPECT_EQ(store_->winners().size(), ++num_winners) << field;
  }
  for (const auto& [field, mutate] : kToolchainMutations) {
    Winner winner = sample_winner();
    mutate(winner.toolchain);
    store_->put_winner(sample_gpu(), winner);
    EXPECT_EQ(store_->winners().size(), ++num_winners) << field;
  }
  for (const auto& [field, mutate] : kGpuMutations) {
    DeviceInfo gpu = sample_gpu();
    mutate(gpu);
    store_->put_winner(gpu, sample_winner());
    EXPECT_EQ(store_->winners().size(), ++num_winners) << field;
  }
}

TEST_F(CacheKey, EveryFieldOfTheCandidateCounts) {
  std::vector<CandidateMeasurements> measured = {
      {testing::sample_candidate(), {testing::sample_measurement(64, 1)}}};
  for (const auto& [field, mutate] : kCandidateMutations) {
    Candidate candidate = testing::sample_candidate();
    mutate(candidate);
    EXPECT_NE(candidate.text(), testing::sample_candidate().text()) << field;
    measured.push_back({candidate, {testing::sample_measurement(64, 2)}});
  }
  store_->put_measurements(sample_gpu(), sample_problem(), sample_toolchain(), measured);
  EXPECT_EQ(store_->measurements(sample_gpu(), sample_problem(), sample_toolchain()).size(),
            measured.size());
}

TEST(CacheKeyCoverage, NoFieldIsForgotten) {
  // A new field breaks these bindings: add it to the mutations above.
  const auto& [op, batch, seqlen_q, kv, num_q_heads, num_kv_heads, head_dim, window, causal,
               softcap, invariant, page_size, kv_layout, dtype] = sample_problem();
  const auto& [template_digest, compiler_version, options] = sample_toolchain();
  const auto& [family, config, split_cap] = testing::sample_candidate();
  const auto& [block_m, block_n, num_stages, num_warps] = config;
  EXPECT_EQ(dtype, DataType::kBf16);  // the only one there is, so it cannot be changed
  (void)op, (void)batch, (void)seqlen_q, (void)kv, (void)num_q_heads, (void)num_kv_heads;
  (void)head_dim, (void)window, (void)causal, (void)softcap, (void)kv_layout;
  (void)invariant, (void)page_size;
  (void)template_digest, (void)compiler_version, (void)options, (void)family, (void)split_cap;
  (void)block_m, (void)block_n, (void)num_stages, (void)num_warps;
}

}  // namespace
}  // namespace attune
