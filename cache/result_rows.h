// Rows of `measurements` and `rejections`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/key_rows.h"
#include "cache/tune_store.h"

namespace attune {

// Files a measurement under the problem at its kv_len, in place of an earlier one.
void put_measurement_row(SQLite::Database& db, const Scope& scope, const Problem& problem,
                         std::int64_t candidate_id, const Measurement& measurement);
// The points of one candidate inside problem.kv, by kv_len.
std::vector<Measurement> read_points(SQLite::Database& db, const Scope& scope,
                                     const Problem& problem, std::int64_t candidate_id);

void replace_measurements(SQLite::Database& db, const Scope& scope, const Problem& problem,
                          std::span<const CandidateMeasurements> measurements);
std::vector<CandidateMeasurements> read_measurements(SQLite::Database& db, const Scope& scope,
                                                     const Problem& problem);

void replace_rejections(SQLite::Database& db, const Scope& scope, const Problem& problem,
                        std::span<const RejectionRecord> rejections);
std::vector<RejectionRecord> read_rejections(SQLite::Database& db, const Scope& scope,
                                             const Problem& problem);
std::vector<StoredRejection> list_rejections(SQLite::Database& db);

}  // namespace attune
