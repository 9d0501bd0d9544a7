#include "tuner/space.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/device_info.h"
#include "templates/launch_plan.h"

namespace attune {
namespace {

const char* const kArchs[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"};

std::vector<Problem> problem_grid() {
  std::vector<Problem> problems;
  for (const int head_dim : {64, 128, 256, 512}) {
    for (const int seqlen_q : {1, 2, 5, 16}) {
      for (const int group_size : {1, 3, 8, 16}) {
        for (const int window : {0, 1024}) {
          Problem problem;
          problem.op = seqlen_q == 1 ? Op::kDecode : Op::kVerify;
          problem.seqlen_q = seqlen_q;
          problem.kv = {1, 131072};
          problem.num_kv_heads = 4;
          problem.num_q_heads = 4 * group_size;
          problem.head_dim = head_dim;
          problem.window = window;
          problems.push_back(problem);
        }
      }
    }
  }
  return problems;
}

bool is_kept(const CandidateSpace& space, const Candidate& candidate) {
  return std::find(space.kept.begin(), space.kept.end(), candidate) != space.kept.end();
}

const Family& splitkv() { return *find_family("splitkv"); }

TEST(CandidateSpace, GivesEveryProblemACandidateOnEveryArchitecture) {
  for (const char* arch : kArchs) {
    for (const Problem& problem : problem_grid()) {
      EXPECT_FALSE(candidate_space(problem, architecture_limits(arch)).kept.empty())
          << arch << " " << problem.text();
    }
  }
}

TEST(CandidateSpace, KeepsOnlyWhatFitsTheDevice) {
  for (const char* arch : kArchs) {
    const DeviceInfo device = architecture_limits(arch);
    for (const Problem& problem : problem_grid()) {
      const CandidateSpace space = candidate_space(problem, device);
      for (const Candidate& candidate : space.kept) {
        const LaunchPlan plan = plan_launch(problem, candidate);
        EXPECT_LE(plan.split.smem_bytes, device.max_smem_per_block_bytes) << candidate.text();
        EXPECT_LE(static_cast<int>(plan.split.block.x), device.max_threads_per_block);
        EXPECT_LE(candidate.config.block_m * problem.head_dim, 4096 * candidate.config.num_warps)
            << candidate.text();
      }
    }
  }
}

TEST(CandidateSpace, AccountsForEveryConfigOnce) {
  for (const char* text : {"decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16",
                           "verify/b1/q8/kv1-131072/h32x4/d512/contiguous/bf16"}) {
    const CandidateSpace space =
        candidate_space(Problem::parse(text), architecture_limits("sm_90a"));
    for (const Family& family : families_of(Op::kDecode)) {
      std::set<KernelConfig> kept;
      for (const Candidate& one : space.kept) {
        if (one.family == family.name) kept.insert(one.config);
      }
      std::multiset<KernelConfig> seen(kept.begin(), kept.end());
      for (const PrunedCandidate& one : space.pruned) {
        if (one.candidate.family == family.name) seen.insert(one.candidate.config);
        EXPECT_FALSE(one.rejection.detail.empty());
      }
      const auto all = family.configs(512, KvLayout::kContiguous);
      EXPECT_EQ(seen, std::multiset<KernelConfig>(all.begin(), all.end())) << family.name << text;
    }
  }
}

TEST(CandidateSpace, HasNoCandidateTwice) {
  for (const Problem& problem : problem_grid()) {
    const CandidateSpace space = candidate_space(problem, architecture_limits("sm_90a"));
    EXPECT_EQ(std::set<Candidate>(space.kept.begin(), space.kept.end()).size(), space.kept.size());
  }
}

TEST(CandidateSpace, DropsBlocksThatAreMostlyPadding) {
  const auto block_ms = [](const char* problem, std::string_view family) {
    std::set<int> found;
    for (const Candidate& one :
         candidate_space(Problem::parse(problem), architecture_limits("sm_90a")).kept) {
      if (one.family == family) found.insert(one.config.block_m);
    }
    return found;
  };
  constexpr const char* kDecode = "decode/b1/q1/kv1-4096/h8x1/d128/contiguous/bf16";
  EXPECT_EQ(block_ms(kDecode, "splitkv"), (std::set<int>{16}));
  EXPECT_EQ(block_ms(kDecode, "swapab"), (std::set<int>{8}));  // eight rows fill its products
  // 24 rows: 32 holds them, 64 is too much, 16 takes two blocks and 8 three.
  constexpr const char* kOdd = "verify/b1/q8/kv1-4096/h3x1/d128/contiguous/bf16";
  EXPECT_EQ(block_ms(kOdd, "splitkv"), (std::set<int>{16, 32}));
  EXPECT_EQ(block_ms(kOdd, "swapab"), (std::set<int>{8, 16}));
}

TEST(CandidateSpace, LeavesTheFamiliesOutThatHaveNeverBeenFaster) {
  const auto names = [](const char* problem, const char* arch) {
    std::set<std::string> found;
    const CandidateSpace space =
        candidate_space(Problem::parse(problem), architecture_limits(arch));
    for (const Candidate& one : space.kept) found.insert(one.family);
    return found;
  };
  using Names = std::set<std::string>;
  constexpr const char* kEight = "decode/b1/q1/kv1-4096/h8x1/d512/contiguous/bf16";
  EXPECT_EQ(names(kEight, "sm_90a"), (Names{"oneround", "splitkv", "swapab"}));
  EXPECT_EQ(names(kEight, "sm_80"), (Names{"splitkv"}));
  constexpr const char* k24 = "verify/b1/q3/kv1-4096/h8x1/d512/contiguous/bf16";
  EXPECT_EQ(names(k24, "sm_90a"), (Names{"splitkv", "swapab", "wgmma"}));
  EXPECT_EQ(names(k24, "sm_100a"), (Names{"splitkv", "swapab"}));
  constexpr const char* k64 = "verify/b1/q8/kv1-4096/h8x1/d512/contiguous/bf16";
  EXPECT_EQ(names(k64, "sm_90a"), (Names{"wgmma"}));
  EXPECT_EQ(names(k64, "sm_100a"), (Names{"splitkv"}));
  // No wgmma for head_dim 256 or for invariant rows.
  EXPECT_EQ(names("verify/b1/q8/kv1-4096/h8x1/d256/contiguous/bf16", "sm_90a"), (Names{"splitkv"}));
  EXPECT_EQ(names("verify/b1/q8/kv1-4096/h8x1/d512/invariant/contiguous/bf16", "sm_90a"),
            (Names{"splitkv"}));
  EXPECT_EQ(names("prefill/b1/q64/kv1-4096/h8x1/d512/contiguous/bf16", "sm_90a"),
            (Names{"slices", "splitkv", "tiled", "wgmma"}));
  constexpr const char* kChunk = "prefill/b1/q64/kv1-4096/h4x2/d256/w64/ring/bf16";
  EXPECT_EQ(names(kChunk, "sm_90a"), (Names{"slices", "splitkv", "tiled", "wgrows"}));
  EXPECT_EQ(names(kChunk, "sm_100a"), (Names{"slices", "splitkv", "tiled"}));
}

TEST(CandidateSpace, LimitsTheRowBlocksWhereALargerBlockRuns) {
  const Problem problem = Problem::parse("verify/b1/q16/kv1-4096/h8x1/d64/contiguous/bf16");
  for (const Candidate& one : candidate_space(problem, architecture_limits("sm_90a")).kept) {
    EXPECT_GE(one.config.block_m, 32) << one.text();  // 128 rows, at most 4 blocks
  }
}

TEST(CandidateSpace, KeepsTheLeastBadConfigWhenTheRegisterRuleDropsAll) {
  DeviceInfo device = architecture_limits("sm_90a");
  device.max_threads_per_block = 64;  // two warps: 16 x 512 is just within the rule
  Problem problem = Problem::parse("decode/b1/q1/kv1-4096/h8x1/d512/contiguous/bf16");
  EXPECT_FALSE(candidate_space(problem, device).kept.empty());
  device.max_threads_per_block = 32;
  EXPECT_TRUE(candidate_space(problem, device).kept.empty());  // no config of one warp
}

TEST(Prune, SaysHowMuchSharedMemoryIsMissing) {
  DeviceInfo device = architecture_limits("sm_90a");
  device.max_smem_per_block_bytes = 1000;
  const KernelConfig config{16, 64, 1, 4};
  const Problem problem = Problem::parse("decode/b1/q1/kv1-4096/h8x1/d128/contiguous/bf16");
  const auto rejection = prune(problem, splitkv(), config, device);
  ASSERT_TRUE(rejection);
  EXPECT_EQ(rejection->reason, RejectReason::kSmem);
  EXPECT_EQ(rejection->detail,
            "smem_bytes=" + std::to_string(splitkv_smem_bytes(config, 128, KvLayout::kContiguous)) +
                " limit=1000");
}

TEST(Prune, SaysWhichRegisterNumbersAreTooMuch) {
  const Problem problem = Problem::parse("verify/b1/q8/kv1-4096/h8x1/d512/contiguous/bf16");
  const auto rejection = prune(problem, splitkv(), {64, 32, 1, 4}, architecture_limits("sm_90a"));
  ASSERT_TRUE(rejection);
  EXPECT_EQ(rejection->reason, RejectReason::kRegisters);
  EXPECT_EQ(rejection->detail, "block_m=64 head_dim=512 num_warps=4: 32768 > 16384");
}

TEST(Prune, RefusesTooManyThreadsAndOldDevices) {
  const Problem problem = Problem::parse("decode/b1/q1/kv1-4096/h8x1/d256/contiguous/bf16");
  DeviceInfo device = architecture_limits("sm_80");
  device.max_threads_per_block = 128;
  const auto threads = prune(problem, splitkv(), {16, 64, 1, 8}, device);
  ASSERT_TRUE(threads);
  EXPECT_EQ(threads->detail, "threads=256 limit=128");
  device.compute_major = 7;
  device.compute_minor = 5;
  const auto old = prune(problem, splitkv(), {16, 64, 1, 4}, device);
  ASSERT_TRUE(old);
  EXPECT_EQ(old->detail, "compute_capability=75 needed=80");
}

TEST(Space, DropsWhatTheRegisterFileCannotHold) {
  constexpr int kRegistersPerSm = 65536;
  EXPECT_TRUE(fits_register_file({64, 64, 1, 8}, 512, kRegistersPerSm));
  // 128 accumulators and 128 registers a thread: compiled, it spills 1 KB and runs 10 times slower.
  EXPECT_TRUE(within_register_rule({128, 32, 1, 16}, 512));
  EXPECT_FALSE(fits_register_file({128, 32, 1, 16}, 512, kRegistersPerSm));
  const Problem problem = Problem::parse("verify/b1/q16/kv1-8192/h32x4/d512/contiguous/bf16");
  const std::vector<std::string> others = {"oneround", "swapab", "wgmma"};
  EXPECT_EQ(default_candidate(problem, architecture_limits("sm_90a"), others).config,
            (KernelConfig{64, 64, 1, 8}));
}

TEST(RegisterRule, StopsAt128AccumulatorsAThread) {
  EXPECT_TRUE(within_register_rule({64, 64, 1, 8}, 512));
  EXPECT_FALSE(within_register_rule({64, 64, 1, 4}, 512));
  EXPECT_TRUE(within_register_rule({16, 64, 1, 2}, 512));
}

TEST(SplitCaps, FillTheDeviceFirst) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const Problem problem = Problem::parse("decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16");
  // 128 KB of K/V: one CTA per SM.
  const auto caps = split_caps(problem, splitkv(), {16, 64, 1, 8}, device);
  EXPECT_EQ(caps, (std::vector<int>{device.num_sms / 4, device.num_sms / 2 / 4}));
}

TEST(SplitCaps, GoBeyondOneCtaPerSmWhereSharedMemoryAllows) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const Problem problem = Problem::parse("decode/b1/q1/kv1-131072/h32x4/d128/contiguous/bf16");
  const KernelConfig config{16, 64, 1, 4};
  ASSERT_LT(4 * (splitkv_smem_bytes(config, 128, KvLayout::kContiguous) + 1024),
            device.smem_per_sm_bytes);
  const auto caps = split_caps(problem, splitkv(), config, device);
  EXPECT_NE(std::find(caps.begin(), caps.end(), device.num_sms), caps.end());  // 4 per SM, 4 heads
}

TEST(SplitCaps, NeverCountOnTwoCtasOfACoreOfTheHost) {
  const DeviceInfo device = architecture_limits("host");
  const Problem problem = Problem::parse("decode/b1/q1/kv1-131072/h2x1/d64/contiguous/bf16");
  for (const int cap : split_caps(problem, splitkv(), {16, 64, 1, 4}, device))
    EXPECT_LE(cap, device.num_sms);
}

TEST(SplitCaps, AreOneForOneTileAndTwoASequenceForMoreCtasThanSms) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const Problem one_tile = Problem::parse("decode/b1/q1/kv1-64/h32x4/d128/contiguous/bf16");
  EXPECT_EQ(split_caps(one_tile, splitkv(), {16, 64, 1, 4}, device), std::vector<int>{1});
  const Problem wide = Problem::parse("decode/b512/q1/kv1-4096/h32x4/d128/contiguous/bf16");
  EXPECT_EQ(split_caps(wide, splitkv(), {16, 64, 1, 4}, device), (std::vector<int>{1024, 1}));
}

