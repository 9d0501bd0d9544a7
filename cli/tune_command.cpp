#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/readiness.h"
#include "cli/stored_results.h"
#include "cli/tune_report.h"
#include "common/error.h"
#include "jit/host/host_info.h"
#include "tuner/shard.h"
#include "tuner/stored_compiles.h"

namespace attune {
namespace {

constexpr const char* kExamples = R"(Examples:
  attune tune                                       the preset gemma4-31b on GPU 0
  attune tune --preset gemma4-12b --tp 2 --budget 5m
  attune tune --effort exhaustive                   every candidate, not the promising ones
  attune tune --preset path/to/mine.yaml --cache tune.db
  attune tune --problem decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16
  attune tune --compile-only --arch sm_90a          on a machine without a GPU
  attune tune --measure-only                        on the GPU, with the stored binaries alone
  attune tune --check                               is everything tuned? changes nothing
  attune tune --shard 0/4                           a quarter of the work (examples/fleet)
  attune tune --preset host-small --device host     the whole job on the CPU
Exit codes: 0 done, 1 a problem has no winner, 3 no usable GPU, 4 the budget ended first or binaries are
missing, 130 Ctrl-C. Of --check: 0 complete, 4 some are served but would be timed again, 1 some are missing.)";

struct TuneFlags {
  ProblemFlags problems;
  std::optional<DeviceChoice> device;
  std::string budget;
  std::string effort = std::string(name_of(Effort::kNormal));
  std::string candidate_timeout;
  bool compile_only = false;
  bool measure_only = false;
  bool check = false;
  std::string gpu;    // of --check
  std::string shard;  // "i/n"
  std::string arch;
  int num_jobs = 0;
  bool refresh = false;
  std::uint64_t seed = 1;
  bool json = false;
};

// The architecture to compile for when nothing can be timed; empty when there is a GPU to use.
std::string arch_without_gpu(const TuneFlags& flags, const std::optional<DeviceChoice>& device,
                             const Log& log) {
  const std::string arch = flags.arch.empty() ? kDefaultArch : flags.arch;
  if (flags.compile_only) return arch;
  if (device) return {};  // asked for: its absence is an error
  const DriverStatus driver = query_driver();
  if (driver.loaded && driver.num_devices > 0) {
    if (!flags.arch.empty()) {
      throw InvalidArgument("--arch does not go with a GPU", fmt::format("arch={}", flags.arch),
                            "add --compile-only, or leave --arch out to tune on GPU 0");
    }
    return {};
  }
  architecture_limits(arch);  // refuses an unknown one before anything is promised
  log.note(driver.problem.empty() ? "the driver sees no GPU" : driver.problem);
  log.note(fmt::format(
      "no usable GPU: compiling every candidate for {} now; a later attune tune on a "
      "GPU with this cache verifies and times them; --device host does both on this CPU",
      arch));
  return arch;
}

// Work that could not be stored is refused before it is done.
void require_writable(const TuneStore& store, const DeviceInfo& gpu,
                      const std::vector<Problem>& problems, const std::string& compiler_version) {
  if (!store.is_read_only()) return;
  for (const Problem& problem : problems) {
    const auto hit = find_served(Scene::of(store, gpu, problem, compiler_version));
    if (hit && hit->match == Match::kExact && hit->freshness == Freshness::kFresh) continue;
    throw CacheError("cannot store what would be tuned",
                     fmt::format("path={} is read-only problem={}", store.path(), problem.text()),
                     "name another file with --cache");
  }
}

std::size_t count_binaries(const TuneStore& store, const std::string& arch) {
  std::size_t count = 0;
  for (const BinaryRow& row : store.binaries()) count += row.arch == arch && !row.failed ? 1 : 0;
  return count;
}

// The problems of the command line, or this shard's share of them.
std::vector<Problem> problems_of(const TuneFlags& flags) {
  const std::vector<Problem> problems = flags.problems.resolve();
  return flags.shard.empty() ? problems : problems_of_shard(problems, Shard::parse(flags.shard));
}

// What the flags say, read before a device or a file is looked for.
struct TuneRequest {
  std::vector<Problem> problems;
  std::optional<double> budget_s, candidate_timeout_s;
};

TuneRequest request_of(const TuneFlags& flags) {
  TuneRequest request;
  request.problems = problems_of(flags);
  if (!flags.budget.empty()) request.budget_s = parse_duration(flags.budget);
  if (!flags.candidate_timeout.empty()) {
    request.candidate_timeout_s = parse_duration(flags.candidate_timeout);
  }
  if (!flags.arch.empty()) architecture_limits(flags.arch);
  return request;
}

// Without a context: a look must not take memory from who works there.
DeviceInfo device_to_check(const TuneFlags& flags, const std::optional<DeviceChoice>& device,
                           const TuneStore& store) {
  if (!flags.gpu.empty()) return stored_gpu(store, flags.gpu);
  const DeviceChoice choice = device.value_or(DeviceChoice{});
  if (choice.host) return host_device_info(*choice.host);
  const auto devices = list_devices();
  if (choice.ordinal < static_cast<int>(devices.size())) {
    return devices[static_cast<std::size_t>(choice.ordinal)];
  }
  throw DeviceUnavailable("there is no such GPU to check for",
                          fmt::format("device={} devices={}", choice.ordinal, devices.size()),
                          "name one that the cache has results of with --gpu");
}

int check(const Workplace& workplace, const TuneFlags& flags) {
  const TuneRequest request = request_of(flags);
  const auto store = workplace.open_cache_unchanged();
  const auto device = flags.device ? flags.device : workplace.device_of_environment();
  const DeviceInfo info = device_to_check(flags, device, *store);
  // Results for another GPU were made with the compiler of another machine.
  const CompilerOrReason found =
      flags.gpu.empty() ? find_compiler(workplace.compilers(), info.arch) : CompilerOrReason{};
  const Readiness outcome =
      readiness_of(*store, info, request.problems, found.compiler ? found.compiler->version() : "");
  if (flags.json) {
    print_json(readiness_json(outcome));
  } else {
    print_text(readiness_text(outcome));
  }
  return readiness_exit_code(outcome);
}

IsolatedMeasureOptions measure_options(const Workplace& workplace, const TuneRequest& request,
                                       const DeviceChoice& choice) {
  IsolatedMeasureOptions options = workplace.measure_options(choice);
  if (request.candidate_timeout_s) options.candidate_timeout_s = *request.candidate_timeout_s;
  return options;
}

// Verifies and times the stored binaries.
TuneOutcome measure_stored(const Workplace& workplace, const TuneRequest& request,
                           const DeviceChoice& choice, const TuneOptions& options) {
  const std::vector<Problem>& problems = request.problems;
  TuneOutcome outcome;
  outcome.device = describe_device(choice);
  const auto store = workplace.open_cache();
  if (!problems.empty()) {
    StoredCompiles compiles(stored_compiler_version(*store, problems, outcome.device));
    require_writable(*store, outcome.device, problems, compiles.compiler_version());
    IsolatedMeasure measure(measure_options(workplace, request, choice), outcome.device);
    outcome.report = Tuner(&measure, *store, compiles).tune(problems, options);
    outcome.missing.assign(compiles.missing().begin(), compiles.missing().end());
  }
  outcome.cache_path = store->path();
  outcome.num_binaries = count_binaries(*store, outcome.device.arch);
  return outcome;
}

// The library's work between opening and reporting.
TuneOutcome tune_or_compile(const Workplace& workplace, const TuneFlags& flags,
                            const TuneRequest& request, const DeviceChoice& choice,
                            const std::string& arch, const TuneOptions& options) {
  const std::vector<Problem>& problems = request.problems;
  TuneOutcome outcome;
  outcome.compiled_only = !arch.empty();
  outcome.device = outcome.compiled_only ? architecture_limits(arch) : describe_device(choice);
  const auto compiler = open_compiler(workplace.compilers(), outcome.device.arch);
  CompilePool pool(workplace.pool_options(flags.num_jobs));
  const auto store = workplace.open_cache();
  if (outcome.compiled_only && store->is_read_only()) {
    throw CacheError("cannot store binaries", fmt::format("path={} is read-only", store->path()),
                     "name another file with --cache");
  }
  std::unique_ptr<IsolatedMeasure> measure;
  if (!outcome.compiled_only) {
    measure = std::make_unique<IsolatedMeasure>(measure_options(workplace, request, choice),
                                                outcome.device);
  }
  if (measure != nullptr && !flags.refresh) {
    require_writable(*store, outcome.device, problems, compiler->version());
  }
  Tuner tuner(measure.get(), *store, *compiler, pool);
  outcome.report = outcome.compiled_only ? tuner.compile_all(problems, arch, options)
                                         : tuner.tune(problems, options);
  outcome.cache_path = store->path();
  outcome.num_binaries = count_binaries(*store, outcome.device.arch);
  if (problems.size() == 1 && !outcome.compiled_only) {
    outcome.problem = problems.front();
    outcome.candidates =
        candidate_rows(Scene::of(*store, outcome.device, outcome.problem, compiler->version()));
  }
  return outcome;
}

int tune(const Workplace& workplace, const TuneFlags& flags) {
  const TuneRequest request = request_of(flags);
  TuneOptions options;
  if (request.budget_s) options.budget_s = *request.budget_s;
  options.refresh = flags.refresh;
  options.effort = *parse_effort(flags.effort);  // checked with the flags
  options.seed = flags.seed;
  options.disabled_families = workplace.options.disabled_families;
  if (flags.problems.is_default()) {
    workplace.log.note(fmt::format("no problem is named: the preset {}", kDefaultPreset));
  }
  Progress progress(std::cerr, isatty(STDERR_FILENO) == 1);
  const ClearedFor cleared(workplace.log, progress);
  const Interrupt interrupt(workplace.log);
  const auto device = flags.device ? flags.device : workplace.device_of_environment();
  const std::string arch = flags.measure_only ? "" : arch_without_gpu(flags, device, workplace.log);
  options.progress = [&progress](const TuneProgress& step) { progress.update(step); };
  options.stop = [&interrupt] { return interrupt.requested(); };
  const DeviceChoice choice = device.value_or(DeviceChoice{});
  const TuneOutcome outcome =
      flags.measure_only ? measure_stored(workplace, request, choice, options)
                         : tune_or_compile(workplace, flags, request, choice, arch, options);
  progress.clear();
  if (flags.json) {
    print_json(tune_json(outcome));
  } else {
    print_text(tune_text(outcome));
  }
  return tune_exit_code(outcome.report, interrupt.exit_code());
}

}  // namespace

