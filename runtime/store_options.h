// What of the options concerns the tuning cache.
#pragma once

#include <string>
#include <vector>

#include "cache/tune_store.h"
#include "runtime/attune.h"

namespace attune {

StoreOptions store_options(const Options& options);

// Options::cache_bases of a list separated by colons.
std::vector<std::string> base_paths(const std::string& list);

}  // namespace attune
