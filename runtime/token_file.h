// Files of token ids: text, ids separated by white space or commas; or, when the name ends with
// .bin, little-endian int32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace attune {

// The ids of `path`, at least one, each from 0 to vocab_size - 1 where a vocab_size is given. Throws
// InvalidArgument that names the file, the line or byte offset and the value.
std::vector<std::int32_t> read_token_file(const std::filesystem::path& path,
                                          std::optional<int> vocab_size = std::nullopt);

// Writes what read_token_file reads; text has one id a line. Throws InvalidArgument when the file
// cannot be written.
void write_token_file(const std::filesystem::path& path, std::span<const std::int32_t> tokens);

}  // namespace attune
