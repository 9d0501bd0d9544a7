#include "cache/prune.h"

#include <vector>

#include <fmt/format.h>

#include "cache/eviction.h"

namespace attune {
namespace {

int count(SQLite::Database& db, const char* from) {
  return static_cast<int>(
      query_int64(db, fmt::format("SELECT count(*) FROM {}", from)).value_or(0));
}

PruneResult counts(SQLite::Database& db) {
  return {count(db, "winners"),
          count(db, "measurements"),
          count(db, "rejections"),
          count(db, "binaries WHERE failed = 0"),
          count(db, "binaries WHERE failed = 1"),
          stored_cubin_bytes(db)};
}

void delete_other_templates(SQLite::Database& db, const std::set<Digest>& current) {
  std::vector<std::int64_t> others;
  for (Query query(db, "SELECT id, template_digest FROM toolchains"); query.next();) {
    const std::int64_t id = query.int64();
    if (current.count(query.digest()) == 0) others.push_back(id);
  }
  for (const std::int64_t id : others) {
    for (const char* table : {"winners", "admissions", "measurements", "rejections"}) {
      execute(db, fmt::format("DELETE FROM {} WHERE toolchain_id = ?", table), id);
    }
  }
}

// Binaries that a winner or an admission referred to and nothing refers to now.
void delete_left_binaries(SQLite::Database& db) {
  execute(db,
          "DELETE FROM binaries WHERE id IN (SELECT id FROM temp.referred)"
          " AND id NOT IN (SELECT binary_id FROM winners)"
          " AND id NOT IN (SELECT binary_id FROM admissions)");
}

// Of GPUs whose name contains ?1; '' is any.
constexpr const char* kOfGpu =
    "(?1 = '' OR gpu_id IN (SELECT id FROM gpus WHERE instr(name, ?1) > 0))";

// What is said of a problem (?2; '' is any) on these GPUs, but its times.
void delete_results(SQLite::Database& db, const PruneRequest& request) {
  for (const char* table : {"winners", "admissions", "rejections"}) {
    execute(db,
            fmt::format("DELETE FROM {} WHERE {} AND"
                        " (?2 = '' OR problem_id IN (SELECT id FROM problems WHERE text = ?2))",
                        table, kOfGpu),
            request.gpu, request.problem);
  }
}

// Times on these GPUs inside a problem's range that no other winner's range holds.
void delete_left_points(SQLite::Database& db, const PruneRequest& request) {
  execute(db,
          fmt::format(
              "DELETE FROM measurements WHERE {} AND problem_id IN (SELECT at.id FROM problems at"
              " JOIN problems p ON p.shape = at.shape AND at.kv_min = at.kv_max"
              " AND at.kv_min BETWEEN p.kv_min AND p.kv_max WHERE p.text = ?2)"
              " AND NOT EXISTS (SELECT 1 FROM winners w JOIN problems wp ON wp.id = w.problem_id"
              " JOIN problems at ON at.id = measurements.problem_id WHERE w.gpu_id = "
              "measurements.gpu_id"
              " AND wp.shape = at.shape AND at.kv_min BETWEEN wp.kv_min AND wp.kv_max)",
              kOfGpu),
          request.gpu, request.problem);
}

void delete_unused(SQLite::Database& db, double days) {
  const auto before = now_s() - static_cast<std::int64_t>(days * kUseIntervalS);
  std::vector<std::int64_t> unused;
  Query query(db,
              "SELECT id FROM binaries WHERE failed = 0 AND used_at <= ?"
              " AND id NOT IN (SELECT binary_id FROM winners)",
              before);
  while (query.next()) unused.push_back(query.int64());
  for (const std::int64_t id : unused) delete_binary(db, id);
}

void delete_selected(SQLite::Database& db, const PruneRequest& request) {
  if (!request.gpu.empty() || !request.problem.empty()) delete_results(db, request);
  if (!request.problem.empty()) {
    delete_left_points(db, request);
  } else if (!request.gpu.empty()) {
    execute(db, fmt::format("DELETE FROM measurements WHERE {}", kOfGpu), request.gpu);
  }
  if (!request.current_templates.empty()) delete_other_templates(db, request.current_templates);
}

}  // namespace

PruneResult prune_database(SQLite::Database& db, const PruneRequest& request) {
  execute(db, "CREATE TEMP TABLE IF NOT EXISTS referred (id INTEGER PRIMARY KEY)");
  SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
  const PruneResult before = counts(db);
  execute(db, "DELETE FROM temp.referred");
  execute(db,
          "INSERT INTO temp.referred SELECT binary_id FROM winners"
          " UNION SELECT binary_id FROM admissions");
  delete_selected(db, request);
  delete_left_binaries(db);
  if (request.failures) execute(db, "DELETE FROM binaries WHERE failed = 1");
  if (request.unused_days) delete_unused(db, *request.unused_days);
  if (request.max_bytes) evict_binaries(db, *request.max_bytes);
  const PruneResult after = counts(db);
  transaction.commit();
  return {before.winners - after.winners,       before.measurements - after.measurements,
          before.rejections - after.rejections, before.binaries - after.binaries,
          before.failures - after.failures,     before.bytes - after.bytes};
}

}  // namespace attune
