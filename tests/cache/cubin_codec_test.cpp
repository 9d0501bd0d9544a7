#include "cache/cubin_codec.h"

#include <gtest/gtest.h>

namespace attune {
namespace {

std::vector<std::byte> sample_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * i % 251);
  return bytes;
}

TEST(CubinCodec, GivesBackWhatWentIn) {
  for (const std::size_t size : {0, 1, 100, 100'000}) {
    const auto bytes = sample_bytes(size);
    EXPECT_EQ(decompress(compress(bytes), digest_of(bytes)), bytes) << size;
  }
}

TEST(CubinCodec, MakesRepetitiveBytesSmaller) {
  EXPECT_LT(compress(std::vector<std::byte>(100'000)).size(), 1'000u);
}

TEST(CubinCodec, RefusesAnotherDigest) {
  const auto bytes = sample_bytes(100);
  EXPECT_FALSE(decompress(compress(bytes), digest_of("something else")));
  EXPECT_FALSE(decompress(compress(bytes), Digest{}));
}

TEST(CubinCodec, RefusesEveryDamagedByteAndEveryTruncation) {
  const auto bytes = sample_bytes(300);
  const auto stored = compress(bytes);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    auto damaged = stored;
    damaged[i] ^= std::byte{0x40};
    const auto result = decompress(damaged, digest_of(bytes));
    // A bit that the format ignores may be flipped; what comes out is never wrong.
    EXPECT_EQ(result.value_or(bytes), bytes) << "byte " << i;
    EXPECT_FALSE(decompress(std::span(stored).first(i), digest_of(bytes))) << "length " << i;
  }
}

TEST(CubinCodec, RefusesBytesThatAreNoZstd) {
  EXPECT_FALSE(decompress(sample_bytes(1000), digest_of("x")));
  EXPECT_FALSE(decompress({}, digest_of("")));
}

}  // namespace
}  // namespace attune
