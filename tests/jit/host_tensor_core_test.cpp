#include "jit/host/tensor_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace attune::host {
namespace {

uint16 bf16(float x) { return static_cast<uint16>(std::bit_cast<uint32>(x) >> 16); }
float value(uint16 x) { return std::bit_cast<float>(uint32{x} << 16); }
uint32 bits(float x) { return std::bit_cast<uint32>(x); }

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One sum: c and up to 16 products, the other products zero.
struct Case {
  float c = 0;
  std::vector<std::array<float, 2>> products;
};

float sum(const Case& given, const TensorCoreModel& model = kTensorCoreSm90) {
  std::array<uint16, kMmaDepth> a{}, b{};
  for (std::size_t i = 0; i < given.products.size(); ++i) {
    a[i] = bf16(given.products[i][0]);
    b[i] = bf16(given.products[i][1]);
  }
  return multiply_add(given.c, a.data(), b.data(), model);
}

// The same sum from its definition, in long double, which holds every product and sum exactly.
float defined_sum(float c, const uint16* a, const uint16* b, const TensorCoreModel& model) {
  for (int first = 0; first < kMmaDepth; first += model.block_length) {
    std::vector<long double> addends{c};
    const auto exponent = [](float x) { return std::max(std::ilogb(x), -126); };
    int largest = c == 0 ? model.zero_exponent : std::max(exponent(c), model.zero_exponent);
    for (int k = first; k < first + model.block_length; ++k) {
      const float x = value(a[k]), y = value(b[k]);
      addends.push_back(static_cast<long double>(x) * static_cast<long double>(y));
      if (std::isfinite(addends.back()) && addends.back() != 0) {
        largest = std::max(largest, exponent(x) + exponent(y));
      }
    }
    long double total = 0;
    for (const long double x : addends) {
      total += std::isfinite(x) ? std::trunc(std::ldexp(x, model.fraction_bits - largest)) : x;
    }
    total = std::ldexp(total, largest - model.fraction_bits);
    if (std::isnan(total)) {
      c = std::bit_cast<float>(0x7fffffffu);
      continue;
    }
    const bool overflows = std::fabs(total) >= 0x1p128L;
    c = static_cast<float>(total);
    if (!overflows && std::fabs(static_cast<long double>(c)) > std::fabs(total)) {
      c = std::nextafter(c, 0.0f);
    }
  }
  return c;
}

TEST(HostTensorCore, KeepsTwentyFiveFractionBitsOfTheLargestAddend) {
  EXPECT_EQ(sum({.c = -1, .products = {{1, 1}, {0x1p-25f, 1}}}), 0x1p-25f);
  EXPECT_EQ(sum({.c = -1, .products = {{1, 1}, {0x1p-26f, 1}}}), 0.0f);
  EXPECT_EQ(sum({.c = -1, .products = {{1, 1}, {0x1.8p-25f, 1}}}), 0x1p-25f);
  EXPECT_EQ(sum({.c = -1, .products = {{1, 1}, {0x1p-24f, 1}}}, kTensorCoreSm80), 0x1p-24f);
  EXPECT_EQ(sum({.c = -1, .products = {{1, 1}, {0x1p-25f, 1}}}, kTensorCoreSm80), 0.0f);
}

TEST(HostTensorCore, AlignsToExponentsOfTheFactorsNotOfTheirProduct) {
  // 1.5 * 1.5 is 2.25, but counts with the exponent of 1.0.
  EXPECT_EQ(sum({.products = {{1.5f, 1.5f}, {-1.5f, 1.5f}, {0x1p-25f, 1}}}), 0x1p-25f);
  // As c, 2.25 counts with the exponent of 2.0.
  EXPECT_EQ(sum({.c = 2.25f, .products = {{-1.5f, 1.5f}, {0x1p-25f, 1}}}), 0.0f);
}

TEST(HostTensorCore, TruncatesAddendsAndResultTowardZero) {
  EXPECT_EQ(sum({.c = 1, .products = {{0x1p-24f, 1}}}), 1.0f);
  EXPECT_EQ(sum({.c = 1, .products = {{0x1p-24f, 1}, {0x1p-24f, 1}}}), 1.0f + 0x1p-23f);
  EXPECT_EQ(sum({.c = 1, .products = {{0x1p-24f, 3}}}), 1.0f + 0x1p-23f);
  EXPECT_EQ(sum({.c = -1, .products = {{-0x1p-24f, 3}}}), -1.0f - 0x1p-23f);
  // Each is below the last kept bit, together they would be eight of it.
  Case small{.c = 1, .products = {}};
  small.products.assign(16, {0x1p-26f, 1});
  EXPECT_EQ(sum(small), 1.0f);
}

TEST(HostTensorCore, HoldsTheLargestSumOfAllAddends) {
  Case large{.c = 0x1.fffffep0f, .products = {}};
  large.products.assign(16, {0x1.fep0f, 0x1.fep0f});
  const double exact = 0x1.fffffep0 + 16 * 0x1.fep0 * 0x1.fep0;  // 65.5: its last bit is 2^-17
  EXPECT_EQ(sum(large), static_cast<float>(std::floor(exact * 0x1p17) * 0x1p-17));
}

TEST(HostTensorCore, Sm80TakesTwoHalvesOneAfterTheOther) {
  Case given{.c = 1, .products = {}};
  given.products.assign(16, {0, 0});
  given.products[0] = given.products[8] = {0x1p-24f, 1};
  EXPECT_EQ(sum(given, kTensorCoreSm80), 1.0f) << "each half truncates";
  EXPECT_EQ(sum(given, kTensorCoreSm90), 1.0f + 0x1p-23f);
}

TEST(HostTensorCore, KeepsSubnormalInputsAndResults) {
  EXPECT_EQ(sum({.c = 0x1p-149f, .products = {}}), 0x1p-149f);
  EXPECT_EQ(sum({.c = 0x1p-149f, .products = {{0x1p-133f, 0x1p-16f}}}), 0x1p-148f);
  EXPECT_EQ(sum({.products = {{0x1p-133f, 0x1p-17f}, {0x1p-133f, 0x1p-17f}}}), 0x1p-149f);
  EXPECT_EQ(sum({.products = {{0x1p-133f, 0x1p-17f}}}), 0.0f);
}

TEST(HostTensorCore, ZeroAddendsBoundTheAlignmentFromBelow) {
  // With 2^-149 the sum is just short of one step of the result, unless the small part is lost.
  const auto step = [](float small) {
    return sum({.products = {{0x1p-75f, 0x1p-74f}, {-0x1p-80f, small}}});
  };
  EXPECT_EQ(step(0x1p-78f), 0.0f);
  EXPECT_EQ(step(0x1p-79f), 0x1p-149f);
}

TEST(HostTensorCore, SpecialsFollowTheirRules) {
  EXPECT_EQ(sum({.c = kInf, .products = {{1, 1}}}), kInf);
  EXPECT_EQ(sum({.products = {{-kInf, 2}}}), -kInf);
  EXPECT_EQ(sum({.c = -kInf, .products = {{-kInf, 2}, {3e38f, -3e38f}}}), -kInf);
  EXPECT_EQ(sum({.products = {{3e38f, 2}}}), kInf);
  EXPECT_EQ(sum({.c = -3e38f, .products = {{-3e38f, 1}}}), -kInf);
  EXPECT_EQ(sum({.c = 0, .products = {{3e38f, 3e38f}, {-3e38f, 3e38f}, {1, 1}}}), 0.0f);
  for (const Case& invalid :
       {Case{kNan, {}}, Case{-kNan, {}}, Case{0, {{kNan, 0}}}, Case{0, {{0, kInf}}},
        Case{kInf, {{-kInf, 1}}}, Case{0, {{kInf, 1}, {1, -kInf}}}}) {
    EXPECT_EQ(bits(sum(invalid)), 0x7fffffffu);
  }
}

TEST(HostTensorCore, ZeroSumsArePositive) {
  Case negative{.c = -0.0f, .products = {}};
  negative.products.assign(16, {-0.0f, 1});
  EXPECT_EQ(bits(sum(negative)), 0u) << "unlike an IEEE sum of negative zeros";
  EXPECT_EQ(bits(sum({.c = -1, .products = {{1, 1}}})), 0u);
}

// Numbers of one kind: any bits, near each other, far apart, subnormal, many zeros.
class Numbers {
 public:
  explicit Numbers(unsigned seed) : random_(seed) {}

