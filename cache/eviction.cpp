#include "cache/eviction.h"

#include <chrono>
#include <utility>
#include <vector>

namespace attune {
namespace {

// (id, bytes) in the order of eviction. A winner is succeeded when the same GPU and problem have a
// newer one: that of another toolchain.
std::vector<std::pair<std::int64_t, std::size_t>> eviction_order(SQLite::Database& db) {
  std::vector<std::pair<std::int64_t, std::size_t>> order;
  Query query(
      db,
      "SELECT b.id, length(b.cubin), CASE"
      " WHEN NOT EXISTS (SELECT 1 FROM winners w WHERE w.binary_id = b.id) THEN 0"
      " WHEN NOT EXISTS (SELECT 1 FROM winners w WHERE w.binary_id = b.id AND NOT EXISTS"
      "  (SELECT 1 FROM winners n WHERE n.gpu_id = w.gpu_id AND n.problem_id = w.problem_id"
      "   AND n.created_at > w.created_at)) THEN 1"
      " ELSE 2 END AS rank FROM binaries b WHERE b.failed = 0 ORDER BY rank, b.used_at, b.id");
  while (query.next()) {
    const std::int64_t id = query.int64();
    order.emplace_back(id, static_cast<std::size_t>(query.int64()));
  }
  return order;
}

}  // namespace

std::int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::size_t stored_cubin_bytes(SQLite::Database& db) {
  return static_cast<std::size_t>(
      query_int64(db, "SELECT coalesce(sum(length(cubin)), 0) FROM binaries").value_or(0));
}

Evicted evict_binaries(SQLite::Database& db, std::size_t max_bytes, std::int64_t kept_id) {
  Evicted evicted;
  std::size_t bytes = stored_cubin_bytes(db);
  if (bytes <= max_bytes) return evicted;
  for (const auto& [id, size] : eviction_order(db)) {
    if (bytes <= max_bytes) break;
    if (id == kept_id) continue;
    evicted.winners += delete_binary(db, id);
    ++evicted.binaries;
    evicted.bytes += size;
    bytes -= size;
  }
  return evicted;
}

void touch_binaries(SQLite::Database& db, const std::set<std::int64_t>& ids) {
  for (const std::int64_t id : ids) {
    execute(db, "UPDATE binaries SET used_at = ? WHERE id = ?", now_s(), id);
  }
}

bool is_use_due(SQLite::Database& db, std::int64_t binary_id) {
  return query_int64(db, "SELECT used_at FROM binaries WHERE id = ?", binary_id).value_or(0) <
         now_s() - kUseIntervalS;
}

int delete_binary(SQLite::Database& db, std::int64_t id) {
  const int num_winners =
      execute(db,
              "DELETE FROM winners WHERE binary_id = ?1"
              " OR admission_id IN (SELECT id FROM admissions WHERE binary_id = ?1)",
              id);
  execute(db, "DELETE FROM admissions WHERE binary_id = ?", id);
  execute(db, "DELETE FROM binaries WHERE id = ?", id);
  return num_winners;
}

}  // namespace attune
