#include "cache/tune_store.h"

#include <algorithm>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "cache/binary_rows.h"
#include "cache/key_rows.h"
#include "cache/prune.h"
#include "cache/result_rows.h"
#include "cache/schema.h"
#include "cache/store_state.h"
#include "cache/tiers.h"
#include "cache/transfer.h"
#include "cache/verify_database.h"
#include "cache/winner_rows.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

int count_rows(SQLite::Database& db, const char* table) {
  return static_cast<int>(query_int64(db, fmt::format("SELECT count(*) FROM {}", table)).value());
}

// Bytes on disk, the log included; of the pages in memory for a store without a file.
std::size_t file_bytes(SQLite::Database& db, const DatabaseFile& file) {
  std::size_t bytes = 0;
  for (const char* suffix : {"", "-wal"}) {
    std::error_code error;
    const auto size = fs::file_size(file.path + suffix, error);
    if (!error) bytes += static_cast<std::size_t>(size);
  }
  if (file.access != Access::kMemory) return bytes;
  return static_cast<std::size_t>(query_int64(db, "PRAGMA page_count").value() *
                                  query_int64(db, "PRAGMA page_size").value());
}

}  // namespace

TuneStore::TuneStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
TuneStore::~TuneStore() { state_->write_uses(); }

std::unique_ptr<TuneStore> TuneStore::open(const fs::path& path, Warn warn, StoreOptions options) {
  if (path.empty()) {
    throw CacheError("cannot open tuning cache", "no path is known",
                     "set HOME or ATTUNE_CACHE_DIR, or name a file with --cache");
  }
  return around([&] { return open_database(path, warn); }, path, warn, std::move(options));
}

std::unique_ptr<TuneStore> TuneStore::open_unchanged(const fs::path& path, Warn warn,
                                                     StoreOptions options) {
  return around([&] { return open_database_unchanged(path); }, path, warn, std::move(options));
}

std::unique_ptr<TuneStore> TuneStore::open_copy(const fs::path& path, Warn warn,
                                                StoreOptions options) {
  return around([&] { return open_database_copy(path); }, path, warn, std::move(options));
}

std::unique_ptr<TuneStore> TuneStore::open_base(const fs::path& path, Warn warn) {
  return around([&] { return attune::open_base(path, warn); }, path, warn, {});
}

std::unique_ptr<TuneStore> TuneStore::open_in_memory(Warn warn, StoreOptions options) {
  return around([] { return open_memory_database(); }, ":memory:", warn, std::move(options));
}

// A store around the database that `open_file` gives.
template <typename OpenFile>
std::unique_ptr<TuneStore> TuneStore::around(OpenFile&& open_file, const fs::path& path,
                                             const Warn& warn, StoreOptions options) {
  auto state = std::make_unique<State>();
  try {
    state->file = open_file();
  } catch (const fs::filesystem_error& error) {
    throw CacheError("cannot open tuning cache",
                     fmt::format("path={} ({})", path.string(), error.what()),
                     "choose another file with --cache");
  }
  state->warn = warn;
  state->options = std::move(options);
  state->open_bases();
  return std::unique_ptr<TuneStore>(new TuneStore(std::move(state)));
}

std::unique_ptr<TuneStore> TuneStore::open_or_memory(const fs::path& path, Warn warn,
                                                     StoreOptions options) {
  std::unique_ptr<TuneStore> store;
  try {
    store = open(path, warn, options);
  } catch (const CacheError& error) {
    if (warn) warn(fmt::format("the tuning cache is kept in memory only: {}", error.what()));
    store = open_in_memory(std::move(warn), std::move(options));
    store->state_->read_beneath(path);
  }
  store->state_->tolerant = true;
  return store;
}

std::vector<std::string> TuneStore::base_paths() const {
  return state_->locked([&] {
    std::vector<std::string> paths;
    for (const DatabaseFile& base : state_->bases) {
      if (base.db) paths.push_back(base.path);
    }
    return paths;
  });
}

std::string TuneStore::path() const {
  return state_->locked([&] { return state_->file.path; });
}

bool TuneStore::is_in_memory() const {
  return state_->locked([&] { return state_->file.access == Access::kMemory; });
}

bool TuneStore::is_read_only() const {
  return state_->locked([&] { return state_->file.access == Access::kReadOnly; });
}

void TuneStore::put_binary(const Binary& binary, const std::string& variant) {
  require_sound(binary);
  state_->write([&](SQLite::Database& db) {
    state_->limit_size(db, put_binary_row(db, binary, variant, utc_now(), OnDifferent::kKeep));
  });
}

