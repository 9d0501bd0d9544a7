#include "tuner/compile_stage.h"

#include <thread>
#include <utility>
#include <variant>

#include "jit/model_source.h"

namespace attune {
namespace {

constexpr const char* kProbes = "probes";

class PoolService : public CompileService {
 public:
  PoolService(const Compiler& compiler, CompilePool& pool) : compiler_(compiler), pool_(pool) {}
  std::string compiler_version() const override { return compiler_.version(); }
  Digest key(const Source& source, const std::string& arch) const override {
    return compiler_.key(source, arch);
  }
  std::size_t run(const NextJob& next, const std::function<void(CompileOutcome)>& done,
                  const std::function<bool()>& stop) override {
    return pool_.run(next, done, stop);
  }

 private:
  const Compiler& compiler_;
  CompilePool& pool_;
};

}  // namespace

std::unique_ptr<CompileService> compile_service(const Compiler& compiler, CompilePool& pool) {
  return std::make_unique<PoolService>(compiler, pool);
}

Toolchain toolchain_of(const Family& family, const std::string& arch,
                       const std::string& compiler_version) {
  return {template_digest(family, arch), compiler_version, compile_options(arch)};
}

CompileStage::CompileStage(TuneStore& store, CompileService& compiles, std::string arch)
    : store_(store), compiles_(compiles), arch_(std::move(arch)) {}

std::list<CompileStage::Wanted> CompileStage::missing(const std::set<Variant>& variants,
                                                      bool with_probes, bool retry_failures) {
  std::vector<std::pair<std::string, Source>> sources;
  if (with_probes) sources.emplace_back(kProbes, probe_source(arch_));
  for (const Variant& variant : variants) {
    sources.emplace_back(variant.text(), variant_source(variant));
  }
  std::list<Wanted> wanted;
  std::set<Digest> seen;
  for (auto& [name, source] : sources) {
    const Digest key = compiles_.key(source, arch_);
    keys_[name] = key;
    if (binaries_.count(key) > 0 || !seen.insert(key).second) continue;
    Wanted one{name, std::move(source), key};
    if (!find_stored(one, retry_failures)) wanted.push_back(std::move(one));
  }
  return wanted;
}

bool CompileStage::find_stored(const Wanted& wanted, bool retry_failures) {
  if (auto binary = store_.find_binary(wanted.key)) {
    binaries_.emplace(wanted.key, std::move(*binary));
    return true;
  }
  auto log = retry_failures ? std::nullopt : store_.find_compile_failure(wanted.key);
  if (!log) return false;
  failures_[wanted.key] = std::move(*log);
  return true;
}

void CompileStage::finish(const Wanted& wanted, CompileOutcome outcome) {
  if (outcome.binary) {
    store_.put_binary(*outcome.binary, wanted.name);
    binaries_.insert_or_assign(wanted.key, std::move(*outcome.binary));
    ++num_compiled_;
    return;
  }
  std::string log = outcome.error;
  if (!outcome.log.empty()) log += "\n" + outcome.log;
  if (outcome.is_of_machine) {
    unresolved_.insert(wanted.key);
  } else {
    store_.put_compile_failure(wanted.key, wanted.name, arch_, compiles_.compiler_version(), log);
  }
  failures_[wanted.key] = std::move(log);
}

// What is left to do, and what of it is being compiled here.
struct CompileStage::Run {
  using Clock = std::chrono::steady_clock;

  // The first binary that nobody else is compiling; those that others have stored are found.
  std::optional<CompileJob> next() {
    for (auto one = left.begin(); one != left.end();) {
      auto granted = is_patient ? claims.claim(one->key) : CompileClaims::Claim();
      auto* claim = std::get_if<CompileClaims::Claim>(&granted);
      if (claim == nullptr) {
        owner = std::get<CompileClaims::Owner>(granted).text;
        ++one;
      } else if (stage.find_stored(*one, retry_failures)) {
        report(one->name);
        one = left.erase(one);
      } else {
        CompileJob job{num_begun, one->source, stage.arch_};
        at_work.emplace(num_begun++, Claimed{std::move(*one), std::move(*claim)});
        left.erase(one);
        return job;
      }
    }
    return std::nullopt;
  }

  void finish(CompileOutcome outcome) {
    const auto done = at_work.find(outcome.id);
    stage.finish(done->second.wanted, std::move(outcome));
    const std::string name = done->second.wanted.name;
    at_work.erase(done);
    report(name);
  }

  void report(const std::string& name) {
    last_news = Clock::now();
    ++num_done;
    if (progress) progress(name, num_done, total);
  }

  void wait_for_others() {
    if (Clock::now() - last_news > stage.patience) is_patient = false;
    if (progress) {
      progress("waiting for " + owner + ": " + left.front().name, num_done, total);
    }
    std::this_thread::sleep_for(kClaimPoll);
  }

  CompileStage& stage;
  const Progress& progress;
  const bool retry_failures;
  std::list<Wanted> left;
  const std::size_t total = left.size();
  CompileClaims claims{stage.store_};
  std::map<std::size_t, Claimed> at_work = {};  // by the id of its job
  bool is_patient = true;
  std::size_t num_begun = 0, num_done = 0;
  Clock::time_point last_news = Clock::now();
  std::string owner = {};  // of what is left
};

void CompileStage::run(const std::set<Variant>& variants, bool with_probes, bool retry_failures,
                       const Progress& progress, const std::function<bool()>& stop) {
  Run run{*this, progress, retry_failures, missing(variants, with_probes, retry_failures)};
  while (!(stop && stop())) {
    compiles_.run([&] { return run.next(); },
                  [&](CompileOutcome outcome) { run.finish(std::move(outcome)); }, stop);
    if (run.left.empty() || (stop && stop())) break;
    run.wait_for_others();
  }
}

bool CompileStage::is_unresolved(const Variant& variant) const {
  const auto key = keys_.find(variant.text());
  return key != keys_.end() && unresolved_.count(key->second) > 0;
}

const Binary* CompileStage::find(const Variant& variant) const {
  const auto key = keys_.find(variant.text());
  if (key == keys_.end()) return nullptr;
  const auto binary = binaries_.find(key->second);
  return binary == binaries_.end() ? nullptr : &binary->second;
}

const std::string* CompileStage::failure(const Variant& variant) const {
  const auto key = keys_.find(variant.text());
  if (key == keys_.end()) return nullptr;
  const auto log = failures_.find(key->second);
  return log == failures_.end() ? nullptr : &log->second;
}

const Binary* CompileStage::probes() const {
  const auto key = keys_.find(kProbes);
  if (key == keys_.end()) return nullptr;
  const auto binary = binaries_.find(key->second);
  return binary == binaries_.end() ? nullptr : &binary->second;
}

std::string CompileStage::probes_failure() const {
  const auto key = keys_.find(kProbes);
  if (key == keys_.end()) return {};
  const auto log = failures_.find(key->second);
  return log == failures_.end() ? std::string() : log->second;
}

}  // namespace attune
