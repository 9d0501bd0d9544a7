#include <algorithm>
#include <atomic>
#include <cmath>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include <fmt/format.h>

#include "common/text.h"
#include "jit/device_choice.h"
#include "jit/gemm.h"
#include "jit/host/host_target.h"
#include "runtime/attune.h"
#include "runtime/background_tuner.h"
#include "runtime/dispatch.h"
#include "runtime/family_switch.h"
#include "runtime/store_options.h"
#include "templates/linear_config.h"

namespace attune {
namespace {

Options checked(Options options) {
  if (options.device_ordinal < 0) {
    throw InvalidArgument("cannot open an engine",
                          fmt::format("device_ordinal={}", options.device_ordinal),
                          "devices are counted from 0");
  }
  if (!(options.tune_budget_s > 0) || !std::isfinite(options.tune_budget_s)) {
    throw InvalidArgument("cannot open an engine",
                          fmt::format("tune_budget_s={}", options.tune_budget_s),
                          "the budget is above 0 and finite");
  }
  require_known_families(options.disabled_families);
  if (options.log) {
    // poll() warns while another thread may prepare.
    options.log = [log = std::move(options.log),
                   mutex = std::make_shared<std::mutex>()](const std::string& message) {
      const std::lock_guard lock(*mutex);
      log(message);
    };
  }
  return options;
}

// The device of options that were checked.
std::unique_ptr<Device> open_device_of(const Options& options) {
  return open_device(options.device.empty() ? DeviceChoice{.ordinal = options.device_ordinal}
                                            : DeviceChoice::parse(options.device));
}

std::unique_ptr<TuneStore> open_store(const Options& options) {
  return options.cache_path.empty()
             ? TuneStore::open_in_memory(options.log, store_options(options))
             : TuneStore::open_or_memory(options.cache_path, options.log, store_options(options));
}

}  // namespace

struct Engine::State {
  using Prepared = Attention::Prepared;
  using Slot = Attention::Slot;

  State(Options checked_options, std::unique_ptr<Device> opened)
      : options(std::move(checked_options)),
        device(std::move(opened)),
        dispatcher(options, *device),
        store(open_store(options)),
        background(options.tune_worker_path) {}

  std::shared_ptr<const Slot> find(std::string_view problem_text) const {
    const std::shared_lock lock(table_mutex);
    const auto found = table.find(problem_text);
    return found == table.end() ? nullptr : found->second;
  }
  std::shared_ptr<const Slot> add(const std::string& problem_text, Dispatched dispatched);
  std::shared_ptr<const Prepared> prepared(Dispatched dispatched) const;
  Dispatched work(const Problem& problem);
  void tune_in_background(const std::string& problem_text, const BackgroundWish& wish);
  Dispatched winner_of(const BackgroundResult& result);
  Swap swap_in(const std::string& problem_text, Dispatched dispatched);
  std::vector<Swap> swap_all();
  void warn_of_failure(const std::string& problem_text, const std::string& reason) const;

  const Options options;
  const std::shared_ptr<Device> device;  // before what holds its modules

  std::mutex work_mutex;  // held while a problem is prepared; guards the next three
  Dispatcher dispatcher;
  std::unique_ptr<TuneStore> store;  // empty once sealed
  bool warned_of_gemm = false;

  mutable std::shared_mutex table_mutex;  // guards what follows; taken after work_mutex
  std::map<std::string, std::shared_ptr<Slot>, std::less<>> table;
  Counters counters;
  bool sealed = false;
  std::atomic<std::uint64_t> generation = 0;  // swaps so far; written under table_mutex

