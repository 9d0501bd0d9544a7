// Rows of `binaries` and `binary_kernels`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/sql.h"
#include "cache/tune_store.h"

namespace attune {

// What happens to an intact binary of the same key and another content: compilers need not be
// reproducible.
enum class OnDifferent {
  kKeep,     // it may be what an admission refers to
  kReplace,  // the new one is what was admitted
};

// Throws InvalidArgument when the cubin is empty or `content` is not its digest.
void require_sound(const Binary& binary);

// Returns the row's id. Damaged rows and remembered failures are always replaced.
std::int64_t put_binary_row(SQLite::Database& db, const Binary& binary, const std::string& variant,
                            const std::string& created_at, OnDifferent on_different);

void put_failure_row(SQLite::Database& db, const BinaryRow& row, const std::string& log,
                     const std::string& created_at);

struct StoredBinary {
  Binary binary;  // without its cubin
  std::string variant;
  std::string created_at;
  bool failed = false;
};
std::optional<StoredBinary> read_binary_row(SQLite::Database& db, std::int64_t id);
// Empty when the stored bytes do not match `content`.
std::optional<std::vector<std::byte>> read_cubin(SQLite::Database& db, std::int64_t id,
                                                 const Digest& content);
std::optional<std::int64_t> find_binary_row(SQLite::Database& db, const Digest& key);
std::vector<BinaryRow> list_binaries(SQLite::Database& db);

}  // namespace attune