  void next_kind() {
    kind_ = random_() % 6;
    center_ = static_cast<int>(random_() % 200) + 20;
  }
  float next(int center_shift = 0) {
    constexpr int kSpread[6] = {0, 1, 12, 40, 0, 5};
    const std::uint64_t r = random_();
    if (kind_ == 0) return std::bit_cast<float>(static_cast<uint32>(r));
    if (kind_ == 4) return std::bit_cast<float>(static_cast<uint32>(r & 0x81ffffff));
    if (kind_ == 5 && r >> 61 == 0) return std::bit_cast<float>(static_cast<uint32>(r & 1u << 31));
    const int spread = kSpread[kind_];
    const int field =
        center_ + center_shift + static_cast<int>(r >> 40) % (2 * spread + 1) - spread;
    return std::bit_cast<float>(static_cast<uint32>(r & 0x807fffff) |
                                static_cast<uint32>(std::clamp(field, 0, 254)) << 23);
  }
  float next_sum() {
    return next(kind_ == 0 ? 0 : static_cast<int>(random_() % 8) + center_ - 130);
  }
  uint16 next_bf16() { return bf16(next()); }

 private:
  std::mt19937_64 random_;
  std::uint64_t kind_ = 0;
  int center_ = 127;
};

struct Tile {
  static constexpr int kRows = 64, kColumns = 16;
  uint16 a[kRows][kMmaDepth];
  uint16 b[kColumns][kMmaDepth];
  float d[kRows][kColumns];

