#include "cache/verify_database.h"

#include <fmt/format.h>

#include "cache/binary_rows.h"
#include "cache/key_rows.h"
#include "cache/winner_rows.h"

namespace attune {
namespace {

void check_pages(SQLite::Database& db, VerifyReport* report) {
  Query pages(db, "PRAGMA integrity_check(20)");
  while (pages.next()) {
    if (const std::string line = pages.text(); line != "ok") report->problems.push_back(line);
  }
  Query references(db,
                   "SELECT \"table\", coalesce(rowid, 0), parent FROM pragma_foreign_key_check");
  while (references.next()) {
    const std::string table = references.text();
    const std::int64_t row = references.int64();
    report->problems.push_back(fmt::format("{} row {} refers to a row of {} that is not there",
                                           table, row, references.text()));
  }
}

void check_binaries(SQLite::Database& db, VerifyReport* report) {
  for (Query ids(db, "SELECT id FROM binaries WHERE failed = 0"); ids.next();) {
    const std::int64_t id = ids.int64();
    const auto stored = read_binary_row(db, id);
    ++report->num_binaries;
    if (stored && read_cubin(db, id, stored->binary.content)) continue;
    report->problems.push_back(fmt::format("the cubin of binary {} does not match its digest: {}",
                                           id, stored ? stored->variant : "unreadable"));
  }
}

}  // namespace

VerifyReport verify_database(SQLite::Database& db) {
  VerifyReport report;
  check_pages(db, &report);
  check_binaries(db, &report);
  const auto note = [&](const std::string& text) { report.problems.push_back(text); };
  report.num_winners = static_cast<int>(list_winners(db, {}, note).size());
  return report;
}

}  // namespace attune
