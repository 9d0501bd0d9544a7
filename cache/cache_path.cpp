#include "cache/tune_store.h"

namespace attune {

std::filesystem::path cache_path(const std::string& explicit_path, const std::string& cache_dir,
                                 const std::string& xdg_cache_home, const std::string& home) {
  namespace fs = std::filesystem;
  constexpr const char* kFileName = "tune.db";
  if (!explicit_path.empty()) return explicit_path;
  if (!cache_dir.empty()) return fs::path(cache_dir) / kFileName;
  // The XDG specification, too, has relative paths ignored.
  if (fs::path(xdg_cache_home).is_absolute()) {
    return fs::path(xdg_cache_home) / "attune" / kFileName;
  }
  if (fs::path(home).is_absolute()) return fs::path(home) / ".cache" / "attune" / kFileName;
  return {};
}

}  // namespace attune
