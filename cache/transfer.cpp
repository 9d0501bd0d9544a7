#include "cache/transfer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fmt/format.h>
#include <sqlite3.h>

#include "cache/binary_rows.h"
#include "cache/sql.h"
#include "jit/host/host_target.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCannotExport = "cannot export the tuning cache";
constexpr const char* kCannotImport = "cannot import a tuning cache";

// A file name beside the target that is removed unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target)
      : path_(fmt::format("{}.part-{}", target.string(), ::getpid())) {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

[[noreturn]] void fail_export(const fs::path& path, int error) {
  throw CacheError(
      kCannotExport,
      fmt::format("path={} ({})", path.string(), std::generic_category().message(error)),
      "choose another file");
}

void sync_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_export(path, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // EINVAL: the file system has no fsync.
  if (error != 0 && error != EINVAL) fail_export(path, error);
}

// Gives the file its name, atomically and never over another file.
void publish(const std::string& temporary, const fs::path& path) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
    return;
  }
  // EINVAL: the file system does not know the flag; then a link refuses to overwrite as well.
  if (errno == EINVAL && ::link(temporary.c_str(), path.c_str()) == 0) return;
  fail_export(path, errno);
}

// Joins a row `s` of `source` to the ids that its key has in `main`.
constexpr const char* kMapGpuProblemToolchain =
    " JOIN source.gpus sg ON sg.id = s.gpu_id JOIN main.gpus g ON g.identity = sg.identity"
    " JOIN source.problems sp ON sp.id = s.problem_id JOIN main.problems p ON p.text = sp.text"
    " JOIN source.toolchains st ON st.id = s.toolchain_id"
    " JOIN main.toolchains t ON t.template_digest = st.template_digest"
    " AND t.nvrtc_version = st.nvrtc_version AND t.options = st.options"
    " JOIN source.candidates sc ON sc.id = s.candidate_id"
    " JOIN main.candidates c ON c.text = sc.text";
// Drops rows whose binary was not copied.
constexpr const char* kMapBinary =
    " JOIN source.binaries sb ON sb.id = s.binary_id"
    " JOIN main.binaries b ON b.key = sb.key AND b.failed = 0";
constexpr const char* kMapAdmission =
    " JOIN source.admissions sa ON sa.id = s.admission_id"
    " JOIN main.admissions a ON a.gpu_id = g.id AND a.problem_id = p.id"
    " AND a.candidate_id = c.id AND a.toolchain_id = t.id AND a.reference = sa.reference";

void copy_keys(SQLite::Database& db) {
  execute(db,
          "INSERT OR IGNORE INTO main.gpus (identity, name, arch, num_sms, memory_bytes)"
          " SELECT identity, name, arch, num_sms, memory_bytes FROM source.gpus");
  execute(db,
          "INSERT OR IGNORE INTO main.problems (text, shape, kv_min, kv_max)"
          " SELECT text, shape, kv_min, kv_max FROM source.problems");
  execute(db, "INSERT OR IGNORE INTO main.candidates (text) SELECT text FROM source.candidates");
  execute(db,
          "INSERT OR IGNORE INTO main.toolchains (template_digest, nvrtc_version, options)"
          " SELECT template_digest, nvrtc_version, options FROM source.toolchains");
}

// Copies intact binaries; returns how many were not known here.
int copy_binaries(SQLite::Database& db, SQLite::Database& source, const Warn& warn) {
  int num_added = 0;
  for (Query ids(source, "SELECT id FROM binaries WHERE failed = 0"); ids.next();) {
    const std::int64_t id = ids.int64();
    auto stored = read_binary_row(source, id);
    if (!stored) continue;
    // Of the host device: a shared object that this process would run. It is compiled anew instead.
    if (is_host_arch(stored->binary.arch)) continue;
    auto cubin = read_cubin(source, id, stored->binary.content);
    if (!cubin) {
      warn(
          fmt::format("a binary to import is damaged: key={} variant={}; it is left out, and what "
                      "was tuned with it",
                      stored->binary.key.text(), stored->variant));
      continue;
    }
    stored->binary.cubin = std::move(*cubin);
    const auto known =
        query_int64(db, "SELECT 1 FROM binaries WHERE key = ? AND failed = 0", stored->binary.key);
    put_binary_row(db, stored->binary, stored->variant, stored->created_at, OnDifferent::kKeep);
    if (!known) ++num_added;
  }
  return num_added;
}

