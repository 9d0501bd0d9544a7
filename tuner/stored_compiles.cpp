#include "tuner/stored_compiles.h"

#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/model_source.h"
#include "tuner/space.h"

namespace attune {

StoredCompiles::StoredCompiles(std::string compiler_version)
    : version_(std::move(compiler_version)) {}

Digest StoredCompiles::key(const Source& source, const std::string& arch) const {
  return source_key(source, arch, compile_options(arch), version_);
}

std::size_t StoredCompiles::run(const NextJob& next,
                                const std::function<void(CompileOutcome)>& done,
                                const std::function<bool()>& stop) {
  std::size_t num_done = 0;
  while (!(stop && stop())) {
    const auto job = next();
    if (!job) break;
    missing_.insert(job->source.symbols.front());
    CompileOutcome outcome;
    outcome.id = job->id;
    outcome.error = "the cache has no binary, and only stored ones are measured";
    outcome.is_of_machine = true;
    done(std::move(outcome));
    ++num_done;
  }
  return num_done;
}

std::string stored_compiler_version(const TuneStore& store, const std::vector<Problem>& problems,
                                    const DeviceInfo& device) {
  std::set<std::string> versions;
  std::set<Digest> stored;
  for (const BinaryRow& row : store.binaries()) {
    if (row.arch != device.arch || row.failed) continue;
    versions.insert(row.compiler_version);
    stored.insert(row.key);
  }
  std::set<Variant> variants;
  for (const Problem& problem : problems) {
    for (const Candidate& one : candidate_space(problem, device).kept) {
      variants.insert(one.variant(problem));
    }
  }
  std::string best;
  std::size_t most = 0;
  for (const std::string& version : versions) {
    const StoredCompiles compiles(version);
    std::size_t count = 0;
    for (const Variant& variant : variants) {
      count += stored.count(compiles.key(variant_source(variant), device.arch));
    }
    if (count <= most) continue;
    most = count;
    best = version;
  }
  if (!best.empty()) return best;
  throw CacheError(
      "the cache has no binary of these problems",
      fmt::format("path={} arch={} problems={} candidates={}", store.path(), device.arch,
                  problems.size(), variants.size()),
      fmt::format("compile them with attune tune --compile-only --arch {}, and merge that "
                  "cache into this one",
                  device.arch));
}

}  // namespace attune
