// The time of day as the cache stores it.
#pragma once

#include <string>

namespace attune {

// UTC, ISO 8601, whole seconds: "2025-03-01T12:34:56Z".
std::string utc_timestamp();

}  // namespace attune
