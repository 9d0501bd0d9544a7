#include "cache/transfer.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include "cache/binary_rows.h"
#include "cache/database_copy.h"
#include "cache/sql.h"
#include "jit/host/host_target.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCannotImport = "cannot import a tuning cache";

// Joins a row `s` of `source` to the ids that its key has in `main`.
// Results of the host device stay behind, as its binaries do.
constexpr const char* kMapGpuProblemToolchain =
    " JOIN source.gpus sg ON sg.id = s.gpu_id AND sg.arch <> 'host' AND sg.arch NOT LIKE 'host+%'"
    " JOIN main.gpus g ON g.identity = sg.identity"
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
          " SELECT identity, name, arch, num_sms, memory_bytes FROM source.gpus"
          " WHERE arch <> 'host' AND arch NOT LIKE 'host+%'");
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

// The columns of a table that are no part of its key, so that new ones are copied too.
std::vector<std::string> value_columns(SQLite::Database& db, std::string_view table,
                                       const std::vector<std::string>& keys) {
  std::vector<std::string> columns;
  Query query(db, "SELECT name FROM pragma_table_info(?) WHERE name <> 'id'", table);
  while (query.next()) {
    std::string name = query.text();
    if (std::find(keys.begin(), keys.end(), name) == keys.end()) columns.push_back(std::move(name));
  }
  return columns;
}

// One table of results: rows `s` of source into main.
struct ResultTable {
  std::string name;
  std::vector<std::string> references;  // columns with ids, all mapped
  std::vector<std::string> mapped;      // the ids here, in the order of `references`
  std::vector<std::string> unique;      // of `references` and values
  std::string joins;                    // that make the ids known
  std::string better;                   // when the row of source takes the place of ours
};

// Rows that are added or take the place of ours.
int copy_rows(SQLite::Database& db, const ResultTable& table) {
  const auto values = value_columns(db, table.name, table.references);
  std::vector<std::string> from_source, updates;
  for (const std::string& value : values) from_source.push_back("s." + value);
  for (const auto* columns : {&table.references, &values}) {
    for (const std::string& column : *columns) {
      if (std::find(table.unique.begin(), table.unique.end(), column) != table.unique.end())
        continue;
      updates.push_back(fmt::format("{0} = excluded.{0}", column));
    }
  }
  return execute(
      db, fmt::format("INSERT INTO main.{0} ({1}, {2}) SELECT {3}, {4} FROM source.{0} s{5}"
                      " WHERE true ON CONFLICT ({6}) DO UPDATE SET {7} WHERE {8}",
                      table.name, fmt::join(table.references, ", "), fmt::join(values, ", "),
                      fmt::join(table.mapped, ", "), fmt::join(from_source, ", "), table.joins,
                      fmt::join(table.unique, ", "), fmt::join(updates, ", "), table.better));
}

// The squared relative error of a median, up to a factor; above all others where the conditions were
// not the device's own.
std::string uncertainty(std::string_view row) {
  return fmt::format(
      "({0}provisional + {0}spread_us * {0}spread_us / ({0}median_us * {0}median_us *"
      " {0}num_samples))",
      row);
}

std::string sql_text(std::string_view text) {
  std::string literal = "'";
  for (const char c : text) literal += c == '\'' ? std::string("''") : std::string(1, c);
  return literal + "'";
}

// Sorts by evidence, see TuneStore::import_from; row values are compared from left to right.
std::string evidence(std::string_view row, const std::string& error, const ImportOptions& options) {
  return fmt::format("({0}method = {1}, {0}method, {0}driver_version = {2}, -({3}), {0}created_at)",
                     row, options.timing_method, sql_text(options.driver_version), error);
}

void copy_results(SQLite::Database& db, const ImportOptions& options) {
  const std::vector<std::string> key = {"gpu_id", "problem_id", "candidate_id", "toolchain_id"};
  const std::vector<std::string> ids = {"g.id", "p.id", "c.id", "t.id"};
  const auto with = [](std::vector<std::string> all, const char* one) {
    all.emplace_back(one);
    return all;
  };
  copy_rows(db, {"admissions", with(key, "binary_id"), with(ids, "b.id"), with(key, "reference"),
                 std::string(kMapGpuProblemToolchain) + kMapBinary,
                 "(excluded.num_cases, excluded.created_at) > (num_cases, created_at)"});
  copy_rows(db, {"measurements", key, ids, key, kMapGpuProblemToolchain,
                 fmt::format("{} > {}", evidence("excluded.", uncertainty("excluded."), options),
                             evidence("", uncertainty(""), options))});
  copy_rows(db, {"rejections", key, ids, key, kMapGpuProblemToolchain,
                 "excluded.created_at > created_at"});
}