  explicit Tile(Numbers& numbers) {
    numbers.next_kind();
    for (auto& row : a) {
      for (uint16& x : row) x = numbers.next_bf16();
    }
    for (auto& column : b) {
      for (uint16& x : column) x = numbers.next_bf16();
    }
    for (auto& row : d) {
      for (float& x : row) x = numbers.next_sum();
    }
  }
};

TEST(HostTensorCore, MatchesItsDefinitionOnRandomNumbers) {
  Numbers numbers(1);
  for (const TensorCoreModel& model : {kTensorCoreSm90, kTensorCoreSm80}) {
    for (int i = 0; i < 250; ++i) {
      const Tile tile(numbers);
      for (int row = 0; row < Tile::kRows; ++row) {
        for (int column = 0; column < Tile::kColumns; ++column) {
          const float c = tile.d[row][column];
          ASSERT_EQ(bits(multiply_add(c, tile.a[row], tile.b[column], model)),
                    bits(defined_sum(c, tile.a[row], tile.b[column], model)))
              << "case " << i << " row " << row << " column " << column;
        }
      }
    }
  }
}

TEST(HostTensorCore, VectorVersionHasTheBitsOfTheScalarOne) {
  Numbers numbers(2);
  for (int i = 0; i < 4000; ++i) {
    const TensorCoreModel& model = i % 2 == 0 ? kTensorCoreSm90 : kTensorCoreSm80;
    Tile vector(numbers);
    Tile scalar = vector;
    multiply_tile(Tile::kRows, Tile::kColumns, vector.a, vector.b, &vector.d[0][0], model);
    multiply_tile_scalar(Tile::kRows, Tile::kColumns, scalar.a, scalar.b, &scalar.d[0][0], model);
    for (int row = 0; row < Tile::kRows; ++row) {
      for (int column = 0; column < Tile::kColumns; ++column) {
        ASSERT_EQ(bits(vector.d[row][column]), bits(scalar.d[row][column]))
            << "case " << i << " row " << row << " column " << column;
      }
    }
  }
}

// Registers of a warp.
struct Warp {
  float d[32][4];
  uint32 a[32][4];
  uint32 b[32][2];

  void multiply() {
    MmaLane lanes[32];
    for (int i = 0; i < 32; ++i) lanes[i] = {d[i], a[i], b[i][0], b[i][1]};
    mma_m16n8k16_bf16(lanes, kTensorCoreSm90);
  }
};

uint16 half(uint32 word, int i) { return static_cast<uint16>(word >> 16 * i); }

TEST(HostTensorCore, VectorVersionTruncatesJustBelowTheLeastNormalNumber) {
  uint16 a[8][kMmaDepth] = {}, b[8][kMmaDepth] = {};
  float d[8][8] = {};
  a[0][0] = bf16(0x1p-100f);
  b[0][0] = bf16(0x1p-26f);
  a[0][1] = bf16(-0x1p-100f);
  b[0][1] = bf16(0x1p-51f);
  multiply_tile(8, 8, a, b, d[0], kTensorCoreSm90);
  EXPECT_EQ(d[0][0], 0x1p-126f - 0x1p-149f);
}

TEST(HostTensorCore, MmaTakesFragmentsAsThePtxIsaLaysThemOut) {
  Numbers numbers(3);
  numbers.next_kind();
  Warp warp;
  for (int lane = 0; lane < 32; ++lane) {
    for (uint32& x : warp.a[lane]) x = numbers.next_bf16() | uint32{numbers.next_bf16()} << 16;
    for (uint32& x : warp.b[lane]) x = numbers.next_bf16() | uint32{numbers.next_bf16()} << 16;
    for (float& x : warp.d[lane]) x = numbers.next_sum();
  }
  const Warp before = warp;
  warp.multiply();

  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      // c_i is at row lane / 4 (+ 8 for i >= 2), column lane % 4 * 2 + i % 2.
      const int row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + i % 2;
      std::array<uint16, 16> a{}, b{};
      for (int k = 0; k < 16; ++k) {
        // a_j is in register j / 2, half j % 2; rows + 8 for j = 2 3 6 7, k + 8 for j >= 4.
        const int j = k % 2 + (row >= 8 ? 2 : 0) + (k >= 8 ? 4 : 0);
        a[static_cast<std::size_t>(k)] = half(before.a[row % 8 * 4 + k % 8 / 2][j / 2], j % 2);
        b[static_cast<std::size_t>(k)] = half(before.b[column * 4 + k % 8 / 2][k / 8], k % 2);
      }
      EXPECT_EQ(bits(warp.d[lane][i]),
                bits(multiply_add(before.d[lane][i], a.data(), b.data(), kTensorCoreSm90)))
          << "lane " << lane << " register " << i;
    }
  }
}

TEST(HostTensorCore, TimeOfOneMmaIsPrinted) {
  Warp warp{};
  for (int lane = 0; lane < 32; ++lane) {
    for (uint32& x : warp.a[lane]) x = 0x3f803f81;
    for (uint32& x : warp.b[lane]) x = 0x3f013f00;
  }
  constexpr int kRepeats = 20000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i) warp.multiply();
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  std::printf("mma_m16n8k16_bf16: %.0f ns\n", time.count() / kRepeats);
  EXPECT_GT(warp.d[0][0], 0);
}

}  // namespace
}  // namespace attune::host
