// Reads a whole cache once and lists what is broken.
#pragma once

#include "cache/sql.h"
#include "cache/tune_store.h"

namespace attune {

// See TuneStore::verify. `path` is left to the caller.
VerifyReport verify_database(SQLite::Database& db);

}  // namespace attune
