#include "cli/workplace.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "common/text.h"
#include "runtime/store_options.h"

namespace attune {

void Workplace::add_cache_flag(CLI::App* app) {
  app->add_option("--cache", cache_flag, "Cache file (default: see attune cache path)");
  app->add_option("--cache-base", options.cache_bases,
                  "Cache beneath it that is only read; may be given again")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("FILE");
}

std::filesystem::path Workplace::cache_file() const {
  const std::string& path = cache_flag.empty() ? options.cache_path : cache_flag;
  if (path.empty()) {
    throw CacheError("there is no place for the tuning cache",
                     "ATTUNE_CACHE, ATTUNE_CACHE_DIR, XDG_CACHE_HOME and HOME are not set",
                     "name a file with --cache");
  }
  return path;
}

Warn Workplace::warn() const {
  return [log = log](const std::string& text) { log.warn(text); };
}

std::optional<DeviceChoice> Workplace::device_of_environment() const {
  if (options.device.empty()) return std::nullopt;
  return DeviceChoice::parse(options.device);
}

std::unique_ptr<TuneStore> Workplace::open_cache() const {
  return TuneStore::open(cache_file(), warn(), store_options(options));
}

std::unique_ptr<TuneStore> Workplace::open_cache_unchanged() const {
  const std::filesystem::path file = cache_file();
  std::error_code error;
  if (std::filesystem::exists(file, error) || error) {
    return TuneStore::open_unchanged(file, warn(), store_options(options));
  }
  return TuneStore::open_in_memory(warn(), store_options(options));
}

std::unique_ptr<TuneStore> Workplace::open_copy(const std::filesystem::path& file,
                                                StoreOptions store_options) const {
  std::error_code error;
  if (std::filesystem::exists(file, error) || error) {
    return TuneStore::open_copy(file, warn(), std::move(store_options));
  }
  return TuneStore::open_in_memory(warn(), std::move(store_options));
}

std::unique_ptr<TuneStore> Workplace::open_cache_if_present() const {
  const std::filesystem::path file = cache_file();
  std::error_code error;
  if (std::filesystem::exists(file, error) || error) return open_cache();
  auto store = TuneStore::open_in_memory(warn(), store_options(options));
  const auto bases = store->base_paths();
  log.note(fmt::format(
      "there is no cache yet: path={}; {}", file.string(),
      bases.empty() ? "attune tune fills it" : fmt::format("bases: {}", fmt::join(bases, ", "))));
  return store;
}

CompilerSearch Workplace::compilers() const {
  return {.nvrtc = {options.nvrtc_path, {}}, .host = {.cxx = options.cxx_path}};
}

CompilePoolOptions Workplace::pool_options(int num_workers) const {
  CompilePoolOptions pool;
  pool.num_workers = num_workers;
  pool.worker_path = options.worker_path;
  pool.compilers = compilers();
  return pool;
}

IsolatedMeasureOptions Workplace::measure_options(const DeviceChoice& device) const {
  return {.worker_path = options.measure_worker_path, .device = device.text()};
}

Options Workplace::serving_options(const DeviceChoice& device) const {
  Options serving = options;
  serving.device = device.text();
  serving.cache_path = cache_file().string();
  serving.log = warn();
  return serving;
}

CompilerOrReason find_compiler(const CompilerSearch& search, const std::string& arch) {
  try {
    return {open_compiler(search, arch), {}};
  } catch (const DeviceUnavailable& error) {
    return {nullptr, error.what()};
  }
}

std::optional<DeviceInfo> device_of_identity(const std::string& identity) {
  const auto parts = split(identity, '|');
  if (parts.size() != 6) return std::nullopt;
  const auto num_sms = parse_int(parts[3]);
  const auto memory = parse_int(parts[4]);
  if (!num_sms || !memory) return std::nullopt;
  try {
    DeviceInfo info = architecture_limits(std::string(parts[1]));
    info.name = parts[0];
    info.num_sms = static_cast<int>(*num_sms);
    info.memory_bytes = static_cast<std::size_t>(*memory);
    info.mig = parts[5] == "1";
    if (info.identity() != identity) return std::nullopt;
    return info;
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

bool is_gpu_named(const std::string& identity, const std::string& part) {
  return split(identity, '|').front().find(part) != std::string::npos;
}

std::vector<std::string> stored_gpus(const TuneStore& store, const std::string& name) {
  std::vector<std::string> found, known;
  for (const auto& [identity, winner] : store.winners()) {
    if (std::find(known.begin(), known.end(), identity) != known.end()) continue;
    known.push_back(identity);
    if (is_gpu_named(identity, name)) found.push_back(identity);
  }
  if (!found.empty()) return found;
  throw InvalidArgument(
      "the cache has no results of that GPU",
      fmt::format("gpu='{}' known={}", name,
                  known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))),
      "use a part of a known name");
}

DeviceInfo stored_gpu(const TuneStore& store, const std::string& name) {
  const std::vector<std::string> identities = stored_gpus(store, name);
  for (const std::string& identity : identities) {
    if (const auto gpu = device_of_identity(identity)) return *gpu;
  }
  throw InvalidArgument("attune does not know the limits of that GPU",
                        fmt::format("gpu={}", fmt::join(identities, ", ")),
                        "use a GPU of an architecture that it knows");
}

}  // namespace attune