TEST(SplitCaps, ReachDownToOneWhereTheKeysAreFew) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const Problem problem = Problem::parse("decode/b1/q1/kv1-256/h32x4/d128/contiguous/bf16");
  EXPECT_EQ(split_caps(problem, splitkv(), {16, 64, 1, 4}, device), (std::vector<int>{4, 2, 1}));
}

TEST(SplitCaps, NeverExceedTheTilesOfAWindow) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const Problem problem = Problem::parse("decode/b1/q1/kv1-131072/h2x1/d256/w1024/ring/bf16");
  for (const int cap : split_caps(problem, splitkv(), {16, 64, 2, 4}, device)) EXPECT_LE(cap, 16);
}

TEST(DefaultCandidate, IsAlwaysInTheSpace) {
  for (const char* arch : kArchs) {
    const DeviceInfo device = architecture_limits(arch);
    for (const Problem& problem : problem_grid()) {
      const Candidate candidate = default_candidate(problem, device);
      EXPECT_TRUE(is_kept(candidate_space(problem, device), candidate))
          << arch << " " << problem.text() << " " << candidate.text();
    }
  }
}

TEST(DefaultCandidate, HoldsAllRowsInTheSmallestBlock) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const std::vector<std::string> only_splitkv = {"oneround", "swapab", "wgmma"};
  const Problem decode = Problem::parse("decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(default_candidate(decode, device).family, "swapab");
  EXPECT_EQ(default_candidate(decode, device).config.block_m, 8);
  EXPECT_EQ(default_candidate(decode, device).split_cap, device.num_sms / 4);
  EXPECT_EQ(default_candidate(decode, device, only_splitkv).config.block_m, 16);
  EXPECT_EQ(default_candidate(decode, device, only_splitkv).split_cap, device.num_sms / 4);
  const Problem verify = Problem::parse("verify/b1/q8/kv1-131072/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(default_candidate(verify, device).family, "wgmma");
  EXPECT_EQ(default_candidate(verify, device).config.block_m, 64);
  EXPECT_EQ(default_candidate(verify, device, only_splitkv).config.block_m, 64);
  // 24 rows, of which swapab is no first choice.
  const Problem few = Problem::parse("verify/b1/q3/kv1-131072/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(default_candidate(few, device).family, "wgmma");
  const Problem sliding = Problem::parse("verify/b1/q8/kv1-131072/h32x16/d256/w1024/ring/bf16");
  EXPECT_EQ(default_candidate(sliding, device).family, "swapab");   // 16 rows
  EXPECT_EQ(default_candidate(sliding, device).config.block_m, 8);  // row blocks are neighbours
  EXPECT_EQ(default_candidate(sliding, device).split_cap, 4);
  // Clusters of 8 for 16 heads do not all find room on 132 SMs.
  const Problem one = Problem::parse("decode/b1/q1/kv1-131072/h32x16/d256/w1024/ring/bf16");
  EXPECT_EQ(default_candidate(one, device).text(), "swapab/m8n32s1w4/x7");
  EXPECT_EQ(plan_launch(one, default_candidate(one, device)).split.cluster.x, 1u);
  // Few keys: a cluster with room for all of them.
  const Problem brief = Problem::parse("decode/b1/q1/kv1-1024/h32x4/d512/unified/bf16");
  EXPECT_EQ(default_candidate(brief, device).text(), "oneround/m8n32s1w4/x8");
  const Problem separate = Problem::parse("decode/b1/q1/kv1-1024/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(default_candidate(separate, device).text(), "oneround/m8n16s1w4/x16");
  // Two row blocks.
  const Problem two = Problem::parse("verify/b1/q2/kv1-1024/h32x4/d512/unified/bf16");
  EXPECT_EQ(default_candidate(two, device).text(), "oneround/m8n16s2w4/x16");
  const Problem four = Problem::parse("verify/b1/q4/kv1-1024/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(default_candidate(four, device).family, "swapab");
}

// The problems that the family is for cost the tuner no more than this.
TEST(CandidateSpace, TriesRoundsInFewWays) {
  const DeviceInfo device = architecture_limits("sm_90a");
  for (const char* text : {"decode/b1/q1/kv1-131072/h32x4/d512/unified/bf16",
                           "decode/b1/q1/kv1-8192/h32x4/d512/contiguous/bf16",
                           "decode/b1/q1/kv1-131072/h32x16/d256/w1024/ring/bf16",
                           "verify/b1/q8/kv1-131072/h32x16/d256/w1024/ring/bf16"}) {
    const Problem problem = Problem::parse(text);
    int count = 0;
    for (const Candidate& one : candidate_space(problem, device).kept) {
      if (one.family != "oneround") continue;
      ++count;
      EXPECT_LE(one.config.block_m, std::max(8, problem.num_rows())) << one.text();
    }
    EXPECT_GE(count, 1) << text;
    EXPECT_LE(count, problem.num_rows() <= 8 ? 12 : 30) << text;
  }
}

// CTAs that fill the device once, twice and half, whatever the batch; at least two for a sequence.
TEST(SplitCaps, AreThoseOfAllSequencesTogether) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const auto caps_of = [&](int batch) {
    Problem problem = Problem::parse("verify/b1/q8/kv1-65536/h32x4/d512/contiguous/bf16");
    problem.batch = batch;
    return split_caps(problem, known_family("wgmma"), {64, 64, 1, 12}, device);
  };
  EXPECT_EQ(caps_of(1), (std::vector<int>{33, 16}));
  EXPECT_EQ(caps_of(8), (std::vector<int>{33, 16, 66}));
  EXPECT_EQ(caps_of(20), (std::vector<int>{40, 33, 1, 66}));
  EXPECT_EQ(caps_of(100), (std::vector<int>{200, 1}));
}

TEST(SplitCaps, ClustersFindRoomAtOnce) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const Problem problem = Problem::parse("decode/b1/q1/kv1-131072/h32x16/d256/w1024/ring/bf16");
  const std::vector<int> caps = split_caps(problem, known_family("swapab"), {8, 32, 1, 4}, device);
  EXPECT_EQ(std::count(caps.begin(), caps.end(), 4), 1);  // 64 CTAs
  EXPECT_EQ(std::count(caps.begin(), caps.end(), 8), 0);  // 128
  EXPECT_EQ(std::count(caps.begin(), caps.end(), 16), 0);
  EXPECT_EQ(std::count(caps.begin(), caps.end(), 7), 1);
}

TEST(DefaultCandidate, NamesEveryReasonWhenNothingIsLeft) {
  DeviceInfo device = architecture_limits("sm_90a");
  device.max_smem_per_block_bytes = 1000;
  const Problem problem = Problem::parse("decode/b1/q1/kv1-4096/h8x1/d512/contiguous/bf16");
  try {
    default_candidate(problem, device);
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("limit=1000"), std::string::npos) << text;
    EXPECT_NE(text.find(problem.text()), std::string::npos) << text;
  }
}

class PruneCompiled : public testing::Test {
 protected:
  PruneCompiled() {
    KernelResources kernel;
    kernel.symbol = "splitkv_d128";
    kernel.registers = 128;
    binary_.kernels.push_back(kernel);
  }
  std::optional<Rejection> run(int num_warps) const {
    const Problem problem = Problem::parse("decode/b1/q1/kv1-4096/h8x1/d512/contiguous/bf16");
    return prune_compiled(binary_, plan_launch(problem, {"splitkv", {16, 64, 1, num_warps}, 4}),
                          architecture_limits("sm_90a"));
  }
  Binary binary_;
};

TEST_F(PruneCompiled, AcceptsACleanBinary) { EXPECT_FALSE(run(16)); }

TEST_F(PruneCompiled, RefusesSpillsAndStackFrames) {
  binary_.kernels[0].spill_load_bytes = 8;
  EXPECT_EQ(run(4)->reason, RejectReason::kSpill);
  binary_.kernels[0].spill_load_bytes = 0;
  binary_.kernels[0].stack_bytes = 16;
  EXPECT_EQ(run(4)->reason, RejectReason::kStack);
}

TEST_F(PruneCompiled, RefusesRegistersTimesThreadsOverTheFile) {
  binary_.kernels[0].registers = 129;  // handed out as 136 per thread
  EXPECT_EQ(run(16)->reason, RejectReason::kRegisters);
  EXPECT_NE(run(16)->detail.find("registers=129 num_warps=16: 69632 > 65536"), std::string::npos)
      << run(16)->detail;
  EXPECT_FALSE(run(8));
}

TEST_F(PruneCompiled, RefusesFatalNotesOnly) {
  binary_.notes = {
      "C7510: Potential Performance Loss: wgmma.mma_async instructions are serialized"};
  ASSERT_TRUE(run(4));
  EXPECT_EQ(run(4)->reason, RejectReason::kPtxasNote);
  binary_.notes = {"C7000: something harmless"};
  EXPECT_FALSE(run(4));
}

TEST(DefaultCandidate, PrefillsInTheLargestTilesThatFit) {
  const auto chosen = [](const char* arch, const char* problem) {
    return default_candidate(Problem::parse(problem), architecture_limits(arch)).text();
  };
  const char* const d512 = "prefill/b1/q2048/kv1-131072/h32x4/d512/contiguous/bf16";
  const char* const unified = "prefill/b1/q2048/kv1-131072/h32x4/d512/p64/unified-paged/bf16";
  const char* const d256 = "prefill/b1/q8192/kv1-131072/h32x16/d256/w1024/ring/bf16";
  EXPECT_EQ(chosen("sm_90a", d512), "wgmma/m64n64s1w12/x1");
  EXPECT_EQ(chosen("sm_90a", unified), "wgmma/m64n64s2w12/x1");
  EXPECT_EQ(chosen("sm_90a", d256), "wgrows/m128n64s2w12/x132");
  EXPECT_EQ(chosen("sm_100a", d512), "tiled/m64n64s1w8/x1");
  // Two of them on an SM.
  EXPECT_EQ(chosen("sm_100a", d256), "tiled/m64n64s1w4/x1");
  EXPECT_EQ(chosen("sm_80", d512), "slices/m64n64s4w8/x1");
  EXPECT_EQ(chosen("sm_80", unified), "slices/m64n64s4w8/x1");
  EXPECT_EQ(chosen("sm_80", d256), "tiled/m128n64s1w8/x1");
  for (const char* arch : {"sm_89", "sm_120"}) {
    EXPECT_EQ(chosen(arch, d512), "slices/m64n32s3w8/x1");
    EXPECT_EQ(chosen(arch, unified), "slices/m64n32s3w8/x1");
    EXPECT_EQ(chosen(arch, d256), "tiled/m64n64s1w4/x1");
  }
}

// Every prefill of every Gemma 4 on every architecture has several candidates. The default has 64 rows,
// which read K and V half as often as 32 would, and something is under way while it computes.
TEST(DefaultCandidate, PrefillsEveryGemma4OnEveryArchitecture) {
  std::vector<std::string> shapes;
  for (const char* heads : {"h32x4", "h16x1", "h16x2", "h8x1", "h8x2"}) {
    for (const char* layout : {"contiguous", "p16/paged", "unified", "p16/unified-paged"}) {
      shapes.push_back(fmt::format("{}/d512/{}", heads, layout));
    }
  }
  for (const char* heads : {"h32x16", "h16x8", "h8x1", "h8x2"}) {
    for (const char* layout : {"contiguous", "w1024/ring", "w1024/contiguous", "w1024/p16/paged"}) {
      shapes.push_back(fmt::format("{}/d256/{}", heads, layout));
    }
  }
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_100a", "sm_120"}) {
    const DeviceInfo device = architecture_limits(arch);
    for (const std::string& shape : shapes) {
      SCOPED_TRACE(fmt::format("{} {}", arch, shape));
      const Problem problem =
          Problem::parse(fmt::format("prefill/b1/q2048/kv1-131072/{}/bf16", shape));
      const CandidateSpace space = candidate_space(problem, device);
      const auto prefilling =
          std::count_if(space.kept.begin(), space.kept.end(),
                        [](const auto& one) { return !known_family(one.family).splits_keys; });
      EXPECT_GE(prefilling, 3);
      const Candidate chosen = default_candidate(problem, device);
      EXPECT_GE(chosen.config.block_m, 64) << chosen.text();
      EXPECT_LE(plan_launch(problem, chosen).split.smem_bytes, device.max_smem_per_block_bytes);
      EXPECT_TRUE(chosen.config.num_stages > 1 || !is_unified(problem.kv_layout)) << chosen.text();
    }
  }
}

