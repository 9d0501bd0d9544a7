#include "cli/tuning_report.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "cli/bench_report.h"
#include "cli/explain_report.h"
#include "cli/workplace.h"
#include "common/error.h"
#include "runtime/dispatch.h"
#include "tuner/cost_model.h"
#include "tuner/timestamp.h"

namespace attune {
namespace {

bool is_asked(const ReportScope& scope, const Problem& problem) {
  return scope.problems.empty() ||
         std::find(scope.problems.begin(), scope.problems.end(), problem) != scope.problems.end();
}

// Problems that differ in their lengths alone stand together.
auto order_of(const Problem& problem) {
  Problem shape = problem;
  shape.seqlen_q = 1;
  shape.kv = {};
  return std::make_tuple(shape.head_dim, shape, problem.seqlen_q, problem.kv);
}

Today today_of(const ReportScope& scope, const ReportGpu& gpu) {
  for (const auto& [identity, today] : scope.here) {
    if (identity == gpu.identity) return today;
  }
  const auto latest = std::max_element(
      gpu.winners.begin(), gpu.winners.end(),
      [](const auto& a, const auto& b) { return a.winner.created_at < b.winner.created_at; });
  if (latest == gpu.winners.end()) return {};
  return {latest->winner.driver_version, latest->winner.toolchain.compiler_version, false};
}

void find_ceilings(const ReportScope& scope, const DeviceInfo& device, ReportGpu* gpu) {
  gpu->ceilings = known_ceilings(device);
  for (const MeasuredCeilings& one : scope.ceilings) {
    if (one.gpu_name != device.name || one.arch != device.arch || one.num_sms != device.num_sms) {
      continue;
    }
    gpu->ceilings = one.ceilings;
    gpu->are_ceilings_measured = true;
  }
}

// What is known of the default's times by the compiler that made the winner.
std::map<int, Measurement> default_times(const TuneStore& store, const DeviceInfo& device,
                                         const Winner& winner) {
  const Scene scene{store, device, winner.problem, {winner.toolchain.compiler_version}};
  std::vector<Toolchain> toolchains = scene.toolchains();
  toolchains.push_back(winner.toolchain);
  std::map<int, Measurement> times;
  for (const Toolchain& toolchain : toolchains) {
    for (auto& one : store.measurements(device, winner.problem, toolchain)) {
      if (one.candidate.text() != winner.default_candidate) continue;
      for (Measurement& point : one.points) times.emplace(point.kv_len, std::move(point));
    }
  }
  return times;
}

void add_points(const TuneStore& store, const DeviceInfo* device,
                const std::optional<Ceilings>& ceilings, ReportWinner* one) {
  const Winner& winner = one->winner;
  std::map<int, Measurement> defaults;
  if (device != nullptr) defaults = default_times(store, *device, winner);
  for (const Measurement& measured : winner.measurements) {
    ReportPoint& point = one->points.emplace_back();
    point.served = measured;
    if (const auto known = defaults.find(measured.kv_len); known != defaults.end()) {
      point.fallback = known->second;
    }
    if (ceilings) point.floor_us = judged_floor_us(winner.problem, measured.kv_len, *ceilings);
  }
}

// What is served for the problems that are asked of a GPU: marks winners, lists gaps.
void add_answers(const TuneStore& store, const ReportScope& scope, const DeviceInfo& device,
                 ReportGpu* gpu) {
  std::set<Problem> problems(scope.problems.begin(), scope.problems.end());
  if (problems.empty()) {
    for (const ReportWinner& one : gpu->winners) problems.insert(one.winner.problem);
    for (const StoredRejection& one : gpu->rejections) problems.insert(one.problem);
  }
  for (const Problem& problem : problems) {
    const Scene scene{store, device, problem, {gpu->today.compiler_version}};
    Answer answer = answer_for(scene);
    const bool is_foreign = answer.hit && answer.hit->freshness == Freshness::kOtherGpu;
    if (answer.match != "exact" || is_foreign) {
      gpu->gaps.push_back({problem, is_foreign ? "other gpu" : answer.match, answer.candidate,
                           answer.reason, tune_command(problem, device)});
      continue;
    }
    for (ReportWinner& one : gpu->winners) {
      one.is_served = one.is_served || (one.winner.problem == problem &&
                                        one.winner.toolchain == answer.hit->winner.toolchain &&
                                        one.winner.candidate == answer.hit->winner.candidate);
    }
  }
}

void complete(const TuneStore& store, const ReportScope& scope, ReportGpu* gpu) {
  gpu->today = today_of(scope, *gpu);  // by all winners, whichever are asked for
  std::erase_if(gpu->winners,
                [&](const ReportWinner& one) { return !is_asked(scope, one.winner.problem); });
  std::stable_sort(gpu->winners.begin(), gpu->winners.end(), [](const auto& a, const auto& b) {
    return order_of(a.winner.problem) < order_of(b.winner.problem);
  });
  auto device = device_of_identity(gpu->identity);
  if (device) {
    device->driver_version = gpu->today.driver_version;
    find_ceilings(scope, *device, gpu);
  }
  for (ReportWinner& one : gpu->winners) {
    add_points(store, device ? &*device : nullptr, gpu->ceilings, &one);
    if (!device) continue;
    const Scene scene{store, *device, one.winner.problem, {gpu->today.compiler_version}};
    one.stale = stale_reasons(scene, one.winner);
  }
  if (device) add_answers(store, scope, *device, gpu);
}

// Rejections of the latest tune of each GPU, problem and family.
std::vector<StoredRejection> latest_rejections(const TuneStore& store) {
  const auto tune_of = [](const StoredRejection& one) {
    return std::make_tuple(one.gpu_identity, one.problem, one.record.candidate.family);
  };
  std::vector<StoredRejection> all = store.all_rejections();
  std::map<decltype(tune_of(all.front())), std::pair<std::string, Toolchain>> latest;
  for (const StoredRejection& one : all) {
    auto& [created_at, toolchain] = latest[tune_of(one)];
    if (one.created_at < created_at) continue;
    created_at = one.created_at;
    toolchain = one.toolchain;
  }
  std::erase_if(all, [&](const StoredRejection& one) {
    return latest.at(tune_of(one)).second != one.toolchain;
  });
  return all;
}

}  // namespace

double judged_floor_us(const Problem& problem, int kv_len, const Ceilings& ceilings) {
  const auto batches = judged_lengths(problem, kv_len);
  double sum = 0;
  for (const std::vector<int>& kv_lens : batches) sum += floor_us(problem, kv_lens, ceilings);
  return sum / static_cast<double>(batches.size());
}

MeasuredCeilings read_ceilings(const std::string& file) {
  std::ifstream stream(file);
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  try {
    const Json& gpu = json.at("gpu");
    MeasuredCeilings read{gpu.at("name"),
                          gpu.at("arch"),
                          gpu.at("sms"),
                          {.read_bytes_per_s = json.at("read_bytes_per_s"),
                           .tensor_flops_per_s = json.at("tensor_flops_per_s")}};
    if (read.ceilings.read_bytes_per_s > 0 && read.ceilings.tensor_flops_per_s > 0) return read;
  } catch (const Json::exception&) {
    // the same message for whatever is wrong with it
  }
  throw InvalidArgument("cannot read the rates of a GPU", fmt::format("file={}", file),
                        "name what 'attune bench PROBLEM --json' wrote on that GPU");
}

TuningReport tuning_report(const TuneStore& store, const ReportScope& scope) {
  TuningReport report;
  report.cache_path = store.path();
  report.base_paths = store.base_paths();
  report.created_at = utc_timestamp();
  std::map<std::string, ReportGpu> gpus;
  for (auto& [identity, winner] : store.winners()) {
    if (!is_gpu_named(identity, scope.gpu)) continue;
    gpus[identity].winners.emplace_back().winner = std::move(winner);
  }
  for (StoredRejection& one : latest_rejections(store)) {
    if (!is_gpu_named(one.gpu_identity, scope.gpu) || !is_asked(scope, one.problem)) continue;
    gpus[one.gpu_identity].rejections.push_back(std::move(one));
  }
  for (auto& [identity, gpu] : gpus) {
    gpu.identity = identity;
    complete(store, scope, &gpu);
    report.gpus.push_back(std::move(gpu));
  }
  return report;
}

std::vector<RejectionGroup> group_rejections(const std::vector<StoredRejection>& rejections) {
  std::map<std::pair<Stage, RejectReason>, RejectionGroup> groups;
  for (std::size_t i = 0; i < rejections.size(); ++i) {
    const RejectionRecord& record = rejections[i].record;
    RejectionGroup& group = groups[{record.stage, record.rejection.reason}];
    group.stage = record.stage;
    group.reason = record.rejection.reason;
    group.rows.push_back(i);
  }
  std::vector<RejectionGroup> ordered;
  for (auto& [key, group] : groups) ordered.push_back(std::move(group));
  // What broke after a compile was paid for comes before what pruning left out.
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    const bool a_pruned = a.stage == Stage::kPrune, b_pruned = b.stage == Stage::kPrune;
    return a_pruned != b_pruned ? b_pruned : a.rows.size() > b.rows.size();
  });
  return ordered;
}

}  // namespace attune
