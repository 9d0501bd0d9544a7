// What commands open: the cache, the GPU, the compiler, as flags and environment say.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/tune_store.h"
#include "cli/flags.h"
#include "cli/log.h"
#include "jit/compile_pool.h"
#include "jit/compiler.h"
#include "jit/cuda_device.h"
#include "jit/device_choice.h"
#include "runtime/attune.h"
#include "tuner/isolated_measure.h"

namespace attune {

// Shared by all commands; the environment is read here and in runtime/options.cpp.
struct Workplace {
  Log log;
  Options options = Options::from_environment();
  std::string cache_flag;  // --cache

  void add_cache_flag(CLI::App* app);
  // --cache, else what the environment says. Throws CacheError when there is no place for it.
  std::filesystem::path cache_file() const;

  // What ATTUNE_DEVICE names; empty where it is not set. Throws InvalidArgument for a wrong one.
  std::optional<DeviceChoice> device_of_environment() const;

  // For writing: creates the file.
  std::unique_ptr<TuneStore> open_cache() const;
  // For a look that changes no byte of the file; a missing one reads as empty.
  std::unique_ptr<TuneStore> open_cache_unchanged() const;
  // To try changes on; the file stays as it is, and a missing one reads as an empty cache.
  std::unique_ptr<TuneStore> open_copy(const std::filesystem::path& file,
                                       StoreOptions store_options = {}) const;
  // For reading: a missing file is not created but reads as an empty cache, with a remark.
  std::unique_ptr<TuneStore> open_cache_if_present() const;

  CompilerSearch compilers() const;
  CompilePoolOptions pool_options(int num_workers) const;
  IsolatedMeasureOptions measure_options(const DeviceChoice& device) const;
  // Options of the library for serving from `cache_file()`.
  Options serving_options(const DeviceChoice& device) const;

 private:
  Warn warn() const;
};

// The compiler for an architecture, or why there is none.
struct CompilerOrReason {
  std::unique_ptr<Compiler> compiler;
  std::string reason;
};
CompilerOrReason find_compiler(const CompilerSearch& search, const std::string& arch);

// The stored form of a GPU as a device: the limits of its architecture under its identity. Empty
// for a text that is none, or of an architecture that attune does not know.
std::optional<DeviceInfo> device_of_identity(const std::string& identity);
// Whether the name in a stored identity contains `part`.
bool is_gpu_named(const std::string& identity, const std::string& part);
// Identities of the GPUs with winners whose name contains `name`. Throws InvalidArgument that lists
// the known ones when there is none.
std::vector<std::string> stored_gpus(const TuneStore& store, const std::string& name);
// The first of them that attune knows the limits of. Throws InvalidArgument.
DeviceInfo stored_gpu(const TuneStore& store, const std::string& name);

}  // namespace attune
