#include <cstdlib>

#include "cache/tune_store.h"
#include "runtime/attune.h"
#include "runtime/family_switch.h"

namespace attune {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

Options Options::from_environment() {
  Options options;
  options.cache_path = ::attune::cache_path(variable("ATTUNE_CACHE"), variable("ATTUNE_CACHE_DIR"),
                                            variable("XDG_CACHE_HOME"), variable("HOME"))
                           .string();
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
