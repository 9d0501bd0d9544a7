#include "jit/host/tensor_map.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"

namespace attune::host {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::array kSwizzles = {TensorMapSwizzle::kNone, TensorMapSwizzle::k32,
                                  TensorMapSwizzle::k64, TensorMapSwizzle::k128};
constexpr unsigned char kGuard = 0xa5;
constexpr uint32 kWindowBytes = 1u << 18;

TEST(HostTensorMap, SwizzleExchangesChunksByTheAddressBitsAbove) {
  EXPECT_EQ(swizzled(0x0000, TensorMapSwizzle::k128), 0x0000u);
  EXPECT_EQ(swizzled(0x0080, TensorMapSwizzle::k128), 0x0090u);  // row 1: chunk 0 at place 1
  EXPECT_EQ(swizzled(0x00fe, TensorMapSwizzle::k128), 0x00eeu);
  EXPECT_EQ(swizzled(0x0387, TensorMapSwizzle::k128), 0x03f7u);  // row 7
  EXPECT_EQ(swizzled(0x0400, TensorMapSwizzle::k128), 0x0400u);  // the pattern repeats
  EXPECT_EQ(swizzled(0x0040, TensorMapSwizzle::k64), 0x0040u);   // rows of 64 bytes: in pairs
  EXPECT_EQ(swizzled(0x0080, TensorMapSwizzle::k64), 0x0090u);
  EXPECT_EQ(swizzled(0x01b0, TensorMapSwizzle::k64), 0x0180u);
  EXPECT_EQ(swizzled(0x0200, TensorMapSwizzle::k64), 0x0200u);
  EXPECT_EQ(swizzled(0x0080, TensorMapSwizzle::k32), 0x0090u);
  EXPECT_EQ(swizzled(0x0100, TensorMapSwizzle::k32), 0x0100u);
  EXPECT_EQ(swizzled(0x1234, TensorMapSwizzle::kNone), 0x1234u);
}

TEST(HostTensorMap, SwizzleIsABijectionOfEverySpan) {
  for (const TensorMapSwizzle swizzle : kSwizzles) {
    const auto span = static_cast<uint32>(std::max(span_bytes(swizzle), 16));
    std::set<uint32> seen;
    for (uint32 address = 0; address < 4096; ++address) {
      const uint32 to = swizzled(address, swizzle);
      EXPECT_EQ(to / span, address / span);
      EXPECT_EQ(to % 16, address % 16);
      EXPECT_EQ(swizzled(to, swizzle), address);
      seen.insert(to);
    }
    EXPECT_EQ(seen.size(), 4096u);
  }
}

TensorMapSpec example() {
  return {.type = TensorMapType::kFloat32,
          .rank = 3,
          .address = 0x10,
          .size = {std::uint64_t{1} << 32, 7, 1},
          .stride_bytes = {(std::uint64_t{1} << 40) - 16, 48},
          .box = {32, 256, 1},
          .swizzle = TensorMapSwizzle::k128,
          .fill = TensorMapFill::kNan};
}

TEST(HostTensorMap, DecodesWhatItEncodes) {
  const TensorMapSpec spec = example();
  const TensorMapSpec decoded = decode_tensor_map(encode_tensor_map(spec).bytes);
  EXPECT_EQ(decoded.type, spec.type);
  EXPECT_EQ(decoded.rank, spec.rank);
  EXPECT_EQ(decoded.address, spec.address);
  EXPECT_EQ(decoded.size, spec.size);
  EXPECT_EQ(decoded.stride_bytes, spec.stride_bytes);
  EXPECT_EQ(decoded.box, spec.box);
  EXPECT_EQ(decoded.swizzle, spec.swizzle);
  EXPECT_EQ(decoded.fill, spec.fill);
}

TEST(HostTensorMap, RefusesBytesThatItDidNotEncode) {
  EXPECT_THROW(decode_tensor_map(TensorMap{}.bytes), InvalidArgument);
  TensorMap map = encode_tensor_map(example());
  map.bytes[4] ^= 1;  // the version
  EXPECT_THROW(decode_tensor_map(map.bytes), InvalidArgument);
}

TEST(HostTensorMap, RefusesASpecBeyondTheLimits) {
  TensorMapSpec spec = example();
  spec.box[0] = 36;  // 144 bytes under a swizzle of 128
  EXPECT_THROW(encode_tensor_map(spec), InvalidArgument);
}

TEST(HostTensorMap, BoxBytesCountWhatIsOutOfBoundsButNoPadding) {
  TensorMapSpec spec = example();
  EXPECT_EQ(box_bytes(spec), 32u * 4 * 256);
  EXPECT_EQ(box_span_bytes(spec), 32u * 4 * 256);
  spec.box[0] = 8;
  EXPECT_EQ(box_bytes(spec), 8u * 4 * 256);
  EXPECT_EQ(box_span_bytes(spec), 128u * 256);
}

// A tensor in memory of its own, with room around it, and a shared window.
struct Fixture {
  TensorMapSpec spec;
  Bytes memory;
  std::size_t begin = 0;  // of the tensor in `memory`
  Bytes window = Bytes(kWindowBytes, kGuard);

