#include <cstdlib>

#include <fmt/format.h>

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

// An error names the variable.
template <typename Parse>
auto parsed(const char* name, Parse&& parse) {
  try {
    return parse(variable(name));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("cannot use {}", name), {}, error.what());
  }
}

}  // namespace

std::vector<std::string> base_paths(const std::string& list) {
  std::vector<std::string> paths;
  for (const auto& path : split_paths(list)) paths.push_back(path.string());
  return paths;
}

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
  options.cache_bases = base_paths(variable("ATTUNE_CACHE_BASE"));
  if (!variable("ATTUNE_CACHE_MAX_SIZE").empty()) {
    options.cache_max_bytes = parsed("ATTUNE_CACHE_MAX_SIZE", parse_size);
  }
  options.gpu_alias = variable("ATTUNE_GPU_ALIAS");
  options.device = variable("ATTUNE_DEVICE");
  options.nvrtc_path = variable("ATTUNE_NVRTC");
  options.cublaslt_path = variable("ATTUNE_CUBLASLT");
  options.cxx_path = variable("ATTUNE_CXX");
  options.worker_path = variable("ATTUNE_WORKER");
  options.tune_worker_path = variable("ATTUNE_TUNE_WORKER");
  options.measure_worker_path = variable("ATTUNE_MEASURE_WORKER");
  options.disabled_families = parsed("ATTUNE_DISABLE_FAMILIES", [](const std::string& list) {
    auto names = parse_family_names(list);
    require_known_families(names);
    return names;
  });
  return options;
}

}  // namespace attune
