// Which binaries go when the stored ones are too many: the longest unused, winners' last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "cache/sql.h"

namespace attune {

// Uses are noted to a day, so that reading seldom writes.
constexpr std::int64_t kUseIntervalS = 24 * 3600;
std::int64_t now_s();

// Bytes of all stored cubins.
std::size_t stored_cubin_bytes(SQLite::Database& db);

struct Evicted {
  int binaries = 0;
  int winners = 0;
  std::size_t bytes = 0;
};
// Deletes binaries until the others take at most `max_bytes`: first those of no winner, then those
// whose winners were all succeeded by newer ones, then the rest with their winners; each by the time
// of their last use. Never `kept_id`.
Evicted evict_binaries(SQLite::Database& db, std::size_t max_bytes, std::int64_t kept_id = 0);

// Notes the use of binaries.
void touch_binaries(SQLite::Database& db, const std::set<std::int64_t>& ids);
// Whether the last noted use is so long ago that this one should be noted.
bool is_use_due(SQLite::Database& db, std::int64_t binary_id);

// Deletes a binary with the admissions and winners that refer to it; how many winners.
int delete_binary(SQLite::Database& db, std::int64_t id);

}  // namespace attune
