#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "cache/tune_store.h"
#include "common/error.h"
#include "common/text.h"

namespace attune {

std::vector<std::filesystem::path> split_paths(const std::string& list) {
  std::vector<std::filesystem::path> paths;
  for (const std::string_view path : split(list, ':')) {
    if (!path.empty()) paths.emplace_back(path);
  }
  return paths;
}

std::size_t parse_size(const std::string& text) {
  constexpr std::string_view kUnits = "KMGT";
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const auto power = unit.empty() ? std::string_view::npos : kUnits.find(unit);
  if (power != std::string_view::npos)
    value *= static_cast<double>(std::size_t{1} << (10 * (power + 1)));
  const bool is_unit_known = unit.empty() || (unit.size() == 1 && power != std::string_view::npos);
  if (error != std::errc() || !is_unit_known || !(value >= 0 && value < 1e18)) {
    throw InvalidArgument("cannot read the size", fmt::format("'{}'", text),
                          "write it as 500M, 2G or a number of bytes; 0 for no limit");
  }
  return static_cast<std::size_t>(value);
}

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