int count(SQLite::Database& db, const std::string& from) {
  return static_cast<int>(query_int64(db, "SELECT count(*) FROM " + from).value_or(0));
}

// The mean over the times of winner `w`; a winner without a time has no evidence.
std::string winner_uncertainty(std::string_view schema) {
  return fmt::format(
      "coalesce((SELECT avg{1} FROM {0}.measurements m JOIN {0}.problems mp ON mp.id = m.problem_id"
      " JOIN {0}.problems wp ON wp.id = w.problem_id WHERE m.gpu_id = w.gpu_id"
      " AND m.toolchain_id = w.toolchain_id AND m.candidate_id = w.candidate_id"
      " AND mp.shape = wp.shape AND mp.kv_min = mp.kv_max"
      " AND mp.kv_min BETWEEN wp.kv_min AND wp.kv_max), 1e9)",
      schema, uncertainty("m."));
}

std::string all_evidence(std::string_view schema, const ImportOptions& options) {
  const std::string columns = evidence("w.", winner_uncertainty(schema), options);
  return fmt::format(
      "SELECT g.identity, p.text, t.template_digest, t.nvrtc_version, t.options, w.id,"
      " {1} FROM {0}.winners w JOIN {0}.gpus g ON g.id = w.gpu_id"
      " JOIN {0}.problems p ON p.id = w.problem_id"
      " JOIN {0}.toolchains t ON t.id = w.toolchain_id",
      schema, columns.substr(1, columns.size() - 2));
}

// The winners of source that stay behind: ours are better. Asked before any time is copied.
void find_better_of_ours(SQLite::Database& db, const ImportOptions& options) {
  const char* columns =
      "(gpu, problem, template, nvrtc, options, id, current, method, driver, error,"
      " created)";
  execute(db, "DROP TABLE IF EXISTS temp.kept_winners");
  execute(db,
          fmt::format("CREATE TEMP TABLE kept_winners AS WITH ours{0} AS ({1}), theirs{0} AS ({2})"
                      " SELECT theirs.id AS id FROM theirs JOIN ours"
                      " USING (gpu, problem, template, nvrtc, options)"
                      " WHERE (theirs.current, theirs.method, theirs.driver, theirs.error,"
                      " theirs.created) <= (ours.current, ours.method, ours.driver, ours.error,"
                      " ours.created)",
                      columns, all_evidence("main", options), all_evidence("source", options)));
}

void copy_winners(SQLite::Database& db, ImportResult* result) {
  const std::string joins = std::string(kMapGpuProblemToolchain) + kMapBinary + kMapAdmission;
  const int num_before = count(db, "main.winners");
  const int num_changed = copy_rows(
      db, {"winners",
           {"gpu_id", "problem_id", "toolchain_id", "candidate_id", "binary_id", "admission_id"},
           {"g.id", "p.id", "t.id", "c.id", "b.id", "a.id"},
           {"gpu_id", "problem_id", "toolchain_id"},
           joins + " AND s.id NOT IN (SELECT id FROM temp.kept_winners)",
           "true"});
  result->winners_added = count(db, "main.winners") - num_before;
  result->winners_replaced = num_changed - result->winners_added;
  result->winners_kept = count(db, "source.winners s" + joins) - num_changed;
  execute(db, "DROP TABLE temp.kept_winners");
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
DatabaseFile open_source(const fs::path& path, bool unchanged) {
  DatabaseFile source = unchanged ? open_database_unchanged(path) : open_database_read_only(path);
  Query check(*source.db, "PRAGMA quick_check(1)");
  if (check.next(); check.text() != "ok") {
    throw SQLite::Exception("quick_check found damage", SQLITE_CORRUPT);
  }
  return source;
}

}  // namespace

void export_database(DatabaseFile& from, const fs::path& path) {
  const fs::path target = fs::absolute(path);
  try {
    write_copy(*from.db, target);
  } catch (const SQLite::Exception& error) {
    throw cache_error("cannot export the tuning cache", target.string(), error);
  }
}

ImportResult import_database(DatabaseFile& into, const fs::path& path, const ImportOptions& options,
                             const Warn& warn) {
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
    DatabaseFile source = open_source(absolute, into.access == Access::kMemory);
    const Attachment attachment(*into.db, source.uri);
    SQLite::Transaction transaction(*into.db, SQLite::TransactionBehavior::IMMEDIATE);
    SQLite::Transaction snapshot(*source.db);
    ImportResult result;
    find_better_of_ours(*into.db, options);
    copy_keys(*into.db);
    result.binaries_added = copy_binaries(*into.db, *source.db, warn);
    copy_results(*into.db, options);
    copy_winners(*into.db, &result);
    transaction.commit();
    return result;
  } catch (const SQLite::Exception& error) {
    throw cache_error(kCannotImport, absolute, error);
  }
}

}  // namespace attune
