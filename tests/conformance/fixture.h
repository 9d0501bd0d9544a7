// The GPU's outputs as they are kept: one file a group in tests/data/conformance/.
#pragma once

#include <filesystem>
#include <string>

#include "tests/conformance/run.h"

namespace attune::conformance {

// The folder of the fixtures: beside a bundle's programs, or in the source tree.
std::filesystem::path fixture_folder();

// A file: magic, digest of the contents, zstd of the contents. The words of a case lie as four
// planes of bytes, which takes a tenth off random floats and nine tenths off most else.
std::string encode(const Outputs& outputs);
Outputs decode(const std::string& file);  // throws InvalidArgument when it is damaged

// Throw InvalidArgument that names the file.
Outputs read_fixture(const std::filesystem::path& folder, const std::string& group);
void write_fixture(const std::filesystem::path& folder, const std::string& group,
                   const Outputs& outputs);

}  // namespace attune::conformance
