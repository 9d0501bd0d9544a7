#include "cache/schema.h"

#include <array>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include "common/error.h"

namespace attune {
namespace {

// The key of everything tuned is (gpu, problem, candidate, toolchain); each part has one row in its
// own table and is unique by all that it consists of.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE gpus (
  id            INTEGER PRIMARY KEY,
  identity      TEXT NOT NULL UNIQUE,     -- the key; the columns below repeat parts of it
  name          TEXT NOT NULL,
  arch          TEXT NOT NULL,
  num_sms       INTEGER NOT NULL,
  memory_bytes  INTEGER NOT NULL
) STRICT;

CREATE TABLE problems (
  id      INTEGER PRIMARY KEY,
  text    TEXT NOT NULL UNIQUE,
  shape   TEXT NOT NULL,                  -- the text at kv1: equal for problems that differ in kv
  kv_min  INTEGER NOT NULL,
  kv_max  INTEGER NOT NULL,
  CHECK (1 <= kv_min AND kv_min <= kv_max)
) STRICT;
CREATE INDEX problems_by_shape ON problems (shape, kv_min, kv_max);

CREATE TABLE candidates (
  id    INTEGER PRIMARY KEY,
  text  TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE toolchains (
  id               INTEGER PRIMARY KEY,
  template_digest  TEXT NOT NULL,
  nvrtc_version    TEXT NOT NULL,
  options          TEXT NOT NULL,
  UNIQUE (template_digest, nvrtc_version, options)
) STRICT;

CREATE TABLE binaries (
  id             INTEGER PRIMARY KEY,
  key            TEXT NOT NULL UNIQUE,    -- digest of all inputs
  content        TEXT,                    -- digest of the cubin; NULL when the compile failed
  cubin          BLOB,                    -- zstd; NULL when the compile failed
  cubin_bytes    INTEGER NOT NULL,
  variant        TEXT NOT NULL,
  arch           TEXT NOT NULL,
  nvrtc_version  TEXT NOT NULL,
  options        TEXT NOT NULL,
  notes          TEXT NOT NULL,           -- ptxas notes, one a line
  log            TEXT NOT NULL,
  compile_ms     REAL NOT NULL,
  failed         INTEGER NOT NULL,
  created_at     TEXT NOT NULL,
  CHECK (failed IN (0, 1) AND (cubin IS NULL) = failed AND (content IS NULL) = failed)
) STRICT;

CREATE TABLE binary_kernels (
  binary_id          INTEGER NOT NULL REFERENCES binaries ON DELETE CASCADE,
  kernel_idx         INTEGER NOT NULL,
  symbol             TEXT NOT NULL,
  registers          INTEGER NOT NULL,
  stack_bytes        INTEGER NOT NULL,
  spill_store_bytes  INTEGER NOT NULL,
  spill_load_bytes   INTEGER NOT NULL,
  static_smem_bytes  INTEGER NOT NULL,
  PRIMARY KEY (binary_id, kernel_idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE admissions (
  id                      INTEGER PRIMARY KEY,
  gpu_id                  INTEGER NOT NULL REFERENCES gpus,
  problem_id              INTEGER NOT NULL REFERENCES problems,
  candidate_id            INTEGER NOT NULL REFERENCES candidates,
  toolchain_id            INTEGER NOT NULL REFERENCES toolchains,
  reference               TEXT NOT NULL,
  binary_id               INTEGER NOT NULL REFERENCES binaries,
  num_cases               INTEGER NOT NULL,
  relative_l2             REAL NOT NULL,
  worst_case_relative_l2  REAL NOT NULL,
  max_abs_error           REAL NOT NULL,
  created_at              TEXT NOT NULL,
  UNIQUE (gpu_id, problem_id, candidate_id, toolchain_id, reference)
) STRICT;

CREATE TABLE measurements (
  id              INTEGER PRIMARY KEY,
  gpu_id          INTEGER NOT NULL REFERENCES gpus,
  problem_id      INTEGER NOT NULL REFERENCES problems,  -- at one kv_len: kv_min = kv_max
  candidate_id    INTEGER NOT NULL REFERENCES candidates,
  toolchain_id    INTEGER NOT NULL REFERENCES toolchains,
  median_us       REAL NOT NULL CHECK (median_us > 0),
  spread_us       REAL NOT NULL CHECK (spread_us >= 0),
  num_samples     INTEGER NOT NULL CHECK (num_samples >= 1),
  method          INTEGER NOT NULL,
  driver_version  TEXT NOT NULL,
  created_at      TEXT NOT NULL,
  UNIQUE (gpu_id, problem_id, candidate_id, toolchain_id)
) STRICT;

CREATE TABLE winners (
  id                 INTEGER PRIMARY KEY,
  gpu_id             INTEGER NOT NULL REFERENCES gpus,
  problem_id         INTEGER NOT NULL REFERENCES problems,
  toolchain_id       INTEGER NOT NULL REFERENCES toolchains,
  candidate_id       INTEGER NOT NULL REFERENCES candidates,
  binary_id          INTEGER NOT NULL REFERENCES binaries,
  admission_id       INTEGER NOT NULL REFERENCES admissions,
  worst_regret       REAL NOT NULL,
  runner_up          TEXT NOT NULL,       -- candidate text; '' when the winner was alone
  margin_runner_up   REAL NOT NULL,
  default_candidate  TEXT NOT NULL,
  margin_default     REAL NOT NULL,
  method             INTEGER NOT NULL,
  driver_version     TEXT NOT NULL,
  created_at         TEXT NOT NULL,
  UNIQUE (gpu_id, problem_id, toolchain_id)
) STRICT;

CREATE TABLE rejections (
  id            INTEGER PRIMARY KEY,
  gpu_id        INTEGER NOT NULL REFERENCES gpus,
  problem_id    INTEGER NOT NULL REFERENCES problems,
  candidate_id  INTEGER NOT NULL REFERENCES candidates,
  toolchain_id  INTEGER NOT NULL REFERENCES toolchains,
  stage         TEXT NOT NULL,
  reason        TEXT NOT NULL,
  detail        TEXT NOT NULL,
  created_at    TEXT NOT NULL,
  UNIQUE (gpu_id, problem_id, candidate_id, toolchain_id)
) STRICT;

-- For people with a sqlite3 prompt; the library does not read these.
CREATE VIEW winner_list AS
  SELECT gpus.name AS gpu, gpus.arch, problems.text AS problem, candidates.text AS candidate,
         winners.worst_regret, winners.margin_default, winners.runner_up, winners.driver_version,
         toolchains.nvrtc_version, winners.created_at
    FROM winners JOIN gpus ON gpus.id = winners.gpu_id
    JOIN problems ON problems.id = winners.problem_id
    JOIN candidates ON candidates.id = winners.candidate_id
    JOIN toolchains ON toolchains.id = winners.toolchain_id;

CREATE VIEW measurement_list AS
  SELECT gpus.name AS gpu, problems.shape, problems.kv_min AS kv_len,
         candidates.text AS candidate, measurements.median_us, measurements.spread_us,
         measurements.num_samples, measurements.driver_version, measurements.created_at
    FROM measurements JOIN gpus ON gpus.id = measurements.gpu_id
    JOIN problems ON problems.id = measurements.problem_id
    JOIN candidates ON candidates.id = measurements.candidate_id;

CREATE VIEW rejection_list AS
  SELECT gpus.name AS gpu, problems.text AS problem, candidates.text AS candidate,
         rejections.stage, rejections.reason, rejections.detail, rejections.created_at
    FROM rejections JOIN gpus ON gpus.id = rejections.gpu_id
    JOIN problems ON problems.id = rejections.problem_id
    JOIN candidates ON candidates.id = rejections.candidate_id;
)sql";

// How a measurement was taken and how sure it is; what a winner was chosen from, and how surely; what
// eviction goes by.
constexpr const char* kVersion2 = R"sql(
ALTER TABLE measurements ADD COLUMN low_us REAL NOT NULL DEFAULT 0;   -- the median's 95% interval
ALTER TABLE measurements ADD COLUMN high_us REAL NOT NULL DEFAULT 0;  -- both 0: not known
ALTER TABLE measurements ADD COLUMN num_dropped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE measurements ADD COLUMN sm_clock_mhz INTEGER NOT NULL DEFAULT 0;      -- 0: not known
ALTER TABLE measurements ADD COLUMN memory_clock_mhz INTEGER NOT NULL DEFAULT 0;  -- 0: not known
ALTER TABLE measurements ADD COLUMN throttle TEXT NOT NULL DEFAULT '';            -- 'power+thermal'
ALTER TABLE measurements ADD COLUMN provisional INTEGER NOT NULL DEFAULT 0
  CHECK (provisional IN (0, 1));
ALTER TABLE winners ADD COLUMN margin_default_low REAL NOT NULL DEFAULT 0;
ALTER TABLE winners ADD COLUMN effort TEXT NOT NULL DEFAULT '';      -- '': not known
ALTER TABLE winners ADD COLUMN candidates TEXT NOT NULL DEFAULT '';  -- digest; '': not known
ALTER TABLE binaries ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;  -- seconds since 1970, to a day
)sql";

constexpr std::array kMigrations = {Migration{1, kVersion1}, Migration{2, kVersion2}};
static_assert(kMigrations.back().version == kSchemaVersion);

constexpr int kNumTables = 10;
constexpr const char* kCountTables =
    "SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name IN ('gpus', 'problems',"
    " 'candidates', 'toolchains', 'binaries', 'binary_kernels', 'admissions', 'measurements',"
    " 'winners', 'rejections')";

int query_int(SQLite::Database& db, const char* sql) {
  SQLite::Statement query(db, sql);
  query.executeStep();
  return query.getColumn(0).getInt();
}

// Throws unless the database is a tuning cache of a version that this program knows, or empty.
void require_known(SQLite::Database& db, const std::string& path, int supported) {
  const int application_id = query_int(db, "PRAGMA main.application_id");
  const int version = schema_version(db);
  const bool empty = version == 0 && application_id == 0 &&
                     query_int(db, "SELECT count(*) FROM main.sqlite_schema") == 0;
  if (application_id != kApplicationId && !empty) {
    throw CacheError(
        "cannot open tuning cache",
        fmt::format("path={} application_id={} expected={}", path, application_id, kApplicationId),
        "it is the database of another program, choose another file with --cache");
  }
  if (version > supported) {
    throw CacheError("cannot open tuning cache",
                     fmt::format("path={} schema={} supported={}", path, version, supported),
                     "upgrade attune, or choose another file with --cache");
  }
}

}  // namespace

std::span<const Migration> migrations() { return kMigrations; }

int schema_version(SQLite::Database& db) { return query_int(db, "PRAGMA main.user_version"); }

void migrate(SQLite::Database& db, const std::string& path, std::span<const Migration> steps) {
  const int target = steps.back().version;
  {
    // One snapshot: version and application id belong together while others migrate.
    SQLite::Transaction snapshot(db);
    require_known(db, path, target);
    if (schema_version(db) == target) return;
  }
  SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
  require_known(db, path, target);
  const int found = schema_version(db);
  if (found == target) return;
  for (const Migration& step : steps) {
    if (step.version > found) db.exec(step.sql);
  }
  db.exec(fmt::format("PRAGMA main.user_version = {}; PRAGMA main.application_id = {}", target,
                      kApplicationId));
  transaction.commit();
}

void require_known_schema(SQLite::Database& db, const std::string& path) {
  SQLite::Transaction snapshot(db);
  require_known(db, path, kSchemaVersion);
}

void require_current_schema(SQLite::Database& db, const std::string& path) {
  SQLite::Transaction snapshot(db);
  require_known(db, path, kSchemaVersion);
  const int version = schema_version(db);
  if (version < kSchemaVersion) {
    throw CacheError("cannot read tuning cache",
                     fmt::format("path={} schema={} supported={}", path, version, kSchemaVersion),
                     "open a writable copy of it once to upgrade it");
  }
  if (query_int(db, kCountTables) != kNumTables) {
    throw SQLite::Exception("tables are missing", SQLITE_CORRUPT);
  }
}

}  // namespace attune
