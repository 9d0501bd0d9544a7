// Runs cases on any device, through the Device interface alone.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/conformance/case.h"

namespace attune::conformance {

// Compiles for the device that runs the result.
using Compile = std::function<Binary(const Source& source)>;

// The outputs of `one`. Compiles and loads the kernels of its group.
std::vector<std::byte> run_case(Device& device, const Compile& compile, const Group& group,
                                const Case& one);

// By the names of the cases.
using Outputs = std::map<std::string, std::vector<std::byte>>;

struct GroupRun {
  Outputs outputs;
  std::map<std::string, std::string> failures;  // what the device said instead
};

// Runs every case of `group` that the device can run; compiled once. A failed case does not keep
// the others from running, though a lost context makes them fail too.
GroupRun run_group(Device& device, const Compile& compile, const Group& group);

}  // namespace attune::conformance
