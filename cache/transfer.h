// Copies of a tuning cache as one file, and what other caches have to add.
#pragma once

#include <filesystem>

#include "cache/database_file.h"
#include "cache/tune_store.h"

namespace attune {

// See TuneStore::export_to. Throws CacheError; never leaves a partial file under the final name.
void export_database(DatabaseFile& from, const std::filesystem::path& path);

// See TuneStore::import_from. Throws CacheError that names `path`; then nothing was changed.
ImportResult import_database(DatabaseFile& into, const std::filesystem::path& path,
                             const ImportOptions& options, const Warn& warn);

}  // namespace attune
