// Kernel families that are switched off (Options::disabled_families).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

// The names of a comma-separated list; empty ones and spaces around them do not count.
std::vector<std::string> parse_family_names(std::string_view list);

// Throws InvalidArgument that lists the known families when a name is none of them.
void require_known_families(std::span<const std::string> names);

}  // namespace attune
