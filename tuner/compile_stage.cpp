#include "tuner/compile_stage.h"

#include <thread>
#include <utility>
#include <variant>

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
  std::size_t run(std::vector<CompileJob> jobs, const std::function<void(CompileOutcome)>& done,
                  const std::function<bool()>& stop) override {
    return pool_.run(std::move(jobs), done, stop);
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

std::vector<CompileStage::Wanted> CompileStage::missing(const std::set<Variant>& variants,
                                                        bool with_probes, bool retry_failures) {
  std::vector<std::pair<std::string, Source>> sources;
  if (with_probes) sources.emplace_back(kProbes, probe_source(arch_));
  for (const Variant& variant : variants) {
    sources.emplace_back(variant.text(), attention_source(variant));
  }
  std::vector<Wanted> wanted;
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

void CompileStage::compile(std::vector<Claimed> claimed,
                           const std::function<void(const Wanted&)>& done,
                           const std::function<bool()>& stop) {
  if (claimed.empty()) return;
  std::vector<CompileJob> jobs;
  for (std::size_t i = 0; i < claimed.size(); ++i) {
    jobs.push_back({i, claimed[i].first.source, arch_});
  }
  compiles_.run(
      std::move(jobs),
      [&](CompileOutcome outcome) {
        auto& [wanted, claim] = claimed.at(outcome.id);
        finish(wanted, std::move(outcome));
        claim = {};
        done(wanted);
      },
      stop);
}

// Claims what it can and finds what others have stored; with `is_patient` the rest is theirs.
CompileStage::Round CompileStage::claim_some(CompileClaims& claims, std::vector<Wanted> left,
                                             bool retry_failures, bool is_patient) {
  Round round;
  for (Wanted& one : left) {
    auto granted = claims.claim(one.key);
    auto* claim = std::get_if<CompileClaims::Claim>(&granted);
    if (claim == nullptr && is_patient) {
      round.owner = std::get<CompileClaims::Owner>(granted).text;
      round.of_others.push_back(std::move(one));
    } else if (find_stored(one, retry_failures)) {
      round.found.push_back(std::move(one));
    } else {
      round.mine.emplace_back(std::move(one),
                              claim == nullptr ? CompileClaims::Claim() : std::move(*claim));
    }
  }
  return round;
}

void CompileStage::run(const std::set<Variant>& variants, bool with_probes, bool retry_failures,
                       const Progress& progress, const std::function<bool()>& stop) {
  using Clock = std::chrono::steady_clock;
  std::vector<Wanted> left = missing(variants, with_probes, retry_failures);
  const std::size_t total = left.size();
  std::size_t num_done = 0;
  const auto done = [&](const Wanted& one) {
    if (progress) progress(one.name, ++num_done, total);
  };
  CompileClaims claims(store_);
  Clock::time_point last_news = Clock::now();
  while (!left.empty() && !(stop && stop())) {
    Round round =
        claim_some(claims, std::move(left), retry_failures, Clock::now() - last_news < patience);
    for (const Wanted& one : round.found) done(one);
    const bool is_waiting = round.mine.empty() && round.found.empty();
    compile(std::move(round.mine), done, stop);
    left = std::move(round.of_others);
    if (!is_waiting) {
      last_news = Clock::now();
    } else if (!left.empty()) {
      const std::string& name = left.front().name;
      if (progress) progress("waiting for " + round.owner + ": " + name, num_done, total);
      std::this_thread::sleep_for(kClaimPoll);
    }
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
