#include "cache/result_rows.h"

#include <utility>

#include <fmt/format.h>

#include "cache/cache_directory.h"
#include "common/error.h"

namespace attune {
namespace {

// The measurements of a problem: parameters gpu, toolchain, shape, kv min, kv max.
constexpr const char* kInsideProblem =
    " FROM measurements m JOIN problems p ON p.id = m.problem_id"
    " WHERE m.gpu_id = ? AND m.toolchain_id = ? AND p.shape = ? AND p.kv_min = p.kv_max"
    " AND p.kv_min BETWEEN ? AND ?";
constexpr const char* kPointColumns =
    " p.kv_min, m.median_us, m.spread_us, m.low_us, m.high_us, m.num_samples, m.num_dropped,"
    " m.sm_clock_mhz, m.memory_clock_mhz, m.throttle, m.provisional, m.method, m.driver_version,"
    " m.created_at";

Measurement read_point(Query& query) {
  Measurement point;
  point.kv_len = query.integer();
  point.median_us = query.real();
  point.spread_us = query.real();
  point.low_us = query.real();
  point.high_us = query.real();
  point.num_samples = query.integer();
  point.num_dropped = query.integer();
  point.sm_clock_mhz = query.integer();
  point.memory_clock_mhz = query.integer();
  point.throttle = query.text();
  point.provisional = query.integer() != 0;
  point.method = query.integer();
  point.driver_version = query.text();
  point.created_at = query.text();
  return point;
}

}  // namespace

void put_measurement_row(SQLite::Database& db, const Scope& scope, const Problem& problem,
                         std::int64_t candidate_id, const Measurement& measurement) {
  if (measurement.kv_len < problem.kv.min || measurement.kv_len > problem.kv.max) {
    throw InvalidArgument("cannot store the measurement",
                          fmt::format("problem={} kv_len={}", problem.text(), measurement.kv_len),
                          "measure inside the problem's kv range");
  }
  Problem point = problem;
  point.kv = {measurement.kv_len, measurement.kv_len};
  execute(db,
          "INSERT INTO measurements (gpu_id, problem_id, candidate_id, toolchain_id, median_us,"
          " spread_us, low_us, high_us, num_samples, num_dropped, sm_clock_mhz, memory_clock_mhz,"
          " throttle, provisional, method, driver_version, created_at)"
          " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
          " ON CONFLICT (gpu_id, problem_id, candidate_id, toolchain_id) DO UPDATE SET"
          " median_us = excluded.median_us, spread_us = excluded.spread_us,"
          " low_us = excluded.low_us, high_us = excluded.high_us,"
          " num_samples = excluded.num_samples, num_dropped = excluded.num_dropped,"
          " sm_clock_mhz = excluded.sm_clock_mhz, memory_clock_mhz = excluded.memory_clock_mhz,"
          " throttle = excluded.throttle, provisional = excluded.provisional,"
          " method = excluded.method,"
          " driver_version = excluded.driver_version, created_at = excluded.created_at",
          scope.gpu_id, put_problem(db, point), candidate_id, scope.toolchain_id,
          measurement.median_us, measurement.spread_us, measurement.low_us, measurement.high_us,
          measurement.num_samples, measurement.num_dropped, measurement.sm_clock_mhz,
          measurement.memory_clock_mhz, measurement.throttle, measurement.provisional ? 1 : 0,
          measurement.method, measurement.driver_version,
          measurement.created_at.empty() ? utc_now() : measurement.created_at);
}

std::vector<Measurement> read_points(SQLite::Database& db, const Scope& scope,
                                     const Problem& problem, std::int64_t candidate_id) {
  std::vector<Measurement> points;
  Query query(db,
              fmt::format("SELECT{}{} AND m.candidate_id = ? ORDER BY p.kv_min", kPointColumns,
                          kInsideProblem),
              scope.gpu_id, scope.toolchain_id, shape_text(problem), problem.kv.min, problem.kv.max,
              candidate_id);
  while (query.next()) points.push_back(read_point(query));
  return points;
}

void replace_measurements(SQLite::Database& db, const Scope& scope, const Problem& problem,
                          std::span<const CandidateMeasurements> measurements) {
  execute(db, fmt::format("DELETE FROM measurements WHERE id IN (SELECT m.id{})", kInsideProblem),
          scope.gpu_id, scope.toolchain_id, shape_text(problem), problem.kv.min, problem.kv.max);
  for (const CandidateMeasurements& measured : measurements) {
    const std::int64_t candidate_id = put_candidate(db, measured.candidate);
    for (const Measurement& point : measured.points) {
      put_measurement_row(db, scope, problem, candidate_id, point);
    }
  }
}

std::vector<CandidateMeasurements> read_measurements(SQLite::Database& db, const Scope& scope,
                                                     const Problem& problem) {
  std::vector<CandidateMeasurements> all;
  Query query(db,
              fmt::format("SELECT (SELECT text FROM candidates WHERE id = m.candidate_id) AS"
                          " candidate,{}{} ORDER BY candidate, p.kv_min",
                          kPointColumns, kInsideProblem),
              scope.gpu_id, scope.toolchain_id, shape_text(problem), problem.kv.min,
              problem.kv.max);
  while (query.next()) {
    const auto candidate = read_candidate(query.text());
    if (!candidate) continue;
    if (all.empty() || all.back().candidate != *candidate) all.push_back({*candidate, {}});
    all.back().points.push_back(read_point(query));
  }
  return all;
}

void replace_rejections(SQLite::Database& db, const Scope& scope, const Problem& problem,
                        std::span<const RejectionRecord> rejections) {
  const std::int64_t problem_id = put_problem(db, problem);
  execute(db, "DELETE FROM rejections WHERE gpu_id = ? AND problem_id = ? AND toolchain_id = ?",
          scope.gpu_id, problem_id, scope.toolchain_id);
  const std::string now = utc_now();
  for (const RejectionRecord& record : rejections) {
    // A candidate named twice keeps its last reason: it got further.
    execute(db,
            "INSERT OR REPLACE INTO rejections (gpu_id, problem_id, candidate_id, toolchain_id,"
            " stage, reason, detail, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            scope.gpu_id, problem_id, put_candidate(db, record.candidate), scope.toolchain_id,
            name_of(record.stage), name_of(record.rejection.reason), record.rejection.detail, now);
  }
}

std::vector<RejectionRecord> read_rejections(SQLite::Database& db, const Scope& scope,
                                             const Problem& problem) {
  std::vector<RejectionRecord> records;
  Query query(db,
              "SELECT c.text, r.stage, r.reason, r.detail FROM rejections r"
              " JOIN candidates c ON c.id = r.candidate_id"
              " JOIN problems p ON p.id = r.problem_id"
              " WHERE r.gpu_id = ? AND r.toolchain_id = ? AND p.text = ? ORDER BY r.id",
              scope.gpu_id, scope.toolchain_id, problem.text());
  while (query.next()) {
    const auto candidate = read_candidate(query.text());
    const auto stage = parse_stage(query.text());
    const auto reason = parse_reject_reason(query.text());
    if (!candidate || !stage || !reason) continue;
    records.push_back({*candidate, *stage, {*reason, query.text()}});
  }
  return records;
}

std::vector<StoredRejection> list_rejections(SQLite::Database& db) {
  std::vector<StoredRejection> all;
  Query query(db,
              "SELECT p.text, c.text, r.stage, r.reason, g.identity, t.template_digest,"
              " t.nvrtc_version, t.options, r.detail, r.created_at FROM rejections r"
              " JOIN gpus g ON g.id = r.gpu_id JOIN problems p ON p.id = r.problem_id"
              " JOIN candidates c ON c.id = r.candidate_id"
              " JOIN toolchains t ON t.id = r.toolchain_id"
              " ORDER BY g.identity, p.shape, p.kv_min, p.kv_max, r.toolchain_id, r.id");
  while (query.next()) {
    const auto problem = read_problem(query.text());
    const auto candidate = read_candidate(query.text());
    const auto stage = parse_stage(query.text());
    const auto reason = parse_reject_reason(query.text());
    if (!problem || !candidate || !stage || !reason) continue;
    StoredRejection& one = all.emplace_back();
    one.gpu_identity = query.text();
    one.problem = *problem;
    one.toolchain.template_digest = query.digest();
    one.toolchain.compiler_version = query.text();
    one.toolchain.options = query.text();
    one.record = {*candidate, *stage, {*reason, query.text()}};
    one.created_at = query.text();
  }
  return all;
}

}  // namespace attune