void copy_results(SQLite::Database& db) {
  execute(db, fmt::format(
                  "INSERT INTO main.admissions (gpu_id, problem_id, candidate_id, toolchain_id,"
                  " reference, binary_id, num_cases, relative_l2, worst_case_relative_l2,"
                  " max_abs_error, created_at)"
                  " SELECT g.id, p.id, c.id, t.id, s.reference, b.id, s.num_cases, s.relative_l2,"
                  " s.worst_case_relative_l2, s.max_abs_error, s.created_at"
                  " FROM source.admissions s{}{} WHERE true"
                  " ON CONFLICT (gpu_id, problem_id, candidate_id, toolchain_id, reference)"
                  " DO UPDATE SET binary_id = excluded.binary_id, num_cases = excluded.num_cases,"
                  " relative_l2 = excluded.relative_l2,"
                  " worst_case_relative_l2 = excluded.worst_case_relative_l2,"
                  " max_abs_error = excluded.max_abs_error, created_at = excluded.created_at"
                  " WHERE excluded.created_at > created_at",
                  kMapGpuProblemToolchain, kMapBinary));
  execute(db, fmt::format(
                  "INSERT INTO main.measurements (gpu_id, problem_id, candidate_id, toolchain_id,"
                  " median_us, spread_us, low_us, high_us, num_samples, num_dropped, sm_clock_mhz,"
                  " memory_clock_mhz, throttle, provisional, method, driver_version, created_at)"
                  " SELECT g.id, p.id, c.id, t.id, s.median_us, s.spread_us, s.low_us, s.high_us,"
                  " s.num_samples, s.num_dropped, s.sm_clock_mhz, s.memory_clock_mhz, s.throttle,"
                  " s.provisional, s.method, s.driver_version, s.created_at"
                  " FROM source.measurements s{} WHERE true"
                  " ON CONFLICT (gpu_id, problem_id, candidate_id, toolchain_id)"
                  " DO UPDATE SET median_us = excluded.median_us, spread_us = excluded.spread_us,"
                  " low_us = excluded.low_us, high_us = excluded.high_us,"
                  " num_samples = excluded.num_samples, num_dropped = excluded.num_dropped,"
                  " sm_clock_mhz = excluded.sm_clock_mhz,"
                  " memory_clock_mhz = excluded.memory_clock_mhz, throttle = excluded.throttle,"
                  " provisional = excluded.provisional, method = excluded.method,"
                  " driver_version = excluded.driver_version, created_at = excluded.created_at"
                  " WHERE excluded.created_at > created_at",
                  kMapGpuProblemToolchain));
  execute(db,
          fmt::format("INSERT INTO main.rejections (gpu_id, problem_id, candidate_id, toolchain_id,"
                      " stage, reason, detail, created_at)"
                      " SELECT g.id, p.id, c.id, t.id, s.stage, s.reason, s.detail, s.created_at"
                      " FROM source.rejections s{} WHERE true"
                      " ON CONFLICT (gpu_id, problem_id, candidate_id, toolchain_id)"
                      " DO UPDATE SET stage = excluded.stage, reason = excluded.reason,"
                      " detail = excluded.detail, created_at = excluded.created_at"
                      " WHERE excluded.created_at > created_at",
                      kMapGpuProblemToolchain));
}

int count(SQLite::Database& db, const std::string& from) {
  return static_cast<int>(query_int64(db, "SELECT count(*) FROM " + from).value_or(0));
}

