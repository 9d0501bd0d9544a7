// Rows of `winners` with their admissions, binaries and measurements.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/key_rows.h"
#include "cache/tune_store.h"

namespace attune {

// Stores all that belongs to a winner, in place of the earlier one of the same gpu, problem and
// toolchain. Returns the id of its binary.
std::int64_t put_winner_rows(SQLite::Database& db, const DeviceInfo& gpu, const Winner& winner);

struct WinnerQuery {
  std::string gpu_identity;
  std::string driver_version;  // empty: not compared
  int timing_method = 0;       // 0: not compared
  Toolchain toolchain;
  Problem problem;
};

// The winners of a GPU and a toolchain: which problem each row is for.
struct TunedRow {
  std::int64_t id;
  Problem problem;
};
std::vector<TunedRow> tuned_rows(SQLite::Database& db, const WinnerQuery& query);

// One of them; empty when its binary is damaged, of which `warn` hears.
struct ReadWinner {
  Winner winner;
  std::int64_t binary_id;
};
std::optional<ReadWinner> read_winner(SQLite::Database& db, std::int64_t id, const Warn& warn);

Freshness freshness_of(const Winner& winner, const WinnerQuery& query);

// Identities of the GPUs of an architecture that a name or an identity names.
std::vector<std::string> find_gpus(SQLite::Database& db, const std::string& alias,
                                   const std::string& arch);
std::vector<std::string> winner_compiler_versions(SQLite::Database& db,
                                                  const std::string& gpu_identity);

// (gpu identity, winner without its cubin), by gpu, problem and age.
std::vector<std::pair<std::string, Winner>> list_winners(SQLite::Database& db,
                                                         const std::string& gpu_identity,
                                                         const Warn& warn);

}  // namespace attune