  explicit Fixture(TensorMapSpec given, unsigned seed = 1) : spec(given) {
    std::size_t bytes = spec.size[0] * static_cast<std::size_t>(element_bytes(spec.type));
    for (std::size_t i = 1; i < static_cast<std::size_t>(spec.rank); ++i) {
      bytes += (spec.size[i] - 1) * spec.stride_bytes[i - 1];
    }
    memory.resize(bytes + 512);
    std::mt19937 random(seed);
    for (unsigned char& x : memory) x = static_cast<unsigned char>(random());
    begin = 256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 16;
    spec.address = reinterpret_cast<std::uint64_t>(memory.data() + begin);
  }
};

// Where element `index` of a box is in shared memory: lines of 128 bytes, in which the chunks of
// line y are exchanged by the lowest bits of y (the figures of the CUDA programming guide).
uint32 place(const TensorMapSpec& spec, uint32 smem, const std::array<uint32, 5>& index) {
  uint32 row = 0;
  for (std::size_t i = 4; i > 0; --i) row = row * std::max(spec.box[i], 1u) + index[i];
  const auto bytes = static_cast<uint32>(element_bytes(spec.type));
  const uint32 span = static_cast<uint32>(span_bytes(spec.swizzle));
  const uint32 at = smem + row * (span == 0 ? spec.box[0] * bytes : span) + index[0] * bytes;
  const uint32 line = at / 128, chunk = at % 128 / 16;
  const uint32 states = std::max(span / 16, 1u);
  return line * 128 + (chunk ^ line % states) * 16 + at % 16;
}

// Calls visit(byte offset of the element in the tensor, or -1 outside, its place in the window).
// To a store all of the 16 bytes that a row ends in are inside.
template <typename Visit>
void each_element(const TensorMapSpec& spec, const std::array<int, 5>& at, uint32 smem,
                  bool is_load, Visit&& visit) {
  std::array<long long, 5> size{};
  for (std::size_t i = 0; i < 5; ++i) size[i] = static_cast<long long>(spec.size[i]);
  const int chunk_elements = 16 / element_bytes(spec.type);
  if (!is_load) size[0] = (size[0] + chunk_elements - 1) / chunk_elements * chunk_elements;
  std::array<uint32, 5> box{1, 1, 1, 1, 1};
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec.rank); ++i) box[i] = spec.box[i];
  std::array<uint32, 5> index{};
  const uint32 count = box[0] * box[1] * box[2] * box[3] * box[4];
  for (uint32 n = 0; n < count; ++n) {
    bool inside = true;
    long long offset = 0;
    uint32 rest = n;
    for (std::size_t i = 0; i < static_cast<std::size_t>(spec.rank); ++i) {
      index[i] = rest % box[i];
      rest /= box[i];
      const long long position = static_cast<long long>(at[i]) + index[i];
      inside = inside && position >= 0 && position < size[i];
      offset += position *
                static_cast<long long>(i == 0 ? static_cast<std::uint64_t>(element_bytes(spec.type))
                                              : spec.stride_bytes[i - 1]);
    }
    visit(inside ? offset : -1, place(spec, smem, index));
  }
}

