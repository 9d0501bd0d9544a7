#include <set>
#include <string>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/tuner/fake_attention.h"
#include "tuner/local_measure.h"
#include "tuner/space.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

const Problem kProblem = Problem::parse("decode/b1/q1/kv1-64/h1x1/d512/contiguous/bf16");

TEST(RegisterAudit, TimesWhatOnlyTheRegisterRuleDropped) {
  DeviceInfo info = small_l2_device_info();
  info.max_smem_per_block_bytes = 100 << 10;  // few candidates
  FakeDevice device(info);
  FakeCompiles compiles;
  compiles.on_compile = [](const CompileJob& job, CompileOutcome* outcome) {
    if (!job.source.split_symbol.empty()) outcome->binary->kernels[0].spill_store_bytes = 64;
  };
  // Within the rule: slow.
  serve_attention(device, [](const Variant& variant, const AttentionParams&) {
    return within_register_rule(variant.config, 512) ? 50.0 : 40.0;
  });
  const auto store = TuneStore::open_in_memory();
  LocalMeasure measure(device);
  Tuner tuner(&measure, *store, compiles);
  const auto audits = tuner.audit_register_rule(kProblem, 64);
  ASSERT_GT(audits.size(), 1u);
  EXPECT_FALSE(audits.front().within_rule);
  EXPECT_TRUE(audits.back().within_rule);
  EXPECT_EQ(audits.back().candidate, default_candidate(kProblem, info));
  for (const RuleAudit& audit : audits) {
    EXPECT_EQ(audit.within_rule, within_register_rule(audit.candidate.config, 512));
    EXPECT_EQ(audit.failure, "");
    EXPECT_EQ(audit.measurement.kv_len, 64);
    EXPECT_GE(audit.measurement.median_us, audit.within_rule ? 50 : 40);
    EXPECT_EQ(audit.resources.spill_store_bytes, 64);
  }
}

// Prefills have families of their own, some of which the rule leaves alone.
TEST(RegisterAudit, TimesThePrefillsThatTheRuleDropped) {
  DeviceInfo info = small_l2_device_info();
  info.max_smem_per_block_bytes = 100 << 10;
  FakeDevice device(info);
  FakeCompiles compiles;
  serve_attention(device, [](const Variant& variant, const AttentionParams&) {
    return within_register_rule(variant.config, 512) ? 50.0 : 60.0;
  });
  const auto store = TuneStore::open_in_memory();
  LocalMeasure measure(device);
  const Problem problem = Problem::parse("prefill/b1/q2/kv1-64/h2x1/d512/contiguous/bf16");
  const auto audits = Tuner(&measure, *store, compiles).audit_register_rule(problem, 64);
  EXPECT_EQ(audits.front().candidate, default_candidate(problem, info));
  std::set<std::string> dropped;
  for (const RuleAudit& audit : audits) {
    EXPECT_EQ(audit.failure, "") << audit.candidate.text();
    EXPECT_EQ(audit.within_rule, within_register_rule(audit.candidate.config, 512));
    if (!audit.within_rule) dropped.insert(audit.candidate.family);
  }
  EXPECT_EQ(dropped, (std::set<std::string>{"splitkv", "tiled"}));
}

TEST(RegisterAudit, PutsFailuresLastWithTheirReason) {
  DeviceInfo info = small_l2_device_info();
  info.max_smem_per_block_bytes = 100 << 10;
  FakeDevice device(info);
  FakeCompiles compiles;
  compiles.on_compile = [](const CompileJob& job, CompileOutcome* outcome) {
    const std::string& symbol = job.source.split_symbol;
    if (symbol.empty() || within_register_rule(variant_of_symbol(symbol).config, 512)) return;
    outcome->binary->kernels[0].registers = 2000;  // more than the file holds
  };
  serve_attention(device, [](const Variant&, const AttentionParams&) { return 50.0; });
  const auto store = TuneStore::open_in_memory();
  LocalMeasure measure(device);
  const auto audits = Tuner(&measure, *store, compiles).audit_register_rule(kProblem, 1);
  EXPECT_TRUE(audits.front().within_rule);
  EXPECT_NE(audits.back().failure.find("registers=2000"), std::string::npos);
  EXPECT_EQ(audits.back().measurement.num_samples, 0);
}

TEST(RegisterAudit, RefusesALengthOutsideTheRange) {
  FakeDevice device(small_l2_device_info());
  FakeCompiles compiles;
  const auto store = TuneStore::open_in_memory();
  LocalMeasure measure(device);
  EXPECT_THROW(Tuner(&measure, *store, compiles).audit_register_rule(kProblem, 65),
               InvalidArgument);
}

}  // namespace
}  // namespace attune
