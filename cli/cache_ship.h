// attune cache import, merge, verify and prune.
#pragma once

#include <functional>
#include <string>

#include "cli/flags.h"
#include "cli/workplace.h"

namespace attune {

void add_cache_ship_commands(CLI::App* group, Workplace* workplace, Action* action);

}  // namespace attune
