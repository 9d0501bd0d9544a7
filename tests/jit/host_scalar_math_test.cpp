#include "jit/host/scalar_math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace attune::host {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32 kCanonicalNan = 0x7fffffff;

uint32 bits(float x) { return std::bit_cast<uint32>(x); }

// Distance in units of the last place of `exact` as a float, normal numbers only.
double ulps(float result, long double exact) {
  const int exponent = std::ilogb(static_cast<float>(exact));
  return static_cast<double>(std::fabs(static_cast<long double>(result) - exact) /
                             std::ldexp(1.0L, exponent - 23));
}

TEST(HostScalarMath, Ex2HasThePowersAndSpecials) {
  EXPECT_EQ(ex2(0), 1);
  EXPECT_EQ(ex2(-0.0f), 1);
  EXPECT_EQ(ex2(10), 1024);
  EXPECT_EQ(ex2(-126), 0x1p-126f);
  EXPECT_EQ(ex2(0x1p-140f), 1);
  EXPECT_EQ(bits(ex2(-127)), 0u) << "subnormal results become zero";
  EXPECT_EQ(bits(ex2(-kInf)), 0u);
  EXPECT_EQ(bits(ex2(-2000)), 0u);
  EXPECT_EQ(ex2(128), kInf);
  EXPECT_EQ(ex2(kInf), kInf);
  EXPECT_EQ(bits(ex2(-kNan)), kCanonicalNan);
}

TEST(HostScalarMath, Lg2HasThePowersAndSpecials) {
  EXPECT_EQ(bits(lg2(1)), 0u);
  EXPECT_EQ(lg2(0x1p-126f), -126);
  EXPECT_EQ(lg2(8), 3);
  EXPECT_EQ(lg2(0), -kInf);
  EXPECT_EQ(lg2(-0.0f), -kInf);
  EXPECT_EQ(lg2(0x1p-127f), -kInf);
  EXPECT_EQ(lg2(-0x1p-127f), -kInf) << "flushed before the sign counts";
  EXPECT_EQ(lg2(kInf), kInf);
  EXPECT_EQ(bits(lg2(-1)), kCanonicalNan);
  EXPECT_EQ(bits(lg2(-kInf)), kCanonicalNan);
  EXPECT_EQ(bits(lg2(kNan)), kCanonicalNan);
}

TEST(HostScalarMath, RcpHasThePowersAndSpecials) {
  EXPECT_EQ(rcp(4), 0.25f);
  EXPECT_EQ(rcp(-0.5f), -2);
  EXPECT_EQ(rcp(0), kInf);
  EXPECT_EQ(rcp(-0.0f), -kInf);
  EXPECT_EQ(rcp(-0x1p-127f), -kInf);
  EXPECT_EQ(bits(rcp(kInf)), 0u);
  EXPECT_EQ(bits(rcp(-kInf)), 0x80000000u);
  EXPECT_EQ(rcp(0x1p126f), 0x1p-126f);
  EXPECT_EQ(bits(rcp(-0x1p127f)), 0x80000000u) << "subnormal results become zero";
  EXPECT_EQ(bits(rcp(kNan)), kCanonicalNan);
}

TEST(HostScalarMath, TanhKeepsSubnormalsAndSaturates) {
  EXPECT_EQ(bits(tanh(-0.0f)), 0x80000000u);
  EXPECT_EQ(tanh(0x1p-140f), 0x1p-140f);
  EXPECT_EQ(tanh(kInf), 1);
  EXPECT_EQ(tanh(-kInf), -1);
  EXPECT_EQ(tanh(20), 1);
  EXPECT_EQ(bits(tanh(kNan)), kCanonicalNan);
}

TEST(HostScalarMath, ResultsAreRoundedCorrectly) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponents(-125, 126);
  for (int i = 0; i < 100000; ++i) {
    const float x = exponents(random);
    ASSERT_LE(ulps(ex2(x), std::exp2(static_cast<long double>(x))), 0.5001) << x;
    ASSERT_LE(ulps(tanh(x / 32), std::tanh(static_cast<long double>(x / 32))), 0.5001) << x;
    const float positive = std::exp2(x);
    ASSERT_LE(ulps(lg2(positive), std::log2(static_cast<long double>(positive))), 0.5001) << x;
    ASSERT_LE(ulps(rcp(positive), 1 / static_cast<long double>(positive)), 0.5001) << x;
  }
}

TEST(HostScalarMath, Bf16RoundsToNearestEvenAndPacksLowFirst) {
  const auto one = [](uint32 x) { return cvt_bf16x2(std::bit_cast<float>(x), 0); };
  EXPECT_EQ(cvt_bf16x2(1.0f, -2.0f), 0xc0003f80u);
  EXPECT_EQ(one(0x3f808000), 0x3f80u) << "tie, even below";
  EXPECT_EQ(one(0x3f818000), 0x3f82u) << "tie, even above";
  EXPECT_EQ(one(0x3f808001), 0x3f81u);
  EXPECT_EQ(one(0x3f807fff), 0x3f80u);
  EXPECT_EQ(one(0x7f7fffff), 0x7f80u) << "rounds up to infinity";
  EXPECT_EQ(one(0x7f800000), 0x7f80u);
  EXPECT_EQ(one(0xff800000), 0xff80u);
  EXPECT_EQ(one(0x7f800001), 0x7fffu);
  EXPECT_EQ(one(0xffc00000), 0x7fffu);
  EXPECT_EQ(one(0x80000000), 0x8000u);
  EXPECT_EQ(one(0x00018000), 0x0002u) << "subnormal numbers are kept";
}

}  // namespace
}  // namespace attune::host
