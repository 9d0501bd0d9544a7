// The rows that make up a key: GPUs, problems, candidates, toolchains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache/records.h"
#include "cache/sql.h"

namespace attune {

// Ids of a row's key, each found or inserted by its complete text.
std::int64_t put_gpu(SQLite::Database& db, const DeviceInfo& gpu);
// Throws InvalidArgument when the text would not read back.
std::int64_t put_problem(SQLite::Database& db, const Problem& problem);
std::int64_t put_candidate(SQLite::Database& db, const Candidate& candidate);
std::int64_t put_toolchain(SQLite::Database& db, const Toolchain& toolchain);

// Where the rows of a tuning run are; empty when there can be none.
struct Scope {
  std::int64_t gpu_id;
  std::int64_t toolchain_id;
};
std::optional<Scope> find_scope(SQLite::Database& db, const std::string& gpu_identity,
                                const Toolchain& toolchain);
Scope put_scope(SQLite::Database& db, const DeviceInfo& gpu, const Toolchain& toolchain);

// The text of a problem without its kv range: equal for problems that differ in nothing else.
std::string shape_text(const Problem& problem);

// Parses a stored text; empty when it is none that this program knows.
std::optional<Problem> read_problem(const std::string& text);
std::optional<Candidate> read_candidate(const std::string& text);

}  // namespace attune