void check_load(Fixture& fixture, const std::array<int, 5>& at, uint32 smem) {
  const TensorMapSpec& spec = fixture.spec;
  const auto bytes = static_cast<std::size_t>(element_bytes(spec.type));
  Bytes expected = fixture.window;
  const Bytes fill =
      spec.fill == TensorMapFill::kZero ? Bytes(4, 0) : Bytes{0xf7, 0x7f, 0xf7, 0x7f};
  each_element(spec, at, smem, true, [&](long long offset, uint32 to) {
    const unsigned char* from =
        offset < 0 ? fill.data() : fixture.memory.data() + fixture.begin + offset;
    std::memcpy(expected.data() + to, from, bytes);
  });
  copy_box_to_shared(spec, at, fixture.window.data(), smem);
  ASSERT_EQ(fixture.window, expected);
}

void check_store(Fixture& fixture, const std::array<int, 5>& at, uint32 smem) {
  const TensorMapSpec& spec = fixture.spec;
  const auto bytes = static_cast<std::size_t>(element_bytes(spec.type));
  Bytes expected = fixture.memory;
  std::mt19937 random(7);
  for (uint32 i = 0; i < box_span_bytes(spec); ++i) {
    fixture.window[smem + i] = static_cast<unsigned char>(random());
  }
  each_element(spec, at, smem, false, [&](long long offset, uint32 from) {
    if (offset < 0) return;
    std::memcpy(expected.data() + fixture.begin + offset, fixture.window.data() + from, bytes);
  });
  copy_box_to_global(spec, at, fixture.window.data(), smem);
  ASSERT_EQ(fixture.memory, expected);
}

void check_visits(const Fixture& fixture, const std::array<int, 5>& at, bool is_load) {
  std::multiset<long long> expected, visited;
  const int bytes = element_bytes(fixture.spec.type);
  each_element(fixture.spec, at, 0, is_load, [&](long long offset, uint32) {
    for (int i = 0; offset >= 0 && i < bytes; ++i) expected.insert(offset + i);
  });
  visit_global_rows(fixture.spec, at, is_load, [&](uint64 address, uint32 count) {
    for (uint32 i = 0; i < count; ++i) {
      visited.insert(static_cast<long long>(address - fixture.spec.address + i));
    }
  });
  ASSERT_EQ(visited, expected);
}

// That hardware takes.
std::array<int, 5> random_corner(const TensorMapSpec& spec, bool is_load, std::mt19937& random) {
  std::array<int, 5> at{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec.rank); ++i) {
    const int box = static_cast<int>(spec.box[i]), size = static_cast<int>(spec.size[i]);
    at[i] = std::uniform_int_distribution<int>(is_load ? -box - 1 : 0, size + 1)(random);
  }
  at[0] -= at[0] % (16 / element_bytes(spec.type));
  return at;
}

TensorMapSpec random_spec(std::mt19937& random) {
  const auto up_to = [&](int least, int most) {
    return std::uniform_int_distribution<std::uint32_t>(static_cast<unsigned>(least),
                                                        static_cast<unsigned>(most))(random);
  };
  TensorMapSpec spec{.type = static_cast<TensorMapType>(up_to(0, 2)),
                     .rank = static_cast<int>(up_to(1, 5)),
                     .address = 16,
                     .swizzle = kSwizzles[up_to(0, 3)]};
  if (spec.type != TensorMapType::kUint8 && up_to(0, 1) == 1) spec.fill = TensorMapFill::kNan;
  const auto bytes = static_cast<std::uint32_t>(element_bytes(spec.type));
  const int span = span_bytes(spec.swizzle);
  spec.box[0] = up_to(1, span == 0 ? 12 : span / 16) * 16 / bytes;
  spec.size[0] = up_to(1, 150);
  std::uint64_t stride = (spec.size[0] * bytes + 15) / 16 * 16;
  for (std::size_t i = 1; i < static_cast<std::size_t>(spec.rank); ++i) {
    spec.stride_bytes[i - 1] = stride + 16 * up_to(0, 1);
    spec.box[i] = up_to(1, i == 1 ? 20 : 3);
    spec.size[i] = up_to(1, i == 1 ? 25 : 4);
    stride = spec.stride_bytes[i - 1] * spec.size[i];
  }
  return spec;
}

