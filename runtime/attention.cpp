#include <utility>

#include <fmt/format.h>

#include "runtime/arguments.h"
#include "runtime/attune.h"
#include "runtime/dispatch.h"
#include "runtime/prepared.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

std::string text_of(const Dim3& dim) { return fmt::format("{}x{}x{}", dim.x, dim.y, dim.z); }

std::string_view text_of(Served served) {
  switch (served) {
    case Served::kExact:
      return "the winner of this problem";
    case Served::kNearest:
      return "the winner of the nearest tuned problem";
    case Served::kDefault:
      break;
  }
  return "the default: there is no winner, or it could not be loaded";
}

std::string launch_lines(const LaunchPlan& plan) {
  std::string lines =
      fmt::format("launch     grid={} threads={} smem_bytes={}\n", text_of(plan.split.grid),
                  plan.split.block.x, plan.split.smem_bytes);
  if (plan.needs_combine) {
    lines += fmt::format("combine    grid={} threads={}\n", text_of(plan.combine.grid),
                         plan.combine.block.x);
  }
  return lines + fmt::format("workspace  {} bytes\n", plan.workspace_bytes());
}

std::string freshness_line(const Choice& choice, const std::string& driver_version) {
  switch (choice.freshness) {
    case Freshness::kFresh:
      return {};
    case Freshness::kStaleDriver:
      return fmt::format("stale      timed with driver {}, this is {}; tune it again\n",
                         choice.winner->driver_version, driver_version);
    case Freshness::kOtherGpu:
      return "provisional  timed on the GPU that the alias names; tune it here\n";
    case Freshness::kOlderMethod:
      break;
  }
  if (choice.winner->method == kPartialTimingMethod) {
    return "partial    the time ran out before all candidates were timed; tune it again\n";
  }
  return fmt::format("stale      timed with method {} of an older attune; tune it again\n",
                     choice.winner->method);
}

std::string winner_lines(const Winner& winner) {
  std::string lines = fmt::format(
      "tuned      {} for {} ({}, driver {})\n", winner.created_at, winner.problem.text(),
      compiler_name(winner.binary.arch, winner.toolchain.compiler_version), winner.driver_version);
  for (const Measurement& point : winner.measurements) {
    lines += fmt::format("measured   kv_len={} {:.2f} us, spread {:.2f} us, {} samples\n",
                         point.kv_len, point.median_us, point.spread_us, point.num_samples);
  }
  if (!winner.measurements.empty()) {
    lines += fmt::format("regret     {:.1f}% above the best time at its worst point\n",
                         winner.worst_regret * 100);
  }
  if (!winner.runner_up.empty()) {
    const double margin = winner.margin_runner_up * 100;
    lines += margin >= 0
                 ? fmt::format("beat       {} by {:.1f}% of regret\n", winner.runner_up, margin)
                 : fmt::format("runner-up  {} has {:.1f}% less regret, but is not surely faster\n",
                               winner.runner_up, -margin);
  }
  if (!winner.default_candidate.empty()) {
    lines += fmt::format("default    {} takes {:.1f}% longer\n", winner.default_candidate,
                         winner.margin_default * 100);
  }
  const Admission& admission = winner.admission;
  return lines + fmt::format("admitted   relative_l2={:.2e} worst_case={:.2e} over {} cases, {}\n",
                             admission.relative_l2, admission.worst_case_relative_l2,
                             admission.num_cases, admission.reference);
}

}  // namespace

std::string explain(const Choice& choice, const DeviceInfo& device) {
  std::string lines = fmt::format(
      "problem    {}\nserved     {}\ncandidate  {}\n", choice.problem.text(),
      choice.freshness == Freshness::kOtherGpu ? "a winner of the GPU that the alias names"
                                               : text_of(choice.served),
      choice.candidate.text());
  lines += launch_lines(choice.plan);
  if (choice.winner) {
    return lines + winner_lines(*choice.winner) + freshness_line(choice, device.driver_version);
  }
  return lines + fmt::format("to tune    {}\n", tune_command(choice.problem, device));
}

Attention::Attention(std::shared_ptr<const Slot> slot) : slot_(std::move(slot)) {}

const Attention::Slot& Attention::slot() const {
  if (slot_ == nullptr) {
    throw InvalidArgument("this attention is not prepared", {}, "get it from Engine::prepare");
  }
  return *slot_;
}

void Attention::launch(const AttentionArgs& args, void* stream) const {
  const Prepared& p = slot().prepared();
  const Choice& choice = p.choice;
  const Problem problem = launched_problem(choice.problem, args);
  const bool whole = problem.seqlen_q == choice.problem.seqlen_q;
  const LaunchPlan plan = whole ? choice.plan : plan_launch(problem, choice.candidate);
  check_arguments(problem, plan, args);
  launch_attention(*p.device, *p.kernels, plan, attention_params(problem, plan, args), stream);
}

std::size_t Attention::workspace_bytes() const { return slot().workspace_bytes; }

Served Attention::served() const { return slot().prepared().choice.served; }

std::string Attention::problem_text() const { return slot().prepared().choice.problem.text(); }

std::string Attention::candidate_text() const { return slot().prepared().choice.candidate.text(); }

std::string Attention::explain() const {
  const Prepared& p = slot().prepared();
  return attune::explain(p.choice, p.device->info());
}

}  // namespace attune
