// Values of the library as JSON; field names are the stable ones of the tables.
#pragma once

#include <vector>

#include "cli/report.h"
#include "cli/stored_results.h"

namespace attune {

Json to_json(const Measurement& point);
Json to_json(const Winner& winner);
Json to_json(const DeviceInfo& device);
Json to_json(const CandidateRow& row);

}  // namespace attune