TEST(HostTensorMap, CopiesBoxesLikeALoopOverTheirElements) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    Fixture fixture(random_spec(random));
    validate(fixture.spec);
    const std::array<int, 5> from = random_corner(fixture.spec, true, random);
    const std::array<int, 5> to = random_corner(fixture.spec, false, random);
    EXPECT_EQ(box_refusal(fixture.spec, from, true), "");
    EXPECT_EQ(box_refusal(fixture.spec, to, false), "");
    const uint32 smem = 128 * std::uniform_int_distribution<uint32>(0, 40)(random);
    ASSERT_NO_FATAL_FAILURE(check_load(fixture, from, smem));
    ASSERT_NO_FATAL_FAILURE(check_store(fixture, to, smem));
    ASSERT_NO_FATAL_FAILURE(check_visits(fixture, from, true));
    ASSERT_NO_FATAL_FAILURE(check_visits(fixture, to, false));
  }
}

TEST(HostTensorMap, RefusesCoordinatesThatHardwareRefuses) {
  TensorMapSpec spec = example();  // of floats
  const std::array<int, 3> inside{4, 2, 0}, negative{-4, -2, 0}, below{4, -2, 0}, odd{6, 0, 0};
  EXPECT_EQ(box_refusal(spec, inside, true), "");
  EXPECT_EQ(box_refusal(spec, inside, false), "");
  EXPECT_EQ(box_refusal(spec, negative, true), "");
  EXPECT_EQ(box_refusal(spec, negative, false),
            "a store at a negative coordinate, -4 of dimension 0");
  EXPECT_EQ(box_refusal(spec, below, false), "a store at a negative coordinate, -2 of dimension 1");
  for (const bool is_load : {false, true}) {
    EXPECT_EQ(box_refusal(spec, odd, is_load),
              "the innermost coordinate 6 is 24 bytes, no multiple of 16");
  }
  spec.type = TensorMapType::kUint8;
  EXPECT_NE(box_refusal(spec, inside, true), "");
}

TEST(HostTensorMap, StoresAndLoadsAreInverse) {
  Fixture fixture({.rank = 3,
                   .address = 16,
                   .size = {64, 64, 2},
                   .stride_bytes = {256, 128},
                   .box = {64, 64, 2},
                   .swizzle = TensorMapSwizzle::k128});
  const Bytes before = fixture.memory;
  const std::array<int, 3> at{0, 0, 0};
  copy_box_to_shared(fixture.spec, at, fixture.window.data(), 1024);
  std::fill(fixture.memory.begin() + static_cast<long>(fixture.begin),
            fixture.memory.begin() + static_cast<long>(fixture.begin) + 64 * 256, kGuard);
  copy_box_to_global(fixture.spec, at, fixture.window.data(), 1024);
  EXPECT_EQ(fixture.memory, before);
}

TEST(HostTensorMap, CoordinatesFarOutsideTouchNothing) {
  Fixture fixture({.rank = 2,
                   .address = 16,
                   .size = {64, 1},
                   .stride_bytes = {(std::uint64_t{1} << 40) - 16},
                   .box = {64, 8},
                   .swizzle = TensorMapSwizzle::k128,
                   .fill = TensorMapFill::kNan});
  for (const std::array<int, 2>& at :
       {std::array{2147483647, 0}, std::array{-2147483647 - 1, 0}, std::array{0, 2147483647},
        std::array{0, -2147483647 - 1}, std::array{2147483647, 2147483647}}) {
    visit_global_rows(fixture.spec, at, true, [](uint64, uint32) { FAIL(); });
    copy_box_to_shared(fixture.spec, at, fixture.window.data(), 0);
    for (uint32 i = 0; i < box_bytes(fixture.spec); i += 2) {
      ASSERT_EQ(fixture.window[i] | fixture.window[i + 1] << 8, 0x7ff7);
    }
  }
}

}  // namespace
}  // namespace attune::host
