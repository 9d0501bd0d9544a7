// The kernels of experts on the host device.
#include <gtest/gtest.h>

#include "tests/support/expert_run.h"
#include "tests/support/expert_steps_run.h"
#include "tests/support/host_kernels.h"

namespace attune {
namespace {

TEST(ExpertsHost, RouterChoosesTheMostProbableExperts) {
  const HostBench bench({.target = checked_target()});
  for (const auto& [num_experts, top_k] : {std::pair(128, 8), {40, 3}, {5, 5}, {256, 32}, {1, 1}}) {
    SCOPED_TRACE(num_experts);
    const Source source = route_source(num_experts, top_k);
    const Module module = bench.device->load(bench.compile(source));
    expect_right_routes(*bench.device, bench.device->kernel(module, source.symbols.front(), 0),
                        num_experts, top_k);
  }
  EXPECT_THROW(route_source(257, 8), InvalidArgument);
  EXPECT_THROW(route_source(4, 5), InvalidArgument);
  EXPECT_THROW(route_source(64, 33), InvalidArgument);
}

TEST(ExpertsHost, EveryEntryIsItsExpertsLayer) {
  const HostBench bench({.target = checked_target()});
  expect_right_experts(*bench.device, *bench.compiler, {8, 16, 1, 8}, LinearWeights::kBf16);
  expect_right_experts(*bench.device, *bench.compiler, {16, 16, 2, 16}, LinearWeights::kInt4);
}

TEST(ExpertsHost, BitsOfATokenDependOnNothingElse) {
  const HostBench bench;
  expect_bits_of_a_token(*bench.device, *bench.compiler, LinearWeights::kBf16);
  expect_bits_of_a_token(*bench.device, *bench.compiler, LinearWeights::kInt4);
}

TEST(ExpertsHost, StepsAreTheReferenceRoundedWhereTheModelRounds) {
  const HostBench bench({.target = checked_target()});
  for (const int hidden : {64, 2816}) {
    SCOPED_TRACE(hidden);
    const Source source = expert_steps_source(hidden);
    const Module module = bench.device->load(bench.compile(source));
    expect_right_expert_steps(*bench.device, module, source, hidden);
  }
}

TEST(ExpertsHost, RefusesMoreTokensThanItsKernelTakes) {
  const HostBench bench;
  LoadedExperts loaded(*bench.device, *bench.compiler, {8, 16, 1, 8}, LinearEpilogue::kStore);
  const ExpertsProblem problem(
      {.out_features = 64, .in_features = 64, .num_experts = 2, .top_k = 1}, {0}, 9, 1);
  EXPECT_THROW(run_experts(*bench.device, loaded.of(problem, 1), problem), InvalidArgument);
}

}  // namespace
}  // namespace attune