void copy_winners(SQLite::Database& db, ImportResult* result) {
  const std::string rows =
      fmt::format("source.winners s{}{}{}", kMapGpuProblemToolchain, kMapBinary, kMapAdmission);
  const int num_before = count(db, "main.winners");
  const int num_changed = execute(
      db, fmt::format(
              "INSERT INTO main.winners (gpu_id, problem_id, toolchain_id, candidate_id, binary_id,"
              " admission_id, worst_regret, runner_up, margin_runner_up, default_candidate,"
              " margin_default, margin_default_low, method, effort, candidates, driver_version,"
              " created_at)"
              " SELECT g.id, p.id, t.id, c.id, b.id, a.id, s.worst_regret, s.runner_up,"
              " s.margin_runner_up, s.default_candidate, s.margin_default, s.margin_default_low,"
              " s.method, s.effort, s.candidates, s.driver_version, s.created_at FROM {} WHERE true"
              " ON CONFLICT (gpu_id, problem_id, toolchain_id) DO UPDATE SET"
              " candidate_id = excluded.candidate_id, binary_id = excluded.binary_id,"
              " admission_id = excluded.admission_id, worst_regret = excluded.worst_regret,"
              " runner_up = excluded.runner_up, margin_runner_up = excluded.margin_runner_up,"
              " default_candidate = excluded.default_candidate,"
              " margin_default = excluded.margin_default,"
              " margin_default_low = excluded.margin_default_low, method = excluded.method,"
              " effort = excluded.effort, candidates = excluded.candidates,"
              " driver_version = excluded.driver_version, created_at = excluded.created_at"
              " WHERE excluded.created_at > created_at",
              rows));
  result->winners_added = count(db, "main.winners") - num_before;
  result->winners_replaced = num_changed - result->winners_added;
  result->winners_kept = count(db, rows) - num_changed;
}

// Attaches a database as `source` for its lifetime.
class Attachment {
 public:
  Attachment(SQLite::Database& db, const std::string& uri) : db_(db) {
    execute(db, "ATTACH ? AS source", uri);
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  ~Attachment() { db_.tryExec("DETACH source"); }

 private:
  SQLite::Database& db_;
};

// Opens the file and reads all of it once: damage must show before anything is copied.
DatabaseFile open_source(const fs::path& path) {
  DatabaseFile source = open_database_read_only(path);
  Query check(*source.db, "PRAGMA quick_check(1)");
  if (check.next(); check.text() != "ok") {
    throw SQLite::Exception("quick_check found damage", SQLITE_CORRUPT);
  }
  return source;
}

}  // namespace

void export_database(DatabaseFile& from, const fs::path& path) {
  const fs::path target = fs::absolute(path);
  if (fs::exists(fs::symlink_status(target))) fail_export(target, EEXIST);
  const TemporaryFile temporary(target);
  try {
    execute(*from.db, "VACUUM INTO ?", temporary.path());
  } catch (const SQLite::Exception& error) {
    throw cache_error(kCannotExport, target.string(), error);
  }
  sync_file(temporary.path());
  publish(temporary.path(), target);
}

ImportResult import_database(DatabaseFile& into, const fs::path& path, const Warn& warn) {
  const std::string absolute = fs::absolute(path).string();
  const auto identity = file_identity(absolute);
  if (!identity) {
    throw CacheError(kCannotImport, fmt::format("path={} (no such file)", absolute),
                     "name a file made by `attune cache export`");
  }
  if (into.identity == identity) {
    throw CacheError(kCannotImport, fmt::format("path={} (this is the cache itself)", absolute),
                     "name another file");
  }
  try {
    DatabaseFile source = open_source(absolute);
    const Attachment attachment(*into.db, source.uri);
    SQLite::Transaction transaction(*into.db, SQLite::TransactionBehavior::IMMEDIATE);
    SQLite::Transaction snapshot(*source.db);
    ImportResult result;
    copy_keys(*into.db);
    result.binaries_added = copy_binaries(*into.db, *source.db, warn);
    copy_results(*into.db);
    copy_winners(*into.db, &result);
    transaction.commit();
    return result;
  } catch (const SQLite::Exception& error) {
    throw cache_error(kCannotImport, absolute, error);
  }
}

}  // namespace attune