void TuneStore::put_compile_failure(const Digest& key, const std::string& variant,
                                    const std::string& arch, const std::string& compiler_version,
                                    const std::string& log) {
  BinaryRow row;
  row.key = key;
  row.variant = variant;
  row.arch = arch;
  row.compiler_version = compiler_version;
  state_->write([&](SQLite::Database& db) { put_failure_row(db, row, log, utc_now()); });
}

std::optional<Binary> TuneStore::find_binary(const Digest& key) const {
  return state_->read_first(
      [&](SQLite::Database& db) -> std::optional<Binary> {
        const auto id = find_binary_row(db, key);
        auto stored = id ? read_binary_row(db, *id) : std::nullopt;
        if (!stored || stored->failed) return std::nullopt;
        auto cubin = read_cubin(db, *id, stored->binary.content);
        if (!cubin) {
          state_->note(fmt::format(
              "a stored binary is damaged: key={} variant={}; it counts as a miss and is "
              "compiled again",
              key.text(), stored->variant));
          return std::nullopt;
        }
        state_->use(db, *id);
        stored->binary.cubin = std::move(*cubin);
        return std::move(stored->binary);
      },
      [](const auto& found) { return found.has_value(); });
}

std::optional<std::string> TuneStore::find_compile_failure(const Digest& key) const {
  return state_->read_first(
      [&](SQLite::Database& db) -> std::optional<std::string> {
        Query query(db, "SELECT log FROM binaries WHERE key = ? AND failed = 1", key);
        if (!query.next()) return std::nullopt;
        return query.text();
      },
      [](const auto& found) { return found.has_value(); });
}

std::vector<BinaryRow> TuneStore::binaries() const {
  return state_->read([&](SQLite::Database& db) {
    std::vector<BinaryRow> all = list_binaries(db);
    for (DatabaseFile& base : state_->bases) {
      for (BinaryRow& row :
           state_->on_base(base, list_binaries).value_or(std::vector<BinaryRow>())) {
        const bool known = std::any_of(all.begin(), all.end(),
                                       [&](const auto& one) { return one.key == row.key; });
        if (!known) all.push_back(std::move(row));
      }
    }
    return all;
  });
}

void TuneStore::put_winner(const DeviceInfo& gpu, const Winner& winner) {
  require_sound(winner.binary);
  state_->write(
      [&](SQLite::Database& db) { state_->limit_size(db, put_winner_rows(db, gpu, winner)); });
}

std::optional<WinnerHit> TuneStore::find_winner(const DeviceInfo& gpu, const Problem& problem,
                                                const Toolchain& toolchain,
                                                int timing_method) const {
  const WinnerQuery asked{gpu.identity(), gpu.driver_version, timing_method, toolchain, problem};
  return state_->read([&](SQLite::Database& db) {
    Tiers tiers(*state_, db);
    auto hit = tiers.find_winner(asked);
    for (const std::string& identity : tiers.aliases(gpu)) {
      if (hit) break;
      WinnerQuery other = asked;
      other.gpu_identity = identity;
      hit = tiers.find_winner(other);
      if (hit) hit->freshness = Freshness::kOtherGpu;
    }
    return hit;
  });
}

std::set<std::string> TuneStore::compiler_versions(const DeviceInfo& gpu) const {
  return state_->read([&](SQLite::Database& db) {
    Tiers tiers(*state_, db);
    std::vector<std::string> identities = tiers.aliases(gpu);
    identities.push_back(gpu.identity());
    std::set<std::string> versions;
    for (const std::string& identity : identities) {
      for (auto& some : tiers.each(
               [&](SQLite::Database& tier) { return winner_compiler_versions(tier, identity); })) {
        versions.insert(some.begin(), some.end());
      }
    }
    return versions;
  });
}

std::vector<std::pair<std::string, Winner>> TuneStore::winners(
    const std::string& gpu_identity) const {
  return state_->read([&](SQLite::Database& db) {
    std::vector<std::pair<std::string, Winner>> all;
    for (auto& some : Tiers(*state_, db).each([&](SQLite::Database& tier) {
           return list_winners(tier, gpu_identity, state_->noter());
         })) {
      const std::size_t num_before = all.size();
      for (auto& [identity, winner] : some) {
        const bool known = std::any_of(
            all.begin(), all.begin() + static_cast<std::ptrdiff_t>(num_before), [&](auto& one) {
              return one.first == identity && one.second.problem == winner.problem &&
                     one.second.toolchain == winner.toolchain;
            });
        if (!known) all.emplace_back(identity, std::move(winner));
      }
    }
    return all;
  });
}

