// Cubins as stored: zstd, with the digest of what went in.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "common/text.h"

namespace attune {

std::vector<std::byte> compress(std::span<const std::byte> bytes);

// The bytes whose digest is `content`; empty for anything else, however it is damaged.
std::optional<std::vector<std::byte>> decompress(std::span<const std::byte> stored,
                                                 const Digest& content);

}  // namespace attune
