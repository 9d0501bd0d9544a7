// Deletes results and binaries from a cache.
#pragma once

#include "cache/sql.h"
#include "cache/tune_store.h"

namespace attune {

// See TuneStore::prune.
PruneResult prune_database(SQLite::Database& db, const PruneRequest& request);

}  // namespace attune