void add_tune_command(CLI::App* app, Workplace* workplace, Action* action) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* command =
      app->add_subcommand("tune", "Find and store the fastest right kernel of each problem");
  flags->problems.add_to(command);
  workplace->add_cache_flag(command);
  auto* device = add_device_flag(command, &flags->device, "Device to tune on (default: GPU 0)");
  command->add_option("--budget", flags->budget, "Stop after this long: 90, 90s, 5m, 1h");
  command->add_option("--candidate-timeout", flags->candidate_timeout,
                      "End a candidate that runs this long: 30s (default: by its work)");
  command
      ->add_option("--effort", flags->effort,
                   "Candidates and samples: quick, normal (default), exhaustive")
      ->check(CLI::IsMember({"quick", "normal", "exhaustive"}));
  auto* compile_only =
      command
          ->add_flag("--compile-only", flags->compile_only,
                     "Compile every candidate and store the binaries; needs no GPU")
          ->excludes(device);
  auto* arch = command->add_option("--arch", flags->arch,
                                   "Architecture to compile for without a GPU (default sm_90a)");
  auto* measure_only =
      command
          ->add_flag("--measure-only", flags->measure_only,
                     "Verify and time what --compile-only has stored; needs no compiler")
          ->excludes(compile_only)
          ->excludes(arch);
  auto* check_only = command
                         ->add_flag("--check", flags->check,
                                    "Say whether all is tuned for this GPU; changes nothing")
                         ->excludes(compile_only)
                         ->excludes(measure_only)
                         ->excludes(arch);
  command->add_option("--gpu", flags->gpu, "With --check: a GPU of the cache, by part of its name")
      ->needs(check_only)
      ->excludes(device);
  command->add_option("--shard", flags->shard, "Share i of n of the work, i from 0")
      ->type_name("i/n");
  command->add_option("--jobs", flags->num_jobs, "Compile workers (default: by cores and memory)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--refresh", flags->refresh, "Tune again what has a winner");
  command->add_option("--seed", flags->seed, "Of the verification inputs (default 1)");
  command->add_flag("--json", flags->json, "Print the result as one JSON document");
  command->footer(kExamples);
  command->callback([=] {
    *action = [=] { return flags->check ? check(*workplace, *flags) : tune(*workplace, *flags); };
  });
}

}  // namespace attune
