#include "templates/family.h"
#include "templates/wgrows_config.h"

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "common/error.h"
#include "templates/expert_params.h"

namespace attune {
namespace {

constexpr const char* kProblem = "decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16";

// Expects an InvalidArgument that quotes the text and says which form is right.
template <typename Parse>
void expect_refused(Parse parse, const std::string& text) {
  try {
    parse(text);
    ADD_FAILURE() << "accepted '" << text << "'";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("cannot read the "), std::string::npos) << message;
    EXPECT_NE(message.find("; the form is "), std::string::npos) << message;
    EXPECT_NE(message.find("BLOCK_M"), std::string::npos) << message;
  }
}

TEST(ConfigText, IsGoldenAndRoundTrips) {
  const KernelConfig config{.block_m = 16, .block_n = 64, .num_stages = 2, .num_warps = 8};
  EXPECT_EQ(text_of(config), "m16n64s2w8");
  EXPECT_EQ(parse_config("m16n64s2w8"), config);
}

TEST(ConfigText, RefusesAnyOtherText) {
  for (const char* text : {"", "m16", "m16n64s2", "m16n64s2w", "n64m16s2w8", "m16n64s2w8x",
                           "M16n64s2w8", "m16n64s2w08", "m016n64s2w8", "m-16n64s2w8", "m 16n64s2w8",
                           "m16n64s2w9999999999", " m16n64s2w8"}) {
    expect_refused(parse_config, text);
  }
}

TEST(CandidateText, IsGoldenAndRoundTrips) {
  const Candidate candidate{"splitkv", {16, 64, 2, 8}, 33};
  EXPECT_EQ(candidate.text(), "splitkv/m16n64s2w8/x33");
  EXPECT_EQ(Candidate::parse(candidate.text()), candidate);
}

TEST(CandidateText, RefusesAnyOtherText) {
  for (const char* text :
       {"", "splitkv", "splitkv/m16n64s2w8", "splitkv/m16n64s2w8/33", "splitkv/m16n64s2w8/x",
        "splitkv/m16n64s2w8/x0", "splitkv/m16n64s2w8/x-1", "splitkv/m16n64s2w8/x033",
        "splitkv/m16n64s2w8/x33/", "splitkv/x33/m16n64s2w8", "splitkv//x33",
        "splitkv/m16n64s2w8/x1048577", "splitkv/m16n64s1048577w8/x1"}) {
    expect_refused(Candidate::parse, text);
  }
}

TEST(VariantText, IsGoldenAndRoundTrips) {
  Variant variant{"splitkv",       512,           KvLayout::kContiguous, false, false,
                  DataType::kBf16, {16, 64, 2, 8}};
  EXPECT_EQ(variant.text(), "splitkv/d512/contiguous/bf16/m16n64s2w8");
  EXPECT_EQ(Variant::parse(variant.text()), variant);
  variant.softcap = true;
  variant.kv_layout = KvLayout::kRing;
  variant.head_dim = 256;
  EXPECT_EQ(variant.text(), "splitkv/d256/ring/bf16/softcap/m16n64s2w8");
  EXPECT_EQ(Variant::parse(variant.text()), variant);
  variant.invariant = true;
  EXPECT_EQ(variant.text(), "splitkv/d256/ring/bf16/softcap/invariant/m16n64s2w8");
  EXPECT_EQ(Variant::parse(variant.text()), variant);
  variant.invariant = false;
  variant.shared_slots = true;
  EXPECT_EQ(variant.text(), "splitkv/d256/ring/bf16/softcap/shared/m16n64s2w8");
  EXPECT_EQ(Variant::parse(variant.text()), variant);
  for (const KvLayout layout : kKvLayouts) {
    variant.kv_layout = layout;
    EXPECT_EQ(Variant::parse(variant.text()), variant);
  }
}

TEST(VariantText, RefusesAnyOtherText) {
  for (const char* text :
       {"", "splitkv/d512/contiguous/bf16", "splitkv/512/contiguous/bf16/m16n64s2w8",
        "splitkv/d0512/contiguous/bf16/m16n64s2w8", "splitkv/d512/pages/bf16/m16n64s2w8",
        "splitkv/d512/contiguous/fp8/m16n64s2w8", "splitkv/d512/contiguous/bf16/cap/m16n64s2w8",
        "splitkv/d512/contiguous/bf16/m16n64s2",
        "splitkv/d512/contiguous/bf16/m16n64s2w8/softcap"}) {
    expect_refused(Variant::parse, text);
  }
}

TEST(Candidate, HasTheVariantOfItsProblem) {
  const Candidate candidate{"splitkv", {16, 64, 2, 8}, 33};
  EXPECT_EQ(candidate.variant(Problem::parse(kProblem)).text(),
            "splitkv/d512/contiguous/bf16/m16n64s2w8");
  const Problem capped = Problem::parse("verify/b2/q4/kv9/h8x2/d256/w512/softcap/ring/bf16");
  EXPECT_EQ(candidate.variant(capped).text(), "splitkv/d256/ring/bf16/softcap/shared/m16n64s2w8");
}

TEST(KernelConfig, IsOrderedFieldByField) {
  EXPECT_LT((KernelConfig{16, 128, 4, 16}), (KernelConfig{32, 16, 1, 2}));
  EXPECT_LT((KernelConfig{16, 16, 4, 16}), (KernelConfig{16, 32, 1, 2}));
  EXPECT_LT((KernelConfig{16, 16, 1, 16}), (KernelConfig{16, 16, 2, 2}));
  EXPECT_LT((KernelConfig{16, 16, 1, 2}), (KernelConfig{16, 16, 1, 4}));
}

TEST(Families, AreFoundByNameAndHaveDifferentNames) {
  std::set<std::string_view> names;
  for (const Family& family : families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_EQ(find_family(family.name), &family);
    EXPECT_GE(family.min_compute_capability, 80);
  }
  EXPECT_NE(find_family("splitkv"), nullptr);
  EXPECT_EQ(find_family("splitk"), nullptr);
  EXPECT_EQ(find_family(""), nullptr);
}

TEST(Families, OfferDistinctConfigsThatTheySupportThemselves) {
  for (const Family& family : families_of(Op::kDecode)) {
    for (const int head_dim : {64, 128, 256, 512}) {
      Problem problem = Problem::parse(kProblem);
      problem.op = family.splits_keys ? Op::kVerify : Op::kPrefill;
      problem.head_dim = head_dim;
      while (problem.num_rows() < family.least_rows) ++problem.seqlen_q;
      const auto configs = family.configs(head_dim, KvLayout::kContiguous);
      // Made for one head_dim, or for wide ones.
      const bool is_narrow = (family.name == "wgrows" && head_dim != kWgrowsHeadDim) ||
                             (family.has_slices && head_dim < 2 * kSliceColumns);
      if (is_narrow || (family.name == "wgmma" && head_dim != kWgmmaHeadDim)) {
        EXPECT_TRUE(configs.empty()) << head_dim;
        continue;
      }
      // Searched with full shared memory alone.
      const bool is_full = family.fills_sm || family.is_persistent;
      EXPECT_GE(configs.size(), is_full ? 1u : 6u) << family.name << " head_dim=" << head_dim;
      const std::set<std::string> texts = [&] {
        std::set<std::string> all;
        for (const KernelConfig& config : configs) all.insert(text_of(config));
        return all;
      }();
      EXPECT_EQ(texts.size(), configs.size());
      for (const KernelConfig& config : configs) {
        EXPECT_FALSE(family.supports(problem, config)) << text_of(config);
      }
    }
  }
}

TEST(Families, RefuseConfigsThatTheTemplateCannotTakeWithTheNumbers) {
  const Family& family = *find_family("splitkv");
  // 16 warps have one 16x16 tile each to share: only two 16x8 tiles.
  const auto too_many_warps = family.static_limits({16, 16, 2, 16}, 512, KvLayout::kContiguous);
  ASSERT_TRUE(too_many_warps);
  EXPECT_NE(too_many_warps->detail.find("16"), std::string::npos) << too_many_warps->detail;
  const auto too_few_threads = family.static_limits({128, 32, 1, 2}, 64, KvLayout::kContiguous);
  ASSERT_TRUE(too_few_threads);
  EXPECT_NE(too_few_threads->detail.find("block_m=128 is above the 64 threads"), std::string::npos);
  EXPECT_TRUE(family.static_limits({0, 64, 1, 8}, 64, KvLayout::kContiguous));
  EXPECT_TRUE(family.static_limits({16, 64, 1 << 20, 8}, 512, KvLayout::kContiguous));
  EXPECT_TRUE(family.static_limits({16, 256, 1, 8}, 128, KvLayout::kContiguous));
  const auto too_narrow = family.static_limits({64, 64, 2, 8}, 64, KvLayout::kContiguous);
  ASSERT_TRUE(too_narrow);
  EXPECT_NE(too_narrow->detail.find("head_dim=64"), std::string::npos) << too_narrow->detail;
}

// The reasons why `wgmma` cannot be instantiated, or is not for a problem.
TEST(Families, RefuseWhatTwoWarpgroupsCannotShare) {
  const Family& family = *find_family("wgmma");
  const auto reason = [&](const KernelConfig& config, int head_dim, KvLayout layout) {
    const auto limit = family.static_limits(config, head_dim, layout);
    return limit ? limit->detail : "none";
  };
  const auto contiguous = KvLayout::kContiguous;
  EXPECT_EQ(reason({64, 64, 1, 12}, 512, contiguous), "none");
  EXPECT_EQ(reason({64, 32, 2, 12}, 512, KvLayout::kPaged), "none");
  EXPECT_EQ(reason({64, 64, 2, 12}, 512, KvLayout::kUnified), "none");
  EXPECT_NE(reason({64, 64, 1, 12}, 256, contiguous).find("head_dim=256"), std::string::npos);
  EXPECT_NE(reason({32, 64, 1, 12}, 512, contiguous).find("block_m=32"), std::string::npos);
  EXPECT_NE(reason({64, 64, 1, 8}, 512, contiguous).find("num_warps=8"), std::string::npos);
  EXPECT_NE(reason({64, 128, 1, 12}, 512, contiguous).find("block_n=128"), std::string::npos);
  EXPECT_NE(reason({64, 64, 1, 12}, 512, KvLayout::kRing).find("ring"), std::string::npos);
  EXPECT_NE(reason({64, 64, 1, 12}, 512, KvLayout::kUnified).find("num_stages=1"),
            std::string::npos);

  const auto refusal = [&](const char* problem, const KernelConfig& config) {
    const auto limit = family.supports(Problem::parse(problem), config);
    return limit ? limit->detail : "none";
  };
  constexpr KernelConfig kConfig{64, 64, 2, 12};
  EXPECT_EQ(refusal("verify/b1/q8/kv9/h8x1/d512/p64/unified-paged/bf16", kConfig), "none");
  EXPECT_NE(refusal("verify/b1/q8/kv9/h8x1/d512/p32/unified-paged/bf16", kConfig).find("32 rows"),
            std::string::npos);
  EXPECT_EQ(refusal("verify/b1/q3/kv9/h8x1/d512/p64/unified-paged/bf16", kConfig), "none");
  EXPECT_NE(refusal("verify/b1/q2/kv9/h8x1/d512/p64/unified-paged/bf16", kConfig).find("rows=16"),
            std::string::npos);
  EXPECT_NE(refusal("verify/b1/q8/kv9/h8x1/d512/w64/p64/paged/bf16", kConfig).find("window=64"),
            std::string::npos);
  EXPECT_NE(refusal("verify/b1/q8/kv9/h8x1/d512/invariant/unified/bf16", kConfig).find("sums"),
            std::string::npos);
}

// The reasons why `wgrows` cannot be instantiated, or is not for a problem; and what `wgmma` prefills.
TEST(Families, RefuseWarpgroupsOfRowsThatCannotBe) {
  const Family& family = *find_family("wgrows");
  const auto reason = [&](const KernelConfig& config, int head_dim) {
    const auto limit = family.static_limits(config, head_dim, KvLayout::kRing);
    return limit ? limit->detail : "none";
  };
  EXPECT_EQ(reason({128, 64, 2, 12}, 256), "none");
  EXPECT_NE(reason({128, 64, 2, 12}, 512).find("head_dim=512"), std::string::npos);
  EXPECT_NE(reason({64, 64, 2, 12}, 256).find("block_m=64"), std::string::npos);
  EXPECT_NE(reason({128, 64, 2, 8}, 256).find("num_warps=8"), std::string::npos);
  EXPECT_NE(reason({128, 128, 2, 12}, 256).find("block_n=128"), std::string::npos);
  EXPECT_NE(reason({128, 64, 1, 12}, 256).find("num_stages=1"), std::string::npos);

  const auto refusal = [](const char* name, const char* problem, const KernelConfig& config) {
    const auto limit = find_family(name)->supports(Problem::parse(problem), config);
    return limit ? limit->detail : "none";
  };
  const KernelConfig rows{128, 64, 2, 12};
  EXPECT_EQ(refusal("wgrows", "prefill/b1/q4/kv1-64/h8x2/d256/w64/ring/bf16", rows), "none");
  EXPECT_EQ(refusal("wgrows", "prefill/b1/q4/kv1-64/h8x2/d256/p64/paged/bf16", rows), "none");
  EXPECT_NE(
      refusal("wgrows", "prefill/b1/q4/kv1-64/h8x2/d256/p32/paged/bf16", rows).find("block_n"),
      std::string::npos);
  EXPECT_NE(
      refusal("wgrows", "prefill/b1/q4/kv1-64/h8x2/d256/w9/p64/paged/bf16", rows).find("window=9"),
      std::string::npos);
  EXPECT_NE(refusal("wgrows", "verify/b1/q4/kv1-64/h8x2/d256/contiguous/bf16", rows).find("idle"),
            std::string::npos);
  const KernelConfig columns{64, 64, 1, 12};
  EXPECT_EQ(refusal("wgmma", "prefill/b1/q1/kv1-64/h2x2/d512/contiguous/bf16", columns), "none");
  // Up to as many rows as have their tokens found by a product.
  EXPECT_EQ(refusal("wgmma", "prefill/b1/q65536/kv1-65536/h32x1/d512/contiguous/bf16", columns),
            "none");
  EXPECT_EQ(refusal("wgmma", "prefill/b1/q63551/kv1-65536/h33x1/d512/contiguous/bf16", columns),
            "rows=2097183: wgmma is made for prefills of 1 to 2097152");
  // Those that divide have no such limit.
  EXPECT_EQ(refusal("wgrows", "prefill/b1/q65536/kv1-65536/h64x1/d256/contiguous/bf16", rows),
            "none");
}

// The reasons why `slices` cannot be instantiated.
TEST(Families, RefuseSlicesThatCannotBe) {
  const Family& family = *find_family("slices");
  const auto reason = [&](const KernelConfig& config, int head_dim) {
    const auto limit = family.static_limits(config, head_dim, KvLayout::kUnified);
    return limit ? limit->detail : "none";
  };
  EXPECT_EQ(reason({64, 32, 3, 8}, 512), "none");
  EXPECT_EQ(reason({64, 32, 9, 8}, 512), "none");
  EXPECT_NE(reason({64, 32, 10, 8}, 512).find("num_stages=10: a tile has 8"), std::string::npos);
  EXPECT_NE(reason({64, 32, 1, 8}, 512).find("num_stages=1"), std::string::npos);
  EXPECT_NE(reason({64, 16, 3, 8}, 512).find("8 warps over 64 rows"), std::string::npos);
  const auto narrow = family.static_limits({64, 32, 3, 8}, 128, KvLayout::kRing);
  ASSERT_TRUE(narrow);
  EXPECT_NE(narrow->detail.find("head_dim=128"), std::string::npos);
}

// The reasons why `swapab` cannot be instantiated, or is not for a problem.
TEST(Families, RefuseStreamsThatCannotBe) {
  const Family& family = *find_family("swapab");
  const auto reason = [&](const KernelConfig& config, int head_dim, KvLayout layout) {
    const auto limit = family.static_limits(config, head_dim, layout);
    return limit ? limit->detail : "none";
  };
  const auto contiguous = KvLayout::kContiguous;
  EXPECT_EQ(reason({8, 16, 1, 8}, 512, contiguous), "none");
  EXPECT_EQ(reason({32, 32, 2, 8}, 256, KvLayout::kRing), "none");
  EXPECT_EQ(reason({16, 16, 2, 4}, 512, KvLayout::kPaged), "none");
  EXPECT_NE(reason({32, 16, 2, 2}, 512, contiguous).find("2 warps over 32 rows"),
            std::string::npos);
  EXPECT_NE(reason({8, 16, 2, 16}, 512, contiguous).find("num_warps=16"), std::string::npos);
  EXPECT_NE(reason({8, 64, 1, 8}, 512, contiguous).find("block_n=64"), std::string::npos);
  EXPECT_NE(reason({8, 32, 2, 8}, 512, KvLayout::kPaged).find("lies in one page"),
            std::string::npos);
  EXPECT_NE(reason({16, 16, 1, 8}, 512, contiguous).find("2 warps share a stream"),
            std::string::npos);

  const auto refusal = [&](const char* problem) {
    const auto limit = family.supports(Problem::parse(problem), {16, 16, 2, 8});
    return limit ? limit->detail : "none";
  };
  EXPECT_EQ(refusal("verify/b1/q4/kv9/h8x2/d512/p16/unified-paged/bf16"), "none");
  EXPECT_EQ(refusal("verify/b1/q4/kv9/h8x2/d256/w64/ring/bf16"), "none");
  EXPECT_NE(refusal("verify/b1/q4/kv9/h8x2/d256/w64/p16/paged/bf16").find("window=64"),
            std::string::npos);
  EXPECT_NE(refusal("verify/b1/q4/kv9/h8x2/d512/invariant/unified/bf16").find("sums"),
            std::string::npos);
  EXPECT_EQ(refusal("verify/b1/q8/kv9/h8x2/d256/contiguous/bf16"), "none");  // 32 rows
  EXPECT_NE(refusal("verify/b1/q9/kv9/h8x2/d256/contiguous/bf16").find("rows=36"),
            std::string::npos);
  EXPECT_NE(refusal("prefill/b1/q4/kv1-64/h8x2/d256/contiguous/bf16").find("made for steps"),
            std::string::npos);
}

// More rows than 32 are in blocks of 32, and those of a warp leave registers beside 128 accumulators.
TEST(Families, SearchStreamsOfFewRowsWithEnoughInFlight) {
  const Family& family = *find_family("swapab");
  for (const KvLayout layout : kKvLayouts) {
    for (const int head_dim : {64, 128, 256, 512}) {
      std::set<int> block_ms;
      for (const KernelConfig& config : family.configs(head_dim, layout)) {
        block_ms.insert(config.block_m);
        const int slot_bytes = 2 * kv_stage_elements(config, head_dim, layout);
        const StreamGrid grid = stream_grid(config, head_dim);
        EXPECT_GE(grid.streams * config.num_stages * slot_bytes, 96 << 10) << text_of(config);
        EXPECT_LE(grid.warp_rows, head_dim == 64 ? 32 : 16) << text_of(config);
        EXPECT_GE(config.num_warps, 4) << text_of(config);
      }
      if (is_unified(layout) && head_dim != kUnifiedHeadDim) {
        EXPECT_EQ(block_ms, std::set<int>{});
      } else {
        EXPECT_TRUE(block_ms.contains(8)) << head_dim;
        EXPECT_LE(*block_ms.rbegin(), 32) << head_dim;
      }
    }
  }
}

// The reasons why `oneround` cannot be instantiated, or is not for a problem.
TEST(Families, RefuseRoundsThatCannotBe) {
  const Family& family = *find_family("oneround");
  const auto reason = [&](const KernelConfig& config, int head_dim, KvLayout layout) {
    const auto limit = family.static_limits(config, head_dim, layout);
    return limit ? limit->detail : "none";
  };
  const auto contiguous = KvLayout::kContiguous;
  EXPECT_EQ(reason({8, 16, 1, 8}, 512, contiguous), "none");
  EXPECT_EQ(reason({16, 32, 1, 2}, 64, KvLayout::kRing), "none");
  EXPECT_EQ(reason({8, 16, 2, 4}, 512, KvLayout::kUnifiedPaged), "none");
  EXPECT_NE(reason({32, 16, 1, 8}, 512, contiguous).find("block_m=32"), std::string::npos);
  EXPECT_NE(reason({8, 16, 1, 8}, 64, contiguous).find("num_warps=8"), std::string::npos);
  EXPECT_NE(reason({8, 16, 1, 16}, 512, contiguous).find("num_warps=16"), std::string::npos);
  EXPECT_NE(reason({8, 16, 1, 1}, 512, contiguous).find("num_warps=1"), std::string::npos);
  EXPECT_NE(reason({8, 64, 1, 4}, 256, contiguous).find("block_n=64"), std::string::npos);
  EXPECT_NE(reason({8, 32, 1, 4}, 256, KvLayout::kPaged).find("lies in one page"),
            std::string::npos);

  const auto refusal = [&](const char* problem) {
    const auto limit = family.supports(Problem::parse(problem), {16, 16, 2, 4});
    return limit ? limit->detail : "none";
  };
  EXPECT_EQ(refusal("verify/b1/q4/kv9/h8x2/d512/p16/unified-paged/bf16"), "none");
  EXPECT_EQ(refusal("verify/b1/q4/kv9/h8x2/d256/w64/ring/bf16"), "none");  // 16 rows
  EXPECT_NE(refusal("verify/b1/q5/kv9/h8x2/d256/w64/ring/bf16").find("rows=20"), std::string::npos);
  EXPECT_NE(refusal("verify/b1/q4/kv9/h8x2/d256/w64/p16/paged/bf16").find("window=64"),
            std::string::npos);
  EXPECT_NE(refusal("verify/b1/q4/kv9/h8x2/d512/invariant/unified/bf16").find("sums"),
            std::string::npos);
}

TEST(Families, SearchRoundsThatFillSharedMemory) {
  const Family& family = *find_family("oneround");
  for (const KvLayout layout : kKvLayouts) {
    for (const int head_dim : {64, 128, 256, 512}) {
      const auto configs = family.configs(head_dim, layout);
      EXPECT_LE(configs.size(), 10u) << head_dim;
      for (const KernelConfig& config : configs) {
        const int slot_bytes = 2 * kv_stage_elements(config, head_dim, layout);
        const int bytes = family.num_streams(config, head_dim) * config.num_stages * slot_bytes;
        EXPECT_GE(bytes, 112 << 10) << text_of(config);
        EXPECT_LE(family.smem_bytes(config, head_dim, layout), 232448) << text_of(config);
      }
    }
  }
}

TEST(Families, ComputeAttentionOrLinearLayers) {
  const Problem attention = Problem::parse(kProblem);
  const Problem linear = Problem::parse("linear/m8/n64/k64/geglu/int4");
  ASSERT_EQ(families_of(Op::kLinear).size(), 1u);
  const Family& of_linear = families_of(Op::kLinear).front();
  EXPECT_EQ(of_linear.name, "linear");
  for (const Op op : {Op::kDecode, Op::kVerify, Op::kPrefill}) {
    EXPECT_EQ(families_of(op).size() + 2, families().size());
    for (const Family& family : families_of(op)) EXPECT_FALSE(family.is_linear()) << family.name;
  }
  EXPECT_NE(of_linear.supports(attention, {8, 48, 2, 8})->detail.find("a family of linear layers"),
            std::string::npos);
  const Family& of_experts = families_of(Op::kExperts).front();
  EXPECT_EQ(families_of(Op::kExperts).size(), 1u);
  EXPECT_EQ(of_experts.name, "experts");
  const Problem experts = Problem::parse("experts/m8/n64/k64/geglu/int4/e8x2");
  EXPECT_FALSE(of_experts.supports(experts, {8, 48, 2, 16}));
  EXPECT_NE(of_experts.supports(linear, {8, 48, 2, 16})->detail.find("a family of experts"),
            std::string::npos);
  EXPECT_NE(of_linear.supports(experts, {8, 48, 2, 16})->detail.find("a family of linear layers"),
            std::string::npos);
  // One token of bf16 rows is multiplied by the kernel of eight.
  const Problem alone = Problem::parse("experts/m1/n64/k64/geglu/bf16/e8x2");
  EXPECT_EQ(of_experts.configs(alone).front().block_m, 8);
  EXPECT_FALSE(of_experts.supports(alone, {8, 48, 2, 8}));
  EXPECT_EQ(of_experts.smem_bytes_of(alone, {8, 48, 2, 8}),
            experts_smem_bytes({8, 48, 2, 8}, LinearWeights::kBf16));
  EXPECT_EQ(Variant::parse("experts/int4/geglu/m8n48s2w16").text(),
            "experts/int4/geglu/m8n48s2w16");
  EXPECT_NE(find_family("splitkv")->supports(linear, {16, 32, 2, 4})->detail.find("of attention"),
            std::string::npos);
}

TEST(Families, OfferEveryConfigOfALinearLayer) {
  const Family& family = families_of(Op::kLinear).front();
  for (const int tokens : {8, 16}) {
    const Problem problem = Problem::of_linear(tokens, {64, 64});
    const auto configs = family.configs(problem);
    EXPECT_GT(configs.size(), 40u);
    EXPECT_EQ(std::set<KernelConfig>(configs.begin(), configs.end()).size(), configs.size());
    for (const KernelConfig& config : configs) {
      EXPECT_FALSE(family.supports(problem, config)) << text_of(config);
      EXPECT_EQ(config.block_m, tokens);
    }
    EXPECT_TRUE(
        family.supports(problem, {24 - tokens, 48, 2, 8}));  // of the other number of tokens
    EXPECT_TRUE(family.supports(problem, {tokens, 48, 2, 4}));
    EXPECT_TRUE(family.supports(problem, {tokens, 40, 2, 8}));
  }
}

TEST(VariantText, OfALinearLayerRoundTrips) {
  for (const char* text : {"linear/bf16/store/m8n48s3w8", "linear/int4/geglu/m16n32s2w8",
                           "linear/bf16/swiglu/m8n16s2w8", "linear/int4/logits/m8n64s2w8"}) {
    EXPECT_EQ(Variant::parse(text).text(), text);
  }
  const Candidate candidate = Candidate::parse("linear/m8n48s2w8/x1");
  EXPECT_EQ(candidate.variant(Problem::parse("linear/m8/n64/k64/geglu/int4")).text(),
            "linear/int4/geglu/m8n48s2w8");
  for (const char* text : {"linear/int8/store/m8n48s3w8", "linear/bf16/relu/m8n48s3w8",
                           "linear/bf16/m8n48s3w8", "linear/bf16/store/softcap/m8n48s3w8"}) {
    EXPECT_THROW(Variant::parse(text), InvalidArgument) << text;
  }
}

TEST(Families, HaveADigestThatStaysTheSame) {
  for (const Family& family : families()) {
    EXPECT_EQ(family.template_digest(), family.template_digest());
    EXPECT_NE(family.template_digest(), Digest{});
  }
}

}  // namespace
}  // namespace attune
