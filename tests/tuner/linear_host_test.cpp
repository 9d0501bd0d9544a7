// Linear layers on the host device: verified, wrong ones rejected, and tuned in worker processes.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "jit/host/host_info.h"
#include "jit/model_source.h"
#include "templates/probe_params.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/host_kernels.h"
#include "tests/support/planted_compiles.h"
#include "tests/support/require_cxx.h"
#include "tuner/isolated_measure.h"
#include "tuner/linear_verify.h"
#include "tuner/space.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

constexpr const char* kTemplate = "templates/linear.cuh";

// The last share of every row is left out.
void skip_a_panel(Planted* kernel) {
  kernel->change(kTemplate, "panel < num_panels; panel += kLinearShares",
                 "panel < num_panels - 1; panel += kLinearShares");
}

// What the verifier says of a candidate: "right", or why not.
std::string verdict(const HostBench& bench, CandidateVerifier& verifier, const Problem& problem,
                    const Candidate& candidate, const Bug& bug = {}) {
  const Variant variant = candidate.variant(problem);
  Planted kernel(variant_source(variant));
  if (bug) bug(&kernel);
  const AttentionKernels kernels = load_attention(*bench.device, bench.compile(kernel.source()),
                                                  variant, plan_launch(problem, candidate));
  const auto outcome = verifier.verify(kernels, candidate);
  const auto* rejection = std::get_if<Rejection>(&outcome);
  if (rejection == nullptr) {
    const Admission& admission = std::get<Admission>(outcome);
    EXPECT_EQ(admission.reference, kLinearReferenceName);
    EXPECT_EQ(admission.num_cases, 3);
    EXPECT_GT(admission.max_abs_error, 0);
    EXPECT_LE(admission.relative_l2, kMaxRelativeL2);
    return "right";
  }
  return fmt::format("{}: {}", name_of(rejection->reason), rejection->detail);
}

// More rows than repeat, a last panel that is not whole, CTAs of unequal shares.
TEST(LinearVerify, AdmitsTheTemplateOfEveryEpilogue) {
  const HostBench bench({.target = checked_target()});
  for (const char* text :
       {"linear/m8/n301/k328/store/bf16", "linear/m16/n150/k264/geglu/int4",
        "linear/m8/n150/k72/swiglu/bf16", "linear/m16/n301/k520/logits/bf16",
        "experts/m8/n41/k328/geglu/bf16/e12x3", "experts/m1/n72/k264/store/int4/e12x3"}) {
    const Problem problem = Problem::parse(text);
    const auto verifier = make_verifier(*bench.device, problem, 1);
    // Packed rows for 16 tokens have room for 16 of them in a slot.
    const int block_n = problem.linear_tokens == kMaxLinearTokens ? 16 : 32;
    const Candidate candidate{
        std::string(name_of(problem.op)),
        {problem.linear_tokens, block_n, 2, linear_warps(problem.linear.weights)},
        1};
    EXPECT_EQ(verdict(bench, *verifier, problem, candidate), "right") << text;
    EXPECT_EQ(verifier->flops(), 3 * problem_flops(problem, 1));
  }
}

struct PlantedBug {
  const char* problem;
  const char* from;
  const char* to;
  const char* words;
  const char* file = kTemplate;
};

TEST(LinearVerify, RejectsWrongKernels) {
  const HostBench bench;
  const std::vector<PlantedBug> bugs = {
      {"linear/m8/n301/k328/store/bf16", "panel < num_panels; panel += kLinearShares",
       "panel < num_panels - 1; panel += kLinearShares", "wrong_result: tokens=8 token=0"},
      // A row behind those that are computed, on its way to one CTA.
      {"linear/m8/n301/k328/store/bf16", "    return first_output + pass_begin(pass);",
       "    const int row = first_output + pass_begin(pass);\n    return row > 270 ? row - 1 : "
       "row;",
       "wrong_result: tokens=8 token=0 output=2"},
      {"linear/m8/n301/k328/store/bf16", "i < p.num_tokens * kOutputs", "i < BLOCK_M * kOutputs",
       "out_of_bounds: tokens=5 wrote rows of other tokens"},
      {"linear/m8/n301/k328/store/bf16", "  cta.run(cta);",
       "  cta.run(cta);\n  static_cast<volatile uint16*>(p.out)[-8] = 1;",
       "out_of_bounds: tokens=8 wrote byte -16 of out"},
      // The number of tokens decides the order of a sum.
      {"linear/m8/n301/k328/logits/bf16", "    const float sum = add_up(row);",
       "    float sum = add_up(row);\n    if (p.num_tokens == 1) sum = sum + 1e-7f;",
       "wrong_result: tokens=1 the first token has other bits"},
      // 11 of 12 experts, all but the last one first to last: another one's weights, another one's x, and the
      // list from its length on.
      {"experts/m8/n41/k328/geglu/bf16/e12x3", "chosen[i] = p.chosen[i];",
       "chosen[i] = p.chosen[i] - (i == 5 ? 1 : 0);",
       "wrong_result: tokens=8 expert=4 token=0 output=0", "templates/experts.cuh"},
      {"experts/m8/n41/k328/store/bf16/e12x3", "entry_of(place.pass) * params.input_rows",
       "0 * params.input_rows", "wrong_result: tokens=8 expert=1 token=0 output=0",
       "templates/experts.cuh"},
      {"experts/m8/n41/k328/geglu/bf16/e12x3", "experts(chosen + 1)", "experts(chosen)",
       "wrong_result: tokens=8 expert=0", "templates/experts.cuh"}};
  for (const PlantedBug& bug : bugs) {
    const Problem problem = Problem::parse(bug.problem);
    const auto verifier = make_verifier(*bench.device, problem, 1);
    const std::string text = verdict(
        bench, *verifier, problem, {std::string(name_of(problem.op)), parse_config("m8n16s2w8"), 1},
        [&](Planted* kernel) { kernel->change(bug.file, bug.from, bug.to); });
    EXPECT_TRUE(text.starts_with(bug.words)) << bug.to << ": " << text;
  }
}

