#include "runtime/dispatch.h"

#include <algorithm>

#include <fmt/format.h>

#include "cache/compile_claims.h"
#include "jit/compile_pool.h"
#include "jit/host/host_target.h"
#include "jit/model_source.h"
#include "templates/model_plan.h"
#include "tuner/compile_stage.h"
#include "tuner/isolated_measure.h"
#include "tuner/select.h"
#include "tuner/space.h"
#include "tuner/timer.h"
#include "tuner/tuner.h"

namespace attune {
std::optional<std::string> why_not_servable(const Problem& problem, const Candidate& candidate,
                                            const DeviceInfo& device) {
  const Family* family = find_family(candidate.family);
  if (family == nullptr) return fmt::format("family={} is unknown", candidate.family);
  if (device.compute_capability() < family->min_compute_capability) {
    return fmt::format("compute_capability={} least={}", device.compute_capability(),
                       family->min_compute_capability);
  }
  if (!family->only_arch.empty() && device.arch != family->only_arch &&
      !is_host_arch(device.arch)) {
    return fmt::format("arch={} needed={}", device.arch, family->only_arch);
  }
  if (const auto unsupported = family->supports(problem, candidate.config)) {
    return unsupported->detail;
  }
  if (const auto limit = launch_limits(problem, candidate)) return limit->detail;
  const LaunchPlan plan = plan_launch(problem, candidate);
  if (plan.split.smem_bytes > device.max_smem_per_block_bytes) {
    return fmt::format("smem_bytes={} limit={}", plan.split.smem_bytes,
                       device.max_smem_per_block_bytes);
  }
  if (static_cast<int>(plan.split.block.x) > device.max_threads_per_block) {
    return fmt::format("threads={} limit={}", plan.split.block.x, device.max_threads_per_block);
  }
  return std::nullopt;
}

std::string tune_command(const Problem& problem, const DeviceInfo& device) {
  const std::string on = is_host_arch(device.arch) ? fmt::format(" --device {}", device.arch) : "";
  return fmt::format("attune tune --problem '{}'{}", problem.text(), on);
}

Dispatcher::Dispatcher(const Options& options, Device& device)
    : options_(options), device_(device) {}

void Dispatcher::warn(const std::string& message) const {
  if (options_.log) options_.log(message);
}

std::string device_text(const Options& options, const DeviceInfo& device) {
  if (is_host_arch(device.arch)) return device.arch;
  return options.device.empty() ? std::to_string(options.device_ordinal) : options.device;
}

const Compiler* Dispatcher::compiler() {
  if (!compiler_ && compiler_problem_.empty()) {
    try {
      compiler_ = open_compiler(compilers(), device_.info().arch);
    } catch (const DeviceUnavailable& error) {
      compiler_problem_ = error.what();
    }
  }
  return compiler_.get();
}

CompilerSearch Dispatcher::compilers() const {
  return {.nvrtc = {options_.nvrtc_path, {}}, .host = {.cxx = options_.cxx_path}};
}

Dispatched Dispatcher::dispatch(const Problem& problem, TuneStore& store) {
  const bool in_background = options_.on_miss == OnMiss::kBackground;
  auto hit = find_winner(problem, store);
  if (options_.on_miss == OnMiss::kTune && hit && hit->freshness == Freshness::kOtherGpu) {
    tune(problem, store, false);
    hit = find_winner(problem, store);
  }
  auto found = from_winner(problem, std::move(hit), store);
  if (auto* served = std::get_if<Dispatched>(&found)) {
    if (in_background && served->choice.served != Served::kExact) {
      served->wish = wish_for(*served, false, store);
    }
    return std::move(*served);
  }
  Miss miss = std::get<Miss>(std::move(found));
  if (options_.on_miss == OnMiss::kError) {
    throw NotPrepared(miss.what_failed, miss.values, "tune it with " + miss.command);
  }
  if (options_.on_miss == OnMiss::kTune) {
    tune(problem, store, miss.unusable);
    found = from_winner(problem, find_winner(problem, store), store);
    if (auto* served = std::get_if<Dispatched>(&found)) return std::move(*served);
  }
  Dispatched served = from_default(problem, miss, store);
  if (in_background) served.wish = wish_for(served, miss.unusable, store);
  return served;
}

Dispatched Dispatcher::exact_winner(const Problem& problem, TuneStore& store) {
  auto hit = find_winner(problem, store);
  if (!hit || !hit->is_exact()) {
    throw NotPrepared("no winner for this problem",
                      fmt::format("problem={} cache={}", problem.text(), store.path()));
  }
  auto loaded = load_winner(problem, *std::move(hit));
  if (const auto* miss = std::get_if<Miss>(&loaded)) {
    throw NotPrepared(miss->what_failed, miss->values);
  }
  return std::get<Dispatched>(std::move(loaded));
}

BackgroundWish Dispatcher::wish_for(const Dispatched& served, bool refresh,
                                    const TuneStore& store) const {
  const Choice& choice = served.choice;
  BackgroundWish wish;
  wish.refresh = refresh;
  wish.workspace_bytes = choice.plan.workspace_bytes();
  wish.cache_bases = store.base_paths();
  if (store.is_read_only()) {
    wish.cache_bases.insert(wish.cache_bases.begin(), store.path());
  } else if (!store.is_in_memory()) {
    wish.cache_path = store.path();
  }
  const CandidateSpace space =
      candidate_space(choice.problem, device_.info(), options_.disabled_families);
  for (const Candidate& candidate : space.kept) {
    wish.workspace_bytes =
        std::max(wish.workspace_bytes, plan_launch(choice.problem, candidate).workspace_bytes());
  }
  return wish;
}

void Dispatcher::drop_unused() {
  std::erase_if(loaded_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

std::variant<Dispatched, Miss> Dispatcher::from_winner(const Problem& problem,
                                                       std::optional<WinnerHit> hit,
                                                       const TuneStore& store) {
  if (hit) return load_winner(problem, *std::move(hit));
  const auto& off = options_.disabled_families;
  return Miss{.what_failed = "no winner for this problem",
              .values = fmt::format(
                  "problem={} gpu={} cache={}{}", problem.text(), device_.info().name, store.path(),
                  off.empty() ? "" : fmt::format(" disabled_families={}", fmt::join(off, ","))),
              .command = tune_command(problem, device_.info())};
}

LaunchPlan Dispatcher::plan_of(const Problem& problem, const Candidate& candidate) const {
  LaunchPlan plan = plan_launch(problem, candidate);
  if (problem.is_linear()) {
    plan.split = plan_linear(problem.linear, candidate.config, device_.info().num_sms).launch;
  }
  return plan;
}

std::optional<WinnerHit> Dispatcher::find_winner(const Problem& problem, TuneStore& store) {
  std::optional<WinnerHit> best;
  try {
    for (const Family& family : families_of(problem.op)) {
      if (is_disabled(family, options_.disabled_families)) continue;
      Toolchain toolchain = toolchain_of(family, device_.info().arch, {});
      for (const std::string& version : compiler_versions(store)) {
        toolchain.compiler_version = version;
        auto hit = store.find_winner(device_.info(), problem, toolchain, kTimingMethod);
        if (hit && (!best || serves_better(*hit, *best))) best = std::move(hit);
      }
    }
  } catch (const CacheError& error) {
    warn(error.what());
  }
  return best;
}

// The version in use; without a compiler nothing can be compiled anew, and a stored winner of any
// version of the same template is as right as it ever was.
std::set<std::string> Dispatcher::compiler_versions(TuneStore& store) {
  if (const Compiler* found = compiler()) return {found->version()};
  return store.compiler_versions(device_.info());
}

std::variant<Dispatched, Miss> Dispatcher::load_winner(const Problem& problem, WinnerHit hit) {
  Winner& winner = hit.winner;
  const auto miss = [&](std::string_view reason) {
    return Miss{.what_failed = "cannot use the winner of this problem",
                .values = fmt::format("problem={} winner={} of {} {}", problem.text(),
                                      winner.candidate.text(), winner.problem.text(), reason),
                .command = tune_command(problem, device_.info()) + " --refresh",
                .unusable = true};
  };
  if (const auto reason = why_not_servable(problem, winner.candidate, device_.info())) {
    return miss(*reason);
  }
  Dispatched served;
  const LaunchPlan plan = plan_of(problem, winner.candidate);
  try {
    served.kernels = load(winner.binary, winner.candidate.variant(problem), plan);
  } catch (const Error& error) {
    return miss(error.what());
  }
  if (hit.freshness == Freshness::kStaleDriver) {
    warn(
        fmt::format("stale winner: problem={} timed with driver={} now driver={}; re-time it with "
                    "{}",
                    problem.text(), winner.driver_version, device_.info().driver_version,
                    tune_command(problem, device_.info())));
  }
  if (hit.freshness == Freshness::kOtherGpu) {
    warn(fmt::format(
        "provisional winner: problem={} timed on the GPU that the alias '{}' names; tune "
        "it here with {}",
        problem.text(), options_.gpu_alias, tune_command(problem, device_.info())));
  }
  if (winner.problem.seqlen_q != problem.seqlen_q) {
    warn(
        fmt::format("no winner for this number of query tokens: problem={} using the winner of "
                    "{}; tune it with {}",
                    problem.text(), winner.problem.text(), tune_command(problem, device_.info())));
  }
  winner.binary.cubin = {};
  served.choice = {.problem = problem,
                   .candidate = winner.candidate,
                   .plan = plan,
                   .served = hit.is_exact() ? Served::kExact : Served::kNearest,
                   .winner = std::move(winner),
                   .freshness = hit.freshness};
  return served;
}

// `refresh`: there is a winner that cannot be loaded, which the tuner would keep.
void Dispatcher::tune(const Problem& problem, TuneStore& store, bool refresh) {
  try {
    const Compiler* found = compiler();
    if (found == nullptr) throw DeviceUnavailable(compiler_problem_);
    CompilePool pool({.worker_path = options_.worker_path, .compilers = compilers()});
    IsolatedMeasure measure({.worker_path = options_.measure_worker_path,
                             .device = device_text(options_, device_.info())},
                            device_.info());
    Tuner tuner(&measure, store, *found, pool);
    TuneOptions tune_options;
    tune_options.budget_s = options_.tune_budget_s;
    tune_options.refresh = refresh;
    tune_options.disabled_families = options_.disabled_families;
    const TuneReport report = tuner.tune({problem}, tune_options);
    num_compiles_ += report.num_compiled;
    for (const std::string& failure : report.failures) {
      warn(fmt::format("tuning found no winner: {}", failure));
    }
  } catch (const Error& error) {
    warn(fmt::format("cannot tune this problem: problem={} {}", problem.text(), error.what()));
  }
}

Dispatched Dispatcher::from_default(const Problem& problem, const Miss& miss, TuneStore& store) {
  Dispatched served;
  served.choice.problem = problem;
  served.choice.candidate = default_candidate(problem, device_.info(), options_.disabled_families);
  served.choice.plan = plan_of(problem, served.choice.candidate);
  served.kernels = load_default(served.choice, miss, store);
  const std::string then = options_.on_miss == OnMiss::kBackground
                               ? "while it is tuned in the background"
                               : "tune it with " + miss.command;
  warn(fmt::format("{}: {}; serving the default {}, {}", miss.what_failed, miss.values,
                   served.choice.candidate.text(), then));
  return served;
}

std::shared_ptr<const AttentionKernels> Dispatcher::load_default(const Choice& choice,
                                                                 const Miss& miss,
                                                                 TuneStore& store) {
  const Variant variant = choice.candidate.variant(choice.problem);
  const Source source = variant_source(variant);
  for (const Digest& key : keys_of(source, store)) {
    const auto stored = find_binary(key, store);
    if (!stored) continue;
    try {
      return load(*stored, variant, choice.plan);
    } catch (const Error& error) {
      warn(fmt::format("cannot load a stored binary: variant={} {}; compiling it again",
                       variant.text(), error.what()));
    }
  }
  if (compiler() == nullptr) {
    throw DeviceUnavailable(miss.what_failed + ", and its default cannot be compiled",
                            fmt::format("{}; {}", miss.values, compiler_problem_),
                            "or tune it elsewhere with " + miss.command);
  }
  return load(compile(source, variant.text(), store), variant, choice.plan);
}

Module Dispatcher::load_module(const Source& source, TuneStore& store) {
  const std::string& label = source.symbols.front();
  for (const Digest& key : keys_of(source, store)) {
    const auto stored = find_binary(key, store);
    if (!stored) continue;
    try {
      return device_.load(*stored);
    } catch (const Error& error) {
      warn(fmt::format("cannot load a stored binary: kernel={} {}; compiling it again", label,
                       error.what()));
    }
  }
  if (compiler() == nullptr) {
    throw DeviceUnavailable(
        "cannot compile a kernel that the cache does not have",
        fmt::format("kernel={} cache={}; {}", label, store.path(), compiler_problem_),
        "or make the model once on a machine with the compiler, and ship its cache");
  }
  return device_.load(compile(source, label, store));
}

// As of compiler_versions: without a compiler a binary of any version that the cache's winners have
// is as right.
std::vector<Digest> Dispatcher::keys_of(const Source& source, TuneStore& store) {
  const std::string& arch = device_.info().arch;
  if (const Compiler* found = compiler()) return {found->key(source, arch)};
  std::vector<Digest> keys;
  for (const std::string& version : store.compiler_versions(device_.info())) {
    keys.push_back(source_key(source, arch, compile_options(arch), version));
  }
  return keys;
}

std::optional<Binary> Dispatcher::find_binary(const Digest& key, TuneStore& store) {
  try {
    return store.find_binary(key);
  } catch (const CacheError& error) {
    warn(error.what());
    return std::nullopt;
  }
}

Binary Dispatcher::compile(const Source& source, const std::string& label, TuneStore& store) {
  const Digest key = compiler()->key(source, device_.info().arch);
  CompileClaims claims(store);
  const auto claimed = claims.wait(key, kClaimPatience, [&](const CompileClaims::Owner& owner) {
    warn(fmt::format("waiting for {}, which compiles {}", owner.text, label));
  });
  if (claimed.waited) {
    if (auto theirs = find_binary(key, store)) return *std::move(theirs);
  }
  const Binary binary = compiler()->compile(source, device_.info().arch);
  ++num_compiles_;
  try {
    store.put_binary(binary, label);
  } catch (const CacheError& error) {
    warn(error.what());  // the answer is good without being stored
  }
  return binary;
}

std::shared_ptr<const AttentionKernels> Dispatcher::load(const Binary& binary,
                                                         const Variant& variant,
                                                         const LaunchPlan& plan) {
  auto& kernels = loaded_[{binary.content, variant.text()}];
  if (kernels == nullptr) {
    kernels =
        std::make_shared<const AttentionKernels>(load_attention(device_, binary, variant, plan));
  }
  return kernels;
}

}  // namespace attune
