#include "tuner/tune_worker.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/text.h"
#include "jit/compile_pool.h"
#include "jit/device_choice.h"
#include "jit/machine_limits.h"
#include "tuner/isolated_measure.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

// Of the compile workers that attune tune would start: memory and cores are the application's too.
constexpr int kShare = 2;

constexpr const char* kForm =
    "the form is --problem P --cache FILE [--cache-base FILE]... --cache-max-bytes N --device D "
    "--gpu IDENTITY --nvrtc PATH --cxx PATH "
    "--worker PATH --measure-worker PATH --scratch FOLDER --budget-ms N --refresh 0|1 "
    "--disable-families A,B";

[[noreturn]] void bad_argument(std::string_view name, std::string_view value) {
  throw InvalidArgument("cannot read an argument of the tune worker",
                        fmt::format("{} '{}'", name, value), kForm);
}

std::int64_t number(std::string_view name, std::string_view value) {
  const auto parsed = parse_int(value);
  if (!parsed || *parsed < 0) bad_argument(name, value);
  return *parsed;
}

std::vector<std::string> names_of(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string_view name : split(list, ',')) {
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

void set(TuneWorkerJob* job, std::string_view name, const std::string& value) {
  if (name == "--problem") {
    job->problem = value;
  } else if (name == "--cache") {
    job->cache_path = value;
  } else if (name == "--cache-base") {
    job->cache_bases.push_back(value);
  } else if (name == "--cache-max-bytes") {
    job->cache_max_bytes = static_cast<std::size_t>(number(name, value));
  } else if (name == "--device") {
    job->device = value;
  } else if (name == "--gpu") {
    job->gpu = value;
  } else if (name == "--nvrtc") {
    job->nvrtc_path = value;
  } else if (name == "--cxx") {
    job->cxx_path = value;
  } else if (name == "--worker") {
    job->worker_path = value;
  } else if (name == "--measure-worker") {
    job->measure_worker_path = value;
  } else if (name == "--scratch") {
    job->scratch = value;
  } else if (name == "--budget-ms") {
    job->budget_s = static_cast<double>(number(name, value)) / 1000;
  } else if (name == "--refresh") {
    job->refresh = number(name, value) != 0;
  } else if (name == "--disable-families") {
    job->disabled_families = names_of(value);
  } else {
    bad_argument(name, value);
  }
}

// Another GPU would give winners that the engine, which waits for its own, never finds.
void require_same_gpu(const DeviceInfo& device, const TuneWorkerJob& job) {
  const std::string identity = device.identity();
  if (job.gpu.empty() || job.gpu == identity) return;
  throw DeviceUnavailable(
      "the tune worker sees another device than the engine",
      fmt::format("device={} worker={} engine={}", job.device, identity, job.gpu),
      "name the engine's device in Options::device");
}

TuneWorkerEnd tune(const TuneWorkerJob& job, const std::function<bool()>& stop) {
  const Problem problem = Problem::parse(job.problem);
  const DeviceInfo device = describe_device(DeviceChoice::parse(job.device));
  require_same_gpu(device, job);
  CompilePoolOptions pool_options;
  pool_options.worker_path = job.worker_path;
  const MachineLimits limits = machine_limits();
  pool_options.num_workers = std::max(1, worker_count(limits.cores, limits.free_bytes) / kShare);
  pool_options.compilers = {.nvrtc = {job.nvrtc_path, {}}, .host = {.cxx = job.cxx_path}};
  const auto compiler = open_compiler(pool_options.compilers, device.arch);
  CompilePool pool(pool_options);
  const auto store = TuneStore::open(job.cache_path, {},
                                     {.bases = {job.cache_bases.begin(), job.cache_bases.end()},
                                      .max_bytes = job.cache_max_bytes});
  if (store->is_read_only()) {
    throw CacheError("cannot store what would be tuned",
                     fmt::format("path={} is read-only", store->path()));
  }
  TuneOptions options;
  options.budget_s = job.budget_s;
  options.refresh = job.refresh;
  options.disabled_families = job.disabled_families;
  options.stop = stop;
  IsolatedMeasure measure({.worker_path = job.measure_worker_path, .device = job.device}, device);
  const TuneReport report = Tuner(&measure, *store, *compiler, pool).tune({problem}, options);
  if (report.interrupted) return {TuneWorkerExit::kStopped, "stopped"};
  if (!report.failures.empty()) return {TuneWorkerExit::kFailed, report.failures.front()};
  if (!report.complete) return {TuneWorkerExit::kBudget, "the time ended first"};
  return {};
}

}  // namespace

std::vector<std::string> arguments_of(const TuneWorkerJob& job) {
  std::string disabled;
  for (const std::string& name : job.disabled_families) {
    disabled += (disabled.empty() ? "" : ",") + name;
  }
  std::vector<std::string> arguments = {
      "--problem",
      job.problem,
      "--cache",
      job.cache_path,
      "--cache-max-bytes",
      std::to_string(job.cache_max_bytes),
      "--device",
      job.device,
      "--gpu",
      job.gpu,
      "--nvrtc",
      job.nvrtc_path,
      "--cxx",
      job.cxx_path,
      "--worker",
      job.worker_path,
      "--measure-worker",
      job.measure_worker_path,
      "--scratch",
      job.scratch,
      "--budget-ms",
      std::to_string(std::llround(std::ceil(job.budget_s * 1000))),
      "--refresh",
      job.refresh ? "1" : "0",
      "--disable-families",
      disabled};
  for (const std::string& base : job.cache_bases) {
    arguments.insert(arguments.end(), {"--cache-base", base});
  }
  return arguments;
}

TuneWorkerJob parse_tune_worker_arguments(std::span<const std::string> arguments) {
  TuneWorkerJob job;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    if (i + 1 == arguments.size()) bad_argument(arguments[i], "");
    set(&job, arguments[i], arguments[i + 1]);
  }
  if (job.problem.empty()) bad_argument("--problem", "");
  if (job.cache_path.empty()) bad_argument("--cache", "");
  if (job.device.empty()) bad_argument("--device", "");
  return job;
}

TuneWorkerEnd run_tune_worker(const TuneWorkerJob& job, const std::function<bool()>& stop) {
  try {
    return tune(job, stop);
  } catch (const InvalidArgument& error) {
    return {TuneWorkerExit::kUsage, error.what()};
  } catch (const DeviceUnavailable& error) {
    return {TuneWorkerExit::kNoDevice, error.what()};
  } catch (const std::exception& error) {
    return {TuneWorkerExit::kFailed, error.what()};
  }
}

}  // namespace attune
