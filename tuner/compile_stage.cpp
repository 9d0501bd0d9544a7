#include "tuner/compile_stage.h"

#include <utility>

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
    if (auto binary = store_.find_binary(key)) {
      binaries_.emplace(key, std::move(*binary));
      continue;
    }
    auto log = retry_failures ? std::nullopt : store_.find_compile_failure(key);
    if (log) {
      failures_[key] = std::move(*log);
    } else {
      wanted.push_back({name, std::move(source), key});
    }
  }
  return wanted;
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
  if (!outcome.is_of_machine) {
    store_.put_compile_failure(wanted.key, wanted.name, arch_, compiles_.compiler_version(), log);
  }
  failures_[wanted.key] = std::move(log);
}

void CompileStage::run(const std::set<Variant>& variants, bool with_probes, bool retry_failures,
                       const Progress& progress, const std::function<bool()>& stop) {
  const std::vector<Wanted> wanted = missing(variants, with_probes, retry_failures);
  std::vector<CompileJob> jobs;
  for (std::size_t i = 0; i < wanted.size(); ++i) jobs.push_back({i, wanted[i].source, arch_});
  std::size_t done = 0;
  if (jobs.empty()) return;
  compiles_.run(
      std::move(jobs),
      [&](CompileOutcome outcome) {
        const Wanted& one = wanted.at(outcome.id);
        finish(one, std::move(outcome));
        if (progress) progress(one.name, ++done, wanted.size());
      },
      stop);
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
