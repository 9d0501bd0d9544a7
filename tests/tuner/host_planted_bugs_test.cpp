// Bugs planted in the attention template itself: the host device finds each and names it.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tests/support/planted.h"
#include "tuner/space.h"
#include "tuner/verify.h"

namespace attune {
namespace {

constexpr const char* kProblem = "verify/b1/q2/kv1-8192/h2x1/d64/contiguous/bf16";
constexpr const char* kCandidate = "splitkv/m16n32s2w4/x2";

Planted planted(const Candidate& candidate) {
  return Planted(attention_source(candidate.variant(Problem::parse(kProblem))));
}

// A sequence that fills its buffer to the last row, which is not the last of a tile.
VerifyCase full_buffer() {
  VerifyCase one;
  one.name = "full";
  one.inputs.problem = Problem::parse(kProblem);
  one.inputs.kv_len = {40};
  one.inputs.capacity = 40;
  one.inputs.q.assign(2 * 2 * 64, float_to_bf16(0.5f));
  one.inputs.k.assign(40 * 64, float_to_bf16(0.25f));
  one.inputs.v.assign(40 * 64, float_to_bf16(1.0f));
  one.expected = reference_attention(one.inputs);
  return one;
}

// What the verifier says of the changed kernel on this device: "right", or why not.
std::string verdict(const HostDeviceOptions& options, const Source& source,
                    const std::vector<VerifyCase>& cases = verify_cases(Problem::parse(kProblem),
                                                                        1)) {
  const HostBench bench(options);
  const Problem problem = Problem::parse(kProblem);
  const Candidate candidate = Candidate::parse(kCandidate);
  const Variant variant = candidate.variant(problem);
  const AttentionKernels kernels = load_attention(*bench.device, bench.compile(source), variant,
                                                  plan_launch(problem, candidate));
  const auto outcome = verify(*bench.device, kernels, candidate, cases);
  const auto* rejection = std::get_if<Rejection>(&outcome);
  return rejection == nullptr ? "right" : rejection->detail;
}

const HostDeviceOptions kChecked{.target = {.checks = HostChecks::kAccesses}};

void expect_words(const std::string& text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
  }
}

TEST(PlantedBugs, TheTemplateItselfHasNone) {
  const Planted kernel = planted(Candidate::parse(kCandidate));
  EXPECT_EQ(verdict(kChecked, kernel.source()), "right");
  EXPECT_EQ(verdict(kChecked, kernel.source(), {full_buffer()}), "right");
}

TEST(PlantedBugs, AMissingBarrierIsARace) {
  Planted kernel = planted(Candidate::parse(kCandidate));
  kernel.change("templates/splitkv.cuh",
                "    cp_async_wait_group<T::kPendingAtValues>();\n"
                "    __syncthreads();\n    if (num_keys == BLOCK_N)",
                "    cp_async_wait_group<T::kPendingAtValues>();\n"
                "    if (num_keys == BLOCK_N)");
  expect_words(verdict(kChecked, kernel.source()),
               {"race on shared memory", "no barrier is between", "templates/splitkv.cuh:"});
}

TEST(PlantedBugs, AMissingCopyWaitIsARaceAndGivesAWrongResult) {
  Planted kernel = planted(Candidate::parse(kCandidate));
  kernel.change("templates/splitkv.cuh",
                "    cp_async_wait_group<T::kGroupsPerTile * T::kStages - 1>();\n"
                "    __syncthreads();\n    add_scores<0>",
                "    __syncthreads();\n    add_scores<0>");
  expect_words(verdict(kChecked, kernel.source()),
               {"race on shared memory", "nobody has waited for", "cp.async", "ldmatrix"});
  expect_words(verdict({}, kernel.source()), {"case="});  // late copies: not there yet
}

TEST(PlantedBugs, AWrongSwizzleIsAWrongResult) {
  Planted kernel = planted(Candidate::parse(kCandidate));
  kernel.change(
      "templates/device/tile_copy.cuh",
      "tile + swizzled_offset<kTileColumns>(row + offset, chunk), source",
      "tile + static_cast<uint32>((row + offset) * kTileColumns * 2 + chunk * 16), source");
  expect_words(verdict({}, kernel.source()), {"case="});
}

TEST(PlantedBugs, AReadPastTheLastTileIsOutOfRange) {
  Planted kernel = planted(Candidate::parse(kCandidate));
  kernel.change("templates/device/tile_copy.cuh", "visible ? 16 : 0", "16");
  expect_words(verdict(kChecked, kernel.source(), {full_buffer()}),
               {"access out of range", "past the end of allocation", "templates/"});
  // Where the buffer is longer the poison behind the sequence shows.
  expect_words(verdict({}, kernel.source()), {"case=", "nan"});
}

TEST(PlantedBugs, ABarrierThatSomeThreadsSkipIsFound) {
  Planted kernel = planted(Candidate::parse(kCandidate));
  kernel.change("templates/splitkv.cuh", "    // B\n    __syncthreads();",
                "    if (warp != 0) bar_sync(2, kConfigThreads);");
  kernel.change("templates/splitkv.cuh", "namespace attune {",
                "namespace attune {\nconstexpr int kConfigThreads = 128;");
  expect_words(verdict({}, kernel.source()),
               {"deadlock", "wait at bar.sync 2 (96 of 128 threads have arrived)"});
}

#if defined(__SANITIZE_ADDRESS__)

// The process ends with the sanitizer's report, so each runs in a process of its own.
class SanitizedBugs : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  const HostDeviceOptions sanitized_{.target = {.checks = HostChecks::kSanitizers}};
};

TEST_F(SanitizedBugs, TheTemplateItselfHasNone) {
  const Planted kernel = planted(Candidate::parse(kCandidate));
  EXPECT_EQ(verdict(sanitized_, kernel.source()), "right");
}

TEST_F(SanitizedBugs, AReadPastTheLastTileIsOutOfRange) {
  Planted kernel = planted(Candidate::parse(kCandidate));
  kernel.change("templates/device/tile_copy.cuh", "visible ? 16 : 0", "16");
  EXPECT_DEATH(verdict(sanitized_, kernel.source(), {full_buffer()}), "heap-buffer-overflow");
}

TEST_F(SanitizedBugs, AStorePastSharedMemoryIsOutOfRange) {
  Planted kernel = planted(Candidate::parse(kCandidate));
  kernel.change("templates/splitkv.cuh", "if (token_group == 0 && lane % 4 == 0) row_scale()[row]",
                "if (token_group == 0 && lane % 4 == 0) row_scale()[row + 16]");
  EXPECT_DEATH(verdict(sanitized_, kernel.source()), "use-after-poison");
}

TEST_F(SanitizedBugs, ASignedOverflowIsReported) {
  Planted kernel = planted(Candidate::parse(kCandidate));
  kernel.change("templates/split_work.cuh", "work.kv_head = blockIdx.y;",
                "work.kv_head = blockIdx.y;\n  if (p.seqlen_q + 0x7fffffff == 5) return false;");
  EXPECT_DEATH(verdict(sanitized_, kernel.source()), "signed integer overflow");
}

#endif

}  // namespace
}  // namespace attune