void TuneStore::put_measurements(const DeviceInfo& gpu, const Problem& problem,
                                 const Toolchain& toolchain,
                                 std::span<const CandidateMeasurements> measurements) {
  state_->write([&](SQLite::Database& db) {
    replace_measurements(db, put_scope(db, gpu, toolchain), problem, measurements);
  });
}

std::vector<CandidateMeasurements> TuneStore::measurements(const DeviceInfo& gpu,
                                                           const Problem& problem,
                                                           const Toolchain& toolchain) const {
  return state_->read_first(
      [&](SQLite::Database& db) -> std::vector<CandidateMeasurements> {
        const auto scope = find_scope(db, gpu.identity(), toolchain);
        if (!scope) return {};
        return read_measurements(db, *scope, problem);
      },
      [](const auto& rows) { return !rows.empty(); });
}

void TuneStore::put_rejections(const DeviceInfo& gpu, const Problem& problem,
                               const Toolchain& toolchain,
                               std::span<const RejectionRecord> rejections) {
  state_->write([&](SQLite::Database& db) {
    replace_rejections(db, put_scope(db, gpu, toolchain), problem, rejections);
  });
}

std::vector<RejectionRecord> TuneStore::rejections(const DeviceInfo& gpu, const Problem& problem,
                                                   const Toolchain& toolchain) const {
  return state_->read_first(
      [&](SQLite::Database& db) -> std::vector<RejectionRecord> {
        const auto scope = find_scope(db, gpu.identity(), toolchain);
        if (!scope) return {};
        return read_rejections(db, *scope, problem);
      },
      [](const auto& rows) { return !rows.empty(); });
}

std::vector<StoredRejection> TuneStore::all_rejections() const {
  return state_->read([&](SQLite::Database& db) {
    const auto tune_of = [](const StoredRejection& one) {
      const Toolchain& toolchain = one.toolchain;
      return std::make_tuple(one.gpu_identity, one.problem.text(), toolchain.template_digest.text(),
                             toolchain.compiler_version, toolchain.options);
    };
    std::vector<StoredRejection> all;
    std::set<decltype(tune_of(all.front()))> known;  // tunes of the tiers before
    for (auto& some : Tiers(*state_, db).each(list_rejections)) {
      const std::size_t num_before = all.size();
      for (StoredRejection& one : some) {
        if (!known.contains(tune_of(one))) all.push_back(std::move(one));
      }
      for (std::size_t i = num_before; i < all.size(); ++i) known.insert(tune_of(all[i]));
    }
    return all;
  });
}

CacheStats TuneStore::stats() const {
  return state_->read([&](SQLite::Database& db) {
    CacheStats stats;
    stats.path = state_->file.path;
    stats.schema_version = schema_version(db);
    stats.file_bytes = file_bytes(db, state_->file);
    stats.num_gpus = count_rows(db, "gpus");
    stats.num_problems = count_rows(db, "problems");
    stats.num_candidates = count_rows(db, "candidates");
    stats.num_binaries = count_rows(db, "binaries");
    stats.num_admissions = count_rows(db, "admissions");
    stats.num_measurements = count_rows(db, "measurements");
    stats.num_winners = count_rows(db, "winners");
    stats.num_rejections = count_rows(db, "rejections");
    return stats;
  });
}

void TuneStore::export_to(const fs::path& path) const {
  state_->locked([&] { export_database(state_->file, path); });
}

ImportResult TuneStore::import_from(const fs::path& path, const ImportOptions& options) {
  return state_->locked([&] {
    state_->require_writable();
    return import_database(state_->file, path, options, state_->noter());
  });
}

VerifyReport TuneStore::verify() const {
  return state_->read([&](SQLite::Database& db) {
    VerifyReport report = verify_database(db);
    report.path = state_->file.path;
    return report;
  });
}

PruneResult TuneStore::prune(const PruneRequest& request) {
  return state_->locked([&] {
    state_->require_writable();
    try {
      const PruneResult pruned = prune_database(*state_->file.db, request);
      if (state_->file.access == Access::kReadWrite) execute(*state_->file.db, "VACUUM");
      return pruned;
    } catch (const SQLite::Exception& error) {
      throw cache_error("cannot prune the tuning cache", state_->file.path, error);
    }
  });
}

}  // namespace attune