// Kernels of the host device do not overlap. This one begins a kernel behind the one that writes late
// before it, so that all it reads is read too early.
class EarlyDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Kernel kernel(const Module& module, const std::string& symbol, int smem_bytes) override {
    const Kernel made = ForwardingDevice::kernel(module, symbol, smem_bytes);
    if (symbol == "copy_late") late_ = made.function;
    return made;
  }
  void launch(const Graph& graph, StreamHandle stream) override {
    ForwardingDevice::launch(graph, stream);
  }
  void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
              StreamHandle stream) override {
    if (kernel.function == late_) {
      const LateCopyParams late = *static_cast<const LateCopyParams*>(params);
      waiting_ = [=, this] { ForwardingDevice::launch(kernel, shape, &late, stream); };
      return;
    }
    ForwardingDevice::launch(kernel, shape, params, stream);
    if (const auto waiting = std::exchange(waiting_, nullptr)) waiting();
  }

 private:
  void* late_ = nullptr;
  std::function<void()> waiting_;
};

TEST(LinearVerify, RejectsAKernelThatReadsXBeforeTheKernelInFrontHasEnded) {
  HostBench bench;
  const Binary probes = bench.compile(probe_source("host"));
  const Candidate candidate = Candidate::parse("linear/m8n16s2w8/x1");
  for (const char* text : {"linear/m8/n301/k328/store/bf16", "linear/m8/n40/k512/logits/bf16"}) {
    const Problem problem = Problem::parse(text);
    const auto verifier = make_verifier(*bench.device, problem, 1, &probes);
    EXPECT_EQ(verdict(bench, *verifier, problem, candidate), "right") << text;
  }
  bench.device = std::make_unique<EarlyDevice>(std::move(bench.device));
  const Problem problem = Problem::parse("linear/m8/n301/k328/store/bf16");
  const auto verifier = make_verifier(*bench.device, problem, 1, &probes);
  EXPECT_EQ(
      verdict(bench, *verifier, problem, candidate),
      "wrong_result: tokens=8 x that the kernel in front writes at its end gave other bits: it "
      "is read before griddepcontrol.wait");
}

class LinearTuneTest : public HostCompilerTest {};

TEST_F(LinearTuneTest, StoresTheFastestRightOneAndWhyTheOthersAreNot) {
  CompilePoolOptions pool_options;
  if (const char* path = std::getenv("ATTUNE_WORKER")) pool_options.worker_path = path;
  pool_options.compilers.host = test_host_search();
  CompilePool pool(pool_options);
  const auto real = compile_service(compiler(), pool);
  PlantedCompiles compiles(*real);
  IsolatedMeasureOptions measure_options{.device = "host"};
  if (const char* path = std::getenv("ATTUNE_MEASURE_WORKER")) measure_options.worker_path = path;
  const DeviceInfo device = host_device_info();
  IsolatedMeasure measure(measure_options, device);
  const auto store = TuneStore::open_in_memory();

  // That of a linear layer alone is tuned by the command's test.
  const Problem problem = Problem::parse("experts/m8/n64/k64/store/int4/e4x2");
  const auto kept = candidate_space(problem, device).kept;
  ASSERT_GE(kept.size(), 2u);
  const Candidate wrong =
      kept.front() == default_candidate(problem, device) ? kept.back() : kept.front();
  compiles.bugs[wrong.variant(problem)] = skip_a_panel;
  const TuneReport report = Tuner(&measure, *store, compiles).tune({problem}, {});
  ASSERT_EQ(report.winners.size(), 1u) << (report.failures.empty() ? "" : report.failures.front());
  EXPECT_EQ(report.num_rejected, 1u);
  EXPECT_EQ(report.num_timed, kept.size() - 1);

  const Toolchain toolchain =
      toolchain_of(known_family("experts"), device.arch, compiles.compiler_version());
  const auto hit = store->find_winner(device, problem, toolchain, kTimingMethod);
  ASSERT_TRUE(hit && hit->is_exact());
  EXPECT_NE(hit->winner.candidate, wrong);
  EXPECT_EQ(hit->winner.default_candidate, default_candidate(problem, device).text());
  EXPECT_EQ(hit->winner.admission.reference, kLinearReferenceName);
  ASSERT_EQ(hit->winner.measurements.size(), 1u);
  EXPECT_GT(hit->winner.measurements.front().median_us, 0);
  std::set<std::string> why;
  for (const RejectionRecord& one : store->rejections(device, problem, toolchain)) {
    if (one.candidate == wrong) why.insert(std::string(name_of(one.rejection.reason)));
  }
  EXPECT_EQ(why, std::set<std::string>{"wrong_result"});

  const TuneReport again = Tuner(&measure, *store, compiles).tune({problem}, {});
  EXPECT_EQ(again.num_cached, 1u);
  EXPECT_EQ(again.num_compiled, 0u);
}

}  // namespace
}  // namespace attune
