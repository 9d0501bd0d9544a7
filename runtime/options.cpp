#include <cstdlib>

#include "cache/tune_store.h"
#include "runtime/attune.h"
#include "runtime/family_switch.h"
#include "runtime/store_options.h"

namespace attune {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

StoreOptions store_options(const Options& options) {
  return {.bases = {options.cache_bases.begin(), options.cache_bases.end()},
          .max_bytes = options.cache_max_bytes,
          .gpu_alias = options.gpu_alias};
}

Options Options::from_environment() {
  Options options;
  options.cache_path = ::attune::cache_path(variable("ATTUNE_CACHE"), variable("ATTUNE_CACHE_DIR"),
                                            variable("XDG_CACHE_HOME"), variable("HOME"))
                           .string();
  for (const auto& base : split_paths(variable("ATTUNE_CACHE_BASE"))) {
    options.cache_bases.push_back(base.string());
  }
  if (const std::string size = variable("ATTUNE_CACHE_MAX_SIZE"); !size.empty()) {
    options.cache_max_bytes = parse_size(size);
  }
  options.gpu_alias = variable("ATTUNE_GPU_ALIAS");
  options.device = variable("ATTUNE_DEVICE");
  options.nvrtc_path = variable("ATTUNE_NVRTC");
  options.cxx_path = variable("ATTUNE_CXX");
  options.worker_path = variable("ATTUNE_WORKER");
  options.tune_worker_path = variable("ATTUNE_TUNE_WORKER");
  options.measure_worker_path = variable("ATTUNE_MEASURE_WORKER");
  options.disabled_families = parse_family_names(variable("ATTUNE_DISABLE_FAMILIES"));
  return options;
}

}  // namespace attune
