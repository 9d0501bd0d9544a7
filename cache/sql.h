// Short forms for SQLiteCpp: binding in order, reading columns from left to right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <SQLiteCpp/SQLiteCpp.h>

#include "common/text.h"

namespace attune {

// A BLOB or text parameter that outlives the statement.
struct BlobRef {
  std::span<const std::byte> bytes;
};

class Query {
 public:
  template <typename... Args>
  Query(SQLite::Database& db, const std::string& sql, const Args&... args) : statement_(db, sql) {
    (bind(args), ...);
  }

  // Steps to the next row; the first call steps to the first one.
  bool next() {
    column_idx_ = 0;
    return statement_.executeStep();
  }
  // Runs a statement that returns no rows; the number of rows it changed.
  int run() { return statement_.exec(); }

  std::string text() { return column().getString(); }
  std::int64_t int64() { return column().getInt64(); }
  int integer() { return column().getInt(); }
  double real() { return column().getDouble(); }
  bool boolean() { return integer() != 0; }
  // The zero digest when the column holds none: it equals no digest of anything.
  Digest digest() { return Digest::parse(text()).value_or(Digest{}); }
  // Valid until the next step.
  std::span<const std::byte> blob() {
    const SQLite::Column value = column();
    const auto* data = static_cast<const std::byte*>(value.getBlob());
    return {data, data == nullptr ? 0 : static_cast<std::size_t>(value.getBytes())};
  }

 private:
  SQLite::Column column() { return statement_.getColumn(column_idx_++); }

  void bind(const std::string& value) { statement_.bind(++num_bound_, value); }
  void bind(std::string_view value) { bind(std::string(value)); }
  void bind(const char* value) { bind(std::string(value)); }
  void bind(const Digest& value) { bind(value.text()); }
  void bind(std::int64_t value) { statement_.bind(++num_bound_, value); }
  void bind(int value) { statement_.bind(++num_bound_, value); }
  void bind(double value) { statement_.bind(++num_bound_, value); }
  void bind(const BlobRef& value) {
    statement_.bindNoCopy(++num_bound_, value.bytes.data(), static_cast<int>(value.bytes.size()));
  }

  SQLite::Statement statement_;
  int num_bound_ = 0;
  int column_idx_ = 0;
};

template <typename... Args>
int execute(SQLite::Database& db, const std::string& sql, const Args&... args) {
  return Query(db, sql, args...).run();
}

// The first column of the first row.
template <typename... Args>
std::optional<std::int64_t> query_int64(SQLite::Database& db, const std::string& sql,
                                        const Args&... args) {
  Query query(db, sql, args...);
  if (!query.next()) return std::nullopt;
  return query.int64();
}

}  // namespace attune
