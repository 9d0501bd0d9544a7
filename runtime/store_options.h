// What of the options concerns the tuning cache.
#pragma once

#include "cache/tune_store.h"
#include "runtime/attune.h"

namespace attune {

StoreOptions store_options(const Options& options);

}  // namespace attune