  BackgroundTuner background;  // last: its worker ends before anything else goes
};

// Does the late work of an engine that was sealed too. Called under work_mutex.
Dispatched Engine::State::work(const Problem& problem) {
  if (store != nullptr) return dispatcher.dispatch(problem, *store);
  {
    const std::unique_lock lock(table_mutex);
    ++counters.late_prepares;
  }
  if (options.strict) {
    throw NotPrepared("this engine is sealed", fmt::format("problem={}", problem.text()),
                      "prepare it before seal(), or open the engine without strict");
  }
  if (options.log) {
    options.log(fmt::format("late work: problem={} prepared after seal(); prepare it before",
                            problem.text()));
  }
  const auto late_store = open_store(options);
  Dispatched dispatched = dispatcher.dispatch(problem, *late_store);
  dispatcher.release_compiler();
  return dispatched;
}

std::shared_ptr<const Attention::Prepared> Engine::State::prepared(Dispatched dispatched) const {
  return std::make_shared<const Prepared>(
      Prepared{device, std::move(dispatched.kernels), std::move(dispatched.choice)});
}

std::shared_ptr<const Attention::Slot> Engine::State::add(const std::string& problem_text,
                                                          Dispatched dispatched) {
  const Served served = dispatched.choice.served;
  const auto wish = dispatched.wish;
  const std::size_t workspace_bytes =
      wish ? wish->workspace_bytes : dispatched.choice.plan.workspace_bytes();
  auto slot = std::make_shared<Slot>(prepared(std::move(dispatched)), workspace_bytes);
  {
    const std::unique_lock lock(table_mutex);
    if (served == Served::kExact) ++counters.exact;
    if (served == Served::kNearest) ++counters.nearest;
    if (served == Served::kDefault) ++counters.defaults;
    table.emplace(problem_text, slot);
  }
  if (wish) tune_in_background(problem_text, *wish);
  return slot;
}

void Engine::State::tune_in_background(const std::string& problem_text,
                                       const BackgroundWish& wish) {
  const DeviceInfo& info = device->info();
  TuneWorkerJob job;
  job.problem = problem_text;
  job.cache_path = wish.cache_path;
  job.cache_bases = wish.cache_bases;
  job.cache_max_bytes = options.cache_max_bytes;
  job.device = device_text(options, info);
  job.gpu = info.identity();
  job.nvrtc_path = options.nvrtc_path;
  job.cxx_path = options.cxx_path;
  job.worker_path = options.worker_path;
  job.measure_worker_path = options.measure_worker_path;
  job.budget_s = options.tune_budget_s;
  job.refresh = wish.refresh;
  job.disabled_families = options.disabled_families;
  background.add(std::move(job));
}

// Loads what a worker found. Called under work_mutex.
Dispatched Engine::State::winner_of(const BackgroundResult& result) {
  const Problem problem = Problem::parse(result.problem);
  if (result.scratch == nullptr) {
    const auto late_store = store == nullptr ? open_store(options) : nullptr;
    return dispatcher.exact_winner(problem, late_store ? *late_store : *store);
  }
  // For problems that are prepared later. Binaries of the host device are not imported, so the
  // winner itself comes from the worker's file.
  if (store != nullptr && store->is_in_memory()) store->import_from(result.cache_path);
  const auto private_store = TuneStore::open(result.cache_path, options.log);
  return dispatcher.exact_winner(problem, *private_store);
}

// Called under work_mutex.
Swap Engine::State::swap_in(const std::string& problem_text, Dispatched dispatched) {
  const auto next = prepared(std::move(dispatched));
  const std::unique_lock lock(table_mutex);
  Slot& slot = *table.at(problem_text);
  const std::size_t needed = next->choice.plan.workspace_bytes();
  if (needed > slot.workspace_bytes) {
    throw Error("the winner needs more workspace than callers were told",
                fmt::format("candidate={} workspace_bytes={} told={}",
                            next->choice.candidate.text(), needed, slot.workspace_bytes),
                "the next process serves it");
  }
  Swap swap{problem_text, slot.owner->choice.candidate.text(), next->choice.candidate.text()};
  slot.replaced.reserve(slot.replaced.size() + 1);  // from here on nothing throws
  slot.replaced.push_back(std::exchange(slot.owner, next));
  ++generation;  // first: whoever sees the new kernel sees the new number
  slot.current.store(next.get(), std::memory_order_release);
  return swap;
}

// Called under work_mutex. What an exception stops (no memory, a log that throws) stays ready for the
// next call, and swaps that are done by then are told.
std::vector<Swap> Engine::State::swap_all() {
  struct Ready {
    BackgroundTuner& background;
    std::list<BackgroundResult> results = background.take_ready();
    ~Ready() { background.put_back(std::move(results)); }
  } ready{background};
  std::vector<Swap> swaps;
  swaps.reserve(ready.results.size());
  try {
    for (; !ready.results.empty(); ready.results.pop_front()) {
      const BackgroundResult& result = ready.results.front();
      try {
        swaps.push_back(swap_in(result.problem, winner_of(result)));
      } catch (const Error& error) {
        warn_of_failure(result.problem, error.what());
        const std::unique_lock lock(table_mutex);
        ++counters.background_failures;
      }
    }
  } catch (...) {
    if (swaps.empty()) throw;
  }
  return swaps;
}

void Engine::State::warn_of_failure(const std::string& problem_text,
                                    const std::string& reason) const {
  if (!options.log) return;
  options.log(fmt::format(
      "tuning in the background found no winner: problem={} {}; what is served stays, tune it with "
      "{}",
      problem_text, reason, tune_command(Problem::parse(problem_text), device->info())));
}

Engine::Engine(Options options) {
  options = checked(std::move(options));
  auto device = open_device_of(options);
  state_ = std::make_unique<State>(std::move(options), std::move(device));
}

Engine::Engine(Options options, std::unique_ptr<Device> device) {
  if (device == nullptr) throw InvalidArgument("cannot open an engine", "device=null");
  state_ = std::make_unique<State>(checked(std::move(options)), std::move(device));
}

Engine::~Engine() = default;

Attention Engine::prepare(std::string_view problem_text) {
  if (is_linear_family(split(problem_text, '/').front())) {
    throw InvalidArgument("cannot prepare a linear layer as attention",
                          fmt::format("problem={}", problem_text),
                          "Gemma4Model and Eagle3Head prepare those that they have");
  }
  return Attention(prepare_slot(problem_text));
}

std::shared_ptr<const Attention::Slot> Engine::prepare_slot(std::string_view problem_text) {
  if (auto known = state_->find(problem_text)) return known;
  const Problem problem = Problem::parse(problem_text);
  const std::string text = problem.text();
  const std::lock_guard lock(state_->work_mutex);
  if (auto known = state_->find(text)) return known;  // a thread was faster
  Dispatched dispatched = state_->work(problem);
  return state_->add(text, std::move(dispatched));
}

std::shared_ptr<const LoadedModule> Engine::load_module(const Source& source) {
  const std::lock_guard lock(state_->work_mutex);
  if (state_->store == nullptr) {
    throw NotPrepared("this engine is sealed", fmt::format("kernel={}", source.symbols.front()),
                      "make the model before seal()");
  }
  return std::make_shared<const LoadedModule>(
      LoadedModule{state_->device, state_->dispatcher.load_module(source, *state_->store)});
}

std::unique_ptr<Gemm> Engine::open_gemm() {
  const std::lock_guard lock(state_->work_mutex);
  const Options& options = state_->options;
  if (options.cublaslt_path == kNoGemm) return nullptr;
  try {
    return state_->device->open_gemm({options.cublaslt_path});
  } catch (const DeviceUnavailable& error) {
    if (!options.cublaslt_path.empty()) throw;  // the caller named it
    if (options.log && !std::exchange(state_->warned_of_gemm, true)) {
      options.log(fmt::format("prefills take {} tokens a pass over the weights: {}",
                              kMaxLinearTokens, error.what()));
    }
  }
  return nullptr;
}

void Engine::warn(const std::string& message) const {
  if (state_->options.log) state_->options.log(message);
}

void Engine::seal() {
  const std::lock_guard work_lock(state_->work_mutex);
  state_->store.reset();
  state_->dispatcher.release_compiler();
  const std::unique_lock lock(state_->table_mutex);
  state_->sealed = true;
}

BackgroundProgress Engine::poll() {
  for (const BackgroundResult& failure : state_->background.take_failures()) {
    state_->warn_of_failure(failure.problem, failure.failure);
  }
  return state_->background.progress();
}

std::vector<Swap> Engine::swap(void* stream) {
  if (state_->device->is_capturing(stream)) {
    throw InvalidArgument("cannot swap kernels while the stream captures", "",
                          "call Engine::swap before or after the capture");
  }
  poll();
  const std::lock_guard work_lock(state_->work_mutex);
  std::vector<Swap> swaps = state_->swap_all();
  if (state_->store == nullptr) state_->dispatcher.release_compiler();
  return swaps;
}

std::uint64_t Engine::generation() const { return state_->generation; }

KernelHold Engine::hold() const {
  auto kernels = std::make_shared<std::vector<std::shared_ptr<const Attention::Prepared>>>();
  const std::shared_lock lock(state_->table_mutex);
  kernels->reserve(state_->table.size());
  for (const auto& [text, slot] : state_->table) kernels->push_back(slot->owner);
  return {state_->generation, std::move(kernels)};
}

std::size_t Engine::release_replaced() {
  const std::lock_guard work_lock(state_->work_mutex);
  std::vector<std::shared_ptr<const Attention::Prepared>> released;
  {
    // Holds copy what serves, so one that has been replaced gets no further holder.
    const std::unique_lock lock(state_->table_mutex);
    for (auto& [text, slot] : state_->table) {
      auto& replaced = slot->replaced;
      const auto unused = std::stable_partition(
          replaced.begin(), replaced.end(), [](const auto& one) { return one.use_count() > 1; });
      released.insert(released.end(), unused, replaced.end());
      replaced.erase(unused, replaced.end());
    }
  }
  const std::size_t num_released = released.size();
  released.clear();
  state_->dispatcher.drop_unused();
  return num_released;
}

bool Engine::sealed() const {
  const std::shared_lock lock(state_->table_mutex);
  return state_->sealed;
}

Counters Engine::counters() const {
  const std::shared_lock lock(state_->table_mutex);
  Counters counters = state_->counters;
  counters.compiles = state_->dispatcher.num_compiles();
  counters.swaps = state_->generation;
  counters.background_tunes = state_->background.num_tuned();
  counters.background_failures += state_->background.num_failed();
  return counters;
}

Device& Engine::device() { return *state_->device; }

std::string Engine::choices_digest() const {
  std::string choices;
  const std::shared_lock lock(state_->table_mutex);
  for (const auto& [text, slot] : state_->table) {
    choices += fmt::format("{} {} {}\n", text, slot->owner->choice.candidate.text(),
                           slot->workspace_bytes);
  }
  return digest_of(choices).text();
}

}  // namespace attune
