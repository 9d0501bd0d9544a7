#include "cache/cubin_codec.h"

#include <fmt/format.h>
#include <zstd.h>

#include "common/error.h"

namespace attune {
namespace {

// Cubins shrink to about a third; higher levels win a few percent for many times the time.
constexpr int kLevel = 3;
// A damaged header may claim any size.
constexpr unsigned long long kMaxBytes = 1ULL << 30;

}  // namespace

std::vector<std::byte> compress(std::span<const std::byte> bytes) {
  std::vector<std::byte> stored(ZSTD_compressBound(bytes.size()));
  const std::size_t size =
      ZSTD_compress(stored.data(), stored.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(size)) {
    throw CacheError("cannot compress a binary",
                     fmt::format("bytes={} ({})", bytes.size(), ZSTD_getErrorName(size)));
  }
  stored.resize(size);
  return stored;
}

std::optional<std::vector<std::byte>> decompress(std::span<const std::byte> stored,
                                                 const Digest& content) {
  const unsigned long long size = ZSTD_getFrameContentSize(stored.data(), stored.size());
  // The two error values of zstd are the largest numbers.
  if (size > kMaxBytes) return std::nullopt;
  std::vector<std::byte> bytes(size);
  const std::size_t got = ZSTD_decompress(bytes.data(), bytes.size(), stored.data(), stored.size());
  if (ZSTD_isError(got) || got != size || digest_of(bytes) != content) return std::nullopt;
  return bytes;
}

}  // namespace attune
