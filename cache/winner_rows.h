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
// toolchain.
void put_winner_rows(SQLite::Database& db, const DeviceInfo& gpu, const Winner& winner);

struct WinnerQuery {
  std::string gpu_identity;
  std::string driver_version;  // empty: not compared
  int timing_method = 0;       // 0: not compared
  Toolchain toolchain;
  Problem problem;
};
// The best answer whose binary is intact; `warn` hears of those that are not.
std::optional<WinnerHit> find_winner_rows(SQLite::Database& db, const WinnerQuery& query,
                                          const Warn& warn);

// (gpu identity, winner without its cubin), by gpu, problem and age.
std::vector<std::pair<std::string, Winner>> list_winners(SQLite::Database& db,
                                                         const std::string& gpu_identity,
                                                         const Warn& warn);

}  // namespace attune
