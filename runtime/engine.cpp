#include <cmath>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include <fmt/format.h>

#include "common/text.h"
#include "jit/device_choice.h"
#include "runtime/attune.h"
#include "runtime/dispatch.h"

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
  return options;
}

// The device of options that were checked.
std::unique_ptr<Device> open_device_of(const Options& options) {
  return open_device(options.device.empty() ? DeviceChoice{.ordinal = options.device_ordinal}
                                            : DeviceChoice::parse(options.device));
}

std::unique_ptr<TuneStore> open_store(const Options& options) {
  return options.cache_path.empty() ? TuneStore::open_in_memory(options.log)
                                    : TuneStore::open_or_memory(options.cache_path, options.log);
}

}  // namespace

struct Engine::State {
  using Prepared = Attention::Prepared;

  State(Options checked_options, std::unique_ptr<Device> opened)
      : options(std::move(checked_options)),
        device(std::move(opened)),
        dispatcher(options, *device),
        store(open_store(options)) {}

  std::shared_ptr<const Prepared> find(std::string_view problem_text) const {
    const std::shared_lock lock(table_mutex);
    const auto found = table.find(problem_text);
    return found == table.end() ? nullptr : found->second;
  }
  std::shared_ptr<const Prepared> add(const std::string& problem_text, Dispatched dispatched);
  Dispatched work(const Problem& problem);

  const Options options;
  const std::shared_ptr<Device> device;  // before what holds its modules

  std::mutex work_mutex;  // held while a problem is prepared; guards the next two
  Dispatcher dispatcher;
  std::unique_ptr<TuneStore> store;  // empty once sealed

  mutable std::shared_mutex table_mutex;  // guards what follows; taken after work_mutex
  std::map<std::string, std::shared_ptr<const Prepared>, std::less<>> table;
  Counters counters;
  bool sealed = false;
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

std::shared_ptr<const Attention::Prepared> Engine::State::add(const std::string& problem_text,
                                                              Dispatched dispatched) {
  const Served served = dispatched.choice.served;
  auto prepared = std::make_shared<const Prepared>(
      Prepared{device, std::move(dispatched.kernels), std::move(dispatched.choice)});
  const std::unique_lock lock(table_mutex);
  if (served == Served::kExact) ++counters.exact;
  if (served == Served::kNearest) ++counters.nearest;
  if (served == Served::kDefault) ++counters.defaults;
  table.emplace(problem_text, prepared);
  return prepared;
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
  if (auto known = state_->find(problem_text)) return Attention(std::move(known));
  const Problem problem = Problem::parse(problem_text);
  const std::string text = problem.text();
  const std::lock_guard lock(state_->work_mutex);
  if (auto known = state_->find(text)) return Attention(std::move(known));  // a thread was faster
  Dispatched dispatched = state_->work(problem);
  return Attention(state_->add(text, std::move(dispatched)));
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

void Engine::seal() {
  const std::lock_guard work_lock(state_->work_mutex);
  state_->store.reset();
  state_->dispatcher.release_compiler();
  const std::unique_lock lock(state_->table_mutex);
  state_->sealed = true;
}

bool Engine::sealed() const {
  const std::shared_lock lock(state_->table_mutex);
  return state_->sealed;
}

Counters Engine::counters() const {
  const std::shared_lock lock(state_->table_mutex);
  Counters counters = state_->counters;
  counters.compiles = state_->dispatcher.num_compiles();
  return counters;
}

Device& Engine::device() { return *state_->device; }

std::string Engine::choices_digest() const {
  std::string choices;
  const std::shared_lock lock(state_->table_mutex);
  for (const auto& [text, prepared] : state_->table) {
    choices += fmt::format("{} {}\n", text, prepared->choice.candidate.text());
  }
  return digest_of(choices).text();
}

}  // namespace attune
