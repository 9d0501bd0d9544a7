#include "cli/stored_results.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "jit/model_source.h"
#include "templates/launch_plan.h"
#include "tuner/compile_stage.h"
#include "tuner/cost_model.h"
#include "tuner/select.h"
#include "tuner/space.h"
#include "tuner/timer.h"

namespace attune {
namespace {

// Registers of a compiled split kernel, 0 when the cache does not have it.
int registers_of(const Scene& scene, const Candidate& candidate) {
  const Source source = variant_source(candidate.variant(scene.problem));
  const std::string& arch = scene.gpu.arch;
  for (const std::string& version : scene.compiler_versions) {
    const auto binary =
        scene.store.find_binary(source_key(source, arch, compile_options(arch), version));
    if (!binary) continue;
    for (const KernelResources& kernel : binary->kernels) {
      if (kernel.symbol == source.split_symbol) return kernel.registers;
    }
  }
  return 0;
}

std::vector<CandidateMeasurements> all_measurements(const Scene& scene) {
  std::vector<CandidateMeasurements> all;
  for (const Toolchain& toolchain : scene.toolchains()) {
    auto measured = scene.store.measurements(scene.gpu, scene.problem, toolchain);
    all.insert(all.end(), measured.begin(), measured.end());
  }
  return all;
}

// Timed ones by regret, partly timed ones, untimed ones, rejected ones; ties by text.
auto order_of(const CandidateRow& row) {
  const int group = row.rejected ? 3 : row.worst_regret ? 0 : row.points.empty() ? 2 : 1;
  return std::make_tuple(group, row.worst_regret.value_or(0), row.candidate);
}

// Adds what was measured to the rows.
void add_times(const Scene& scene, std::vector<CandidateRow>* rows) {
  const auto measured = all_measurements(scene);
  const auto regrets = worst_regrets(measured, kv_points(scene.problem.kv));
  for (CandidateRow& row : *rows) {
    for (const CandidateMeasurements& one : measured) {
      if (one.candidate == row.candidate) row.points = one.points;
    }
    if (const auto regret = regrets.find(row.candidate); regret != regrets.end()) {
      row.worst_regret = regret->second;
    }
  }
}

std::map<Candidate, RejectionRecord> rejections_after_pruning(const Scene& scene) {
  std::map<Candidate, RejectionRecord> rejections;
  for (const Toolchain& toolchain : scene.toolchains()) {
    for (const auto& record : scene.store.rejections(scene.gpu, scene.problem, toolchain)) {
      if (record.stage != Stage::kPrune) rejections.emplace(record.candidate, record);
    }
  }
  return rejections;
}

}  // namespace

Scene Scene::of(const TuneStore& store, const DeviceInfo& gpu, const Problem& problem,
                const std::string& compiler_version) {
  Scene scene{store, gpu, problem, {}};
  if (!compiler_version.empty()) {
    scene.compiler_versions.insert(compiler_version);
    return scene;
  }
  scene.compiler_versions = store.compiler_versions(gpu);
  return scene;
}

std::vector<Toolchain> Scene::toolchains() const {
  std::vector<Toolchain> all;
  for (const Family& family : families_of(problem.op)) {
    for (const std::string& version : compiler_versions) {
      all.push_back(toolchain_of(family, gpu.arch, version));
    }
  }
  return all;
}

std::optional<WinnerHit> find_served(const Scene& scene) {
  std::optional<WinnerHit> best;
  for (const Toolchain& toolchain : scene.toolchains()) {
    auto hit = scene.store.find_winner(scene.gpu, scene.problem, toolchain, kTimingMethod);
    if (hit && (!best || serves_better(*hit, *best))) best = std::move(hit);
  }
  return best;
}

std::vector<CandidateRow> candidate_rows(const Scene& scene) {
  const CandidateSpace space = candidate_space(scene.problem, scene.gpu);
  const auto rejections = rejections_after_pruning(scene);
  std::vector<CandidateRow> rows;
  for (const Candidate& candidate : ranked(scene.problem, space.kept, scene.gpu)) {
    CandidateRow& row = rows.emplace_back();
    row.candidate = candidate;
    row.rank = rows.size();
    const auto rejected = rejections.find(candidate);
    if (rejected != rejections.end()) row.rejected = rejected->second;
    row.registers = registers_of(scene, candidate);
    row.smem_bytes = plan_launch(scene.problem, candidate).split.smem_bytes;
  }
  for (const PrunedCandidate& pruned : space.pruned) {
    CandidateRow& row = rows.emplace_back();
    row.candidate = pruned.candidate;
    row.rejected = RejectionRecord{pruned.candidate, Stage::kPrune, pruned.rejection};
  }
  add_times(scene, &rows);
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
  return rows;
}

}  // namespace attune
