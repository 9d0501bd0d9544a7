#include "jit/tensor_map.h"

#include <gtest/gtest.h>

#include "common/error.h"

namespace attune {
namespace {

TensorMapSpec good() {
  return {.type = TensorMapType::kBf16,
          .rank = 3,
          .address = 0x1000,
          .size = {64, 100, 8},
          .stride_bytes = {1024, 128},
          .box = {64, 32, 8},
          .swizzle = TensorMapSwizzle::k128,
          .fill = TensorMapFill::kZero};
}

// The message of the refusal, empty where there is none.
std::string refusal(const TensorMapSpec& spec) {
  try {
    validate(spec);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

TEST(TensorMap, TakesWhatTheHardwareTakes) {
  EXPECT_EQ(refusal(good()), "");
  TensorMapSpec spec = good();
  spec.rank = 1;  // the other dimensions do not count
  spec.size = {std::uint64_t{1} << 32, 0, 0};
  spec.box = {64, 0, 0};
  EXPECT_EQ(refusal(spec), "");
}

TEST(TensorMap, NamesTheLimitThatIsBroken) {
  TensorMapSpec spec = good();
  spec.rank = 6;
  EXPECT_EQ(refusal(spec), "a tensor map cannot have this rank: rank=6 limit=5");
  spec = good();
  spec.address = 0x1008;
  EXPECT_EQ(refusal(spec), "a tensor map cannot have this address: address=0x1008 multiple_of=16");
  spec = good();
  spec.size[2] = 0;
  EXPECT_EQ(refusal(spec),
            "a tensor map cannot have this size: dimension=2 size=0 limit=4294967296");
  spec = good();
  spec.box[1] = 257;
  EXPECT_EQ(refusal(spec), "a tensor map cannot have this box: dimension=1 box=257 limit=256");
  spec = good();
  spec.stride_bytes[1] = 24;
  EXPECT_EQ(refusal(spec),
            "a tensor map cannot have this stride: dimension=2 stride_bytes=24 multiple_of=16 "
            "limit=1099511627776");
}

TEST(TensorMap, FitsTheRowOfABoxIntoTheSwizzle) {
  TensorMapSpec spec = good();
  spec.swizzle = TensorMapSwizzle::k64;
  EXPECT_EQ(refusal(spec), "a tensor map cannot have this box: row_bytes=128 swizzle=64");
  spec.box[0] = 32;
  EXPECT_EQ(refusal(spec), "");
  spec.box[0] = 4;
  EXPECT_EQ(refusal(spec), "a tensor map cannot have this box: row_bytes=8 multiple_of=16");
}

TEST(TensorMap, FillsFloatsAloneWithNan) {
  TensorMapSpec spec = good();
  spec.fill = TensorMapFill::kNan;
  EXPECT_EQ(refusal(spec), "");
  spec.type = TensorMapType::kUint8;
  EXPECT_EQ(refusal(spec), "a tensor map cannot have this fill: fill=nan type=uint8");
}

}  // namespace
}  // namespace attune