// A launch has CTAs for the whole device, which take block after block, or one for each.
TEST(DefaultCandidate, HasNoMoreCtasThanRowBlocks) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const auto caps = [&](const char* problem) {
    return split_caps(Problem::parse(problem), known_family("wgrows"), {128, 64, 2, 12}, device);
  };
  EXPECT_EQ(caps("prefill/b1/q8192/kv1-131072/h32x16/d256/contiguous/bf16"),
            (std::vector{device.num_sms, 128 * 16}));
  EXPECT_EQ(caps("prefill/b2/q65/kv1-4096/h32x16/d256/contiguous/bf16"), (std::vector{64}));
  // 2^41 of them: the text of a candidate has room for 2^20.
  const char* const large = "prefill/b65535/q65536/kv1-65536/h65534x32767/d256/contiguous/bf16";
  ASSERT_EQ(caps(large), (std::vector{device.num_sms, kMaxTextNumber}));
  for (const int cap : caps(large)) {
    const Candidate candidate{"wgrows", {128, 64, 2, 12}, cap};
    EXPECT_EQ(Candidate::parse(candidate.text()), candidate);
    EXPECT_EQ(plan_launch(Problem::parse(large), candidate).split.grid.x,
              static_cast<unsigned>(cap));
  }
}

// A chunk of few rows shares its keys out among CTAs; of many rows it does not, nor in a batch.
TEST(CandidateSpace, SplitsTheKeysOfSmallChunksOnly) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const auto caps = [&](const char* problem) {
    return split_caps(Problem::parse(problem), known_family("wgmma"), {64, 64, 1, 12}, device);
  };
  EXPECT_EQ(caps("prefill/b1/q64/kv1-131072/h32x4/d512/contiguous/bf16"), (std::vector{4, 2}));
  EXPECT_EQ(caps("prefill/b1/q2048/kv1-131072/h32x4/d512/contiguous/bf16"), (std::vector{1}));
  EXPECT_EQ(caps("prefill/b4/q2048/kv1-131072/h32x4/d512/contiguous/bf16"), (std::vector{1}));
}

TEST(CandidateSpace, OfAPrefillIsSmall) {
  for (const char* const text : {"prefill/b1/q2048/kv1-131072/h32x4/d512/contiguous/bf16",
                                 "prefill/b1/q2048/kv1-131072/h32x4/d512/unified/bf16",
                                 "prefill/b1/q8192/kv1-131072/h32x16/d256/w1024/ring/bf16"}) {
    const CandidateSpace space =
        candidate_space(Problem::parse(text), architecture_limits("sm_90a"));
    const auto tiled = std::count_if(space.kept.begin(), space.kept.end(),
                                     [](const auto& one) { return one.family == "tiled"; });
    EXPECT_GE(tiled, 4) << text;
    EXPECT_LE(tiled, 40) << text;
    RecordProperty(text, fmt::format("tiled={} all={}", tiled, space.kept.size()));
  }
}

}  // namespace
}  // namespace attune
