// From a problem to loaded kernels: the exact winner, else the nearest, else the family's default.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cache/tune_store.h"
#include "jit/compiler.h"
#include "runtime/prepared.h"

namespace attune {

// Why `candidate` cannot run `problem` on `device`: its family, its limits, shared memory or
// threads. The register rule is not asked: it is about speed, and a winner has shown its speed.
std::optional<std::string> why_not_servable(const Problem& problem, const Candidate& candidate,
                                            const DeviceInfo& device);

// How to get a winner for `problem` on a device like `device`: the command line that every warning
// about a miss ends with.
std::string tune_command(const Problem& problem, const DeviceInfo& device);

// The engine's device as a worker process opens it: DeviceChoice's text.
std::string device_text(const Options& options, const DeviceInfo& device);

// What OnMiss::kBackground leaves to a worker.
struct BackgroundWish {
  bool refresh = false;    // there is a winner that cannot be loaded, which a tuner would keep
  std::string cache_path;  // empty: the store cannot be written by another process
  std::vector<std::string> cache_bases;  // what can be read beneath
  std::size_t workspace_bytes = 0;       // of the largest candidate that the worker may find
};

struct Dispatched {
  Choice choice;
  std::shared_ptr<const AttentionKernels> kernels;
  std::optional<BackgroundWish> wish;
};

// Why no winner is served, in the parts of an error message.
struct Miss {
  std::string what_failed;
  std::string values;
  std::string command;    // that tunes the problem
  bool unusable = false;  // there is a winner, but it cannot be loaded
};

// Not thread-safe: the engine calls it under its lock.
class Dispatcher {
 public:
  // `device` outlives the dispatcher.
  Dispatcher(const Options& options, Device& device);

  // Finds, loads or compiles what serves `problem`, by Options::on_miss. Damage in the cache is a
  // miss with one warning. Throws NotPrepared, CompileError, CudaError, and DeviceUnavailable when
  // something has to be compiled without a compiler.
  Dispatched dispatch(const Problem& problem, TuneStore& store);
  // The exact winner that `store` has for a problem. Throws NotPrepared.
  Dispatched exact_winner(const Problem& problem, TuneStore& store);
  // Unloads the modules that nothing but this table holds.
  void drop_unused();

  // Loads kernels that are not tuned, from the cache or compiled. Throws CompileError, CudaError,
  // and DeviceUnavailable when they have to be compiled without a compiler.
  Module load_module(const Source& source, TuneStore& store);

  // Compiles done so far, those of tuning included. Callable from any thread.
  std::uint64_t num_compiles() const { return num_compiles_; }
  // Drops the compiler; the next compile opens it again.
  void release_compiler() { compiler_.reset(); }

 private:
  std::variant<Dispatched, Miss> from_winner(const Problem& problem, std::optional<WinnerHit> hit,
                                             const TuneStore& store);
  std::optional<WinnerHit> find_winner(const Problem& problem, TuneStore& store);
  std::set<std::string> compiler_versions(TuneStore& store);
  std::variant<Dispatched, Miss> load_winner(const Problem& problem, WinnerHit hit);
  void tune(const Problem& problem, TuneStore& store, bool refresh);
  BackgroundWish wish_for(const Dispatched& served, bool refresh, const TuneStore& store) const;
  Dispatched from_default(const Problem& problem, const Miss& miss, TuneStore& store);
  std::shared_ptr<const AttentionKernels> load_default(const Choice& choice, const Miss& miss,
                                                       TuneStore& store);
  LaunchPlan plan_of(const Problem& problem, const Candidate& candidate) const;
  std::vector<Digest> keys_of(const Source& source, TuneStore& store);
  std::optional<Binary> find_binary(const Digest& key, TuneStore& store);
  // Compiles, unless another process does so just now: then its binary is taken.
  Binary compile(const Source& source, const std::string& label, TuneStore& store);
  std::shared_ptr<const AttentionKernels> load(const Binary& binary, const Variant& variant,
                                               const LaunchPlan& plan);
  // nullptr when there is none for the device; then compiler_problem_ says why.
  const Compiler* compiler();
  CompilerSearch compilers() const;
  void warn(const std::string& message) const;

  const Options& options_;
  Device& device_;
  std::unique_ptr<Compiler> compiler_;
  std::string compiler_problem_;
  // Problems with equal variants share a module.
  std::map<std::pair<Digest, std::string>, std::shared_ptr<const AttentionKernels>> loaded_;
  std::atomic<std::uint64_t> num_compiles_ = 0;
};

}  // namespace attune
