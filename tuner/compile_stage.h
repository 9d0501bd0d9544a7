// Binaries for the tuner: from the cache where it has them, compiled in parallel where not.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/compile_claims.h"
#include "cache/tune_store.h"
#include "jit/compile_pool.h"
#include "templates/family.h"

namespace attune {

// What the tuner needs of a compiler.
class CompileService {
 public:
  virtual ~CompileService() = default;
  virtual std::string compiler_version() const = 0;
  virtual Digest key(const Source& source, const std::string& arch) const = 0;
  // As CompilePool::run.
  virtual std::size_t run(const NextJob& next, const std::function<void(CompileOutcome)>& done,
                          const std::function<bool()>& stop) = 0;
};

// Keys from `compiler`, compiles in `pool`; both have to outlive it.
std::unique_ptr<CompileService> compile_service(const Compiler& compiler, CompilePool& pool);

// What winners of a family on an architecture depend on.
Toolchain toolchain_of(const Family& family, const std::string& arch,
                       const std::string& compiler_version);

// The binaries of one run.
class CompileStage {
 public:
  CompileStage(TuneStore& store, CompileService& compiles, std::string arch);

  using Progress =
      std::function<void(const std::string& what, std::size_t done, std::size_t total)>;
  // Gets the binaries of all variants, and of the measuring kernels when `with_probes`. Stores each
  // as it arrives, so that a run that is stopped resumes here. Processes that want the same binaries
  // share the compiles: each claims a binary when a worker is free for it, and waits for what others
  // have claimed, unless nothing arrives for `patience`. Remembered failures are not
  // tried again unless `retry_failures`.
  void run(const std::set<Variant>& variants, bool with_probes, bool retry_failures,
           const Progress& progress, const std::function<bool()>& stop);

  // nullptr when it failed or was not reached.
  const Binary* find(const Variant& variant) const;
  // The log of a failed compile.
  const std::string* failure(const Variant& variant) const;
  // nullptr as in find.
  const Binary* probes() const;
  std::string probes_failure() const;

  std::size_t num_compiled() const { return num_compiled_; }  // not found in the cache
  std::size_t num_failed() const { return failures_.size(); }
  // Neither compiled nor known to fail: the machine could not, or the run was stopped.
  bool is_unresolved(const Variant& variant) const;
  std::size_t num_unresolved() const { return unresolved_.size(); }

  std::chrono::milliseconds patience = kClaimPatience;

 private:
  struct Wanted {
    std::string name;  // what the cache files it under
    Source source;
    Digest key;
  };
  std::list<Wanted> missing(const std::set<Variant>& variants, bool with_probes,
                            bool retry_failures);
  // Takes what the cache has meanwhile.
  bool find_stored(const Wanted& wanted, bool retry_failures);
  struct Claimed {
    Wanted wanted;
    CompileClaims::Claim claim;
  };
  struct Run;  // of run()
  void finish(const Wanted& wanted, CompileOutcome outcome);

  TuneStore& store_;
  CompileService& compiles_;
  std::string arch_;
  std::map<std::string, Digest> keys_;  // by the variant's text, "probes" for the measuring kernels
  std::map<Digest, Binary> binaries_;
  std::map<Digest, std::string> failures_;
  std::set<Digest> unresolved_;
  std::size_t num_compiled_ = 0;
};

}  // namespace attune
