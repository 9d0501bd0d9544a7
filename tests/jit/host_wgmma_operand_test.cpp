#include "jit/host/wgmma_operand.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "jit/host/tensor_map.h"

namespace attune::host {
namespace {

constexpr uint32 kWindowBytes = 1u << 18;

struct Fields {
  uint32 start, leading = 0, stride = 0, base = 0;
  int mode = 0;  // 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes
};

uint64 encode(const Fields& fields) {
  const auto field = [](uint32 bytes) { return uint64{(bytes & 0x3ffff) >> 4}; };
  return field(fields.start) | field(fields.leading) << 16 | field(fields.stride) << 32 |
         uint64{fields.base} << 49 | uint64(fields.mode) << 62;
}

TEST(HostWgmmaOperand, DecodesTheFieldsOfADescriptor) {
  const OperandDescriptor descriptor = decode_operand_descriptor(
      encode({.start = 0x2abc0, .leading = 0x3fff0, .stride = 1024, .base = 5, .mode = 2}));
  EXPECT_EQ(descriptor.start, 0x2abc0u);
  EXPECT_EQ(descriptor.leading_offset, 0x3fff0u);
  EXPECT_EQ(descriptor.stride_offset, 1024u);
  EXPECT_EQ(descriptor.base_offset, 5u);
  EXPECT_EQ(descriptor.swizzle, TensorMapSwizzle::k64);
  EXPECT_EQ(decode_operand_descriptor(1ull << 62).swizzle, TensorMapSwizzle::k128);
  EXPECT_EQ(decode_operand_descriptor(3ull << 62).swizzle, TensorMapSwizzle::k32);
  EXPECT_EQ(decode_operand_descriptor(1ull << 14 | 1ull << 61).start, 0u) << "reserved bits";
}

TEST(HostWgmmaOperand, KMajorRowsOf128BytesAreSwizzledByTheirNumber) {
  const OperandDescriptor descriptor =
      decode_operand_descriptor(encode({.start = 0x400, .stride = 1024, .mode = 1}));
  const auto at = [&](int row, int k) {
    return operand_address(descriptor, OperandMajor::kK, row, k);
  };
  EXPECT_EQ(at(0, 0), 0x400u);
  EXPECT_EQ(at(0, 9), 0x412u);
  EXPECT_EQ(at(1, 0), 0x490u);
  EXPECT_EQ(at(1, 8), 0x480u);
  EXPECT_EQ(at(7, 3), 0x400u + 7 * 128 + 7 * 16 + 6);
  EXPECT_EQ(at(63, 0), 0x400u + 63 * 128 + 7 * 16);
  // The next 16 of k: 32 bytes on, under the same swizzle.
  const OperandDescriptor next =
      decode_operand_descriptor(encode({.start = 0x420, .stride = 1024, .mode = 1}));
  EXPECT_EQ(operand_address(next, OperandMajor::kK, 1, 0), 0x480u + (2 ^ 1) * 16);
  EXPECT_EQ(operand_address(next, OperandMajor::kK, 5, 8), 0x400u + 5 * 128 + (3 ^ 5) * 16);
}

TEST(HostWgmmaOperand, MnMajorTakesTheNextPanelFromTheLeadingOffset) {
  // V [64 tokens, 256] as four panels of 64 columns, tokens in rows of 128 bytes.
  const OperandDescriptor descriptor = decode_operand_descriptor(
      encode({.start = 0x2000, .leading = 64 * 128, .stride = 1024, .mode = 1}));
  const auto at = [&](int column, int token) {
    return operand_address(descriptor, OperandMajor::kMn, column, token);
  };
  EXPECT_EQ(at(0, 0), 0x2000u);
  EXPECT_EQ(at(9, 0), 0x2012u);
  EXPECT_EQ(at(0, 3), 0x2000u + 3 * 128 + 3 * 16);
  EXPECT_EQ(at(0, 8), 0x2000u + 1024);
  EXPECT_EQ(at(64, 0), 0x2000u + 64 * 128);
  EXPECT_EQ(at(255, 15), 0x2000u + 3 * 64 * 128 + 15 * 128 + 14);
}

TEST(HostWgmmaOperand, AddressesWrapAtTheEndOfTheWindow) {
  const OperandDescriptor descriptor =
      decode_operand_descriptor(encode({.start = 0x3fff0, .leading = 128, .stride = 256}));
  EXPECT_EQ(operand_address(descriptor, OperandMajor::kK, 1, 0), 0u);
}

// A mode of a layout ((shape), (shape)) : ((stride), (stride)) of CuTe, strides in elements.
struct Mode {
  int shape, stride;
};

int offset_in(const std::vector<Mode>& modes, int index) {
  int offset = 0;
  for (const Mode& mode : modes) {
    offset += index % mode.shape * mode.stride;
    index /= mode.shape;
  }
  return offset;
}

// Canonical layouts as the table of the PTX ISA has them, T = 8, offsets in elements.
int canonical_offset(OperandMajor major, int mode, int lbo, int sbo, int row, int k) {
  constexpr int kMany = 1 << 10, T = 8;
  const int width = mode == 1 ? 8 : mode == 2 ? 4 : mode == 3 ? 2 : 1;  // chunks of a span
  if (major == OperandMajor::kMn) {
    if (mode == 0) {
      return offset_in({{T, 1}, {1, T}, {kMany, sbo}}, row) + offset_in({{8, T}, {kMany, lbo}}, k);
    }
    return offset_in({{T, 1}, {width, T}, {kMany, lbo}}, row) +
           offset_in({{8, width * T}, {kMany, sbo}}, k);
  }
  return offset_in({{8, width * T}, {kMany, sbo}}, row) +
         offset_in({{T, 1}, {kMany, mode == 0 ? lbo : T}}, k);
}

// Swizzle<bits, 4, 3> of CuTe on a byte address.
uint32 cute_swizzle(uint32 address, int mode) {
  const uint32 mask = mode == 1 ? 0x380 : mode == 2 ? 0x180 : mode == 3 ? 0x080 : 0;
  return address ^ (address & mask) >> 3;
}

struct LayoutCase {
  OperandMajor major;
  int mode;
  int rows;
  uint32 start, leading, stride;
};

std::vector<LayoutCase> layout_cases() {
  std::vector<LayoutCase> cases;
  for (const int rows : {8, 24, 64, 256}) {
    for (int mode = 0; mode < 4; ++mode) {
      const auto span = static_cast<uint32>(mode == 0 ? 16 : 256 >> mode);
      // Dense K-major: all rows of a span one after another. Sparse: with room in between.
      for (const uint32 room : {0u, 16u * 64}) {
        const uint32 groups = static_cast<uint32>(rows) / 8;
        cases.push_back(
            {OperandMajor::kK, mode, rows, 0x800, groups * (128 + room), 8 * span + room});
        if (mode == 0) {
          cases.push_back({OperandMajor::kMn, mode, rows, 0x400, 128, 256 + room});
        } else {
          const uint32 stride = 8 * span + room;
          cases.push_back({OperandMajor::kMn, mode, rows, 0x400, 2 * stride, stride});
        }
      }
    }
  }
  // Steps of k inside a span.
  cases.push_back({OperandMajor::kK, 1, 64, 0x860, 0, 1024});
  cases.push_back({OperandMajor::kK, 2, 64, 0x820, 0, 512});
  return cases;
}

TEST(HostWgmmaOperand, ReadsWhatTheCanonicalLayoutsWrite) {
  std::mt19937 random(1);
  for (const LayoutCase& given : layout_cases()) {
    SCOPED_TRACE(testing::Message()
                 << "mn " << (given.major == OperandMajor::kMn) << " mode " << given.mode
                 << " rows " << given.rows << " stride " << given.stride);
    std::vector<unsigned char> window(kWindowBytes);
    std::vector<std::array<uint16, kMmaDepth>> expected(static_cast<std::size_t>(given.rows));
    std::set<uint32> addresses;
    for (int row = 0; row < given.rows; ++row) {
      for (int k = 0; k < kMmaDepth; ++k) {
        const uint32 address = cute_swizzle(
            given.start + 2 * static_cast<uint32>(canonical_offset(
                                  given.major, given.mode, static_cast<int>(given.leading / 2),
                                  static_cast<int>(given.stride / 2), row, k)),
            given.mode);
        ASSERT_TRUE(addresses.insert(address).second) << "the case overlaps itself";
        const auto x = static_cast<uint16>(random());
        expected[static_cast<std::size_t>(row)][static_cast<std::size_t>(k)] = x;
        std::memcpy(&window[address], &x, 2);
      }
    }
    const OperandDescriptor descriptor = decode_operand_descriptor(encode({.start = given.start,
                                                                           .leading = given.leading,
                                                                           .stride = given.stride,
                                                                           .mode = given.mode}));
    uint16 read[256][kMmaDepth] = {};
    read_operand(descriptor, given.major, given.rows, window.data(), read);
    ASSERT_EQ(std::memcmp(read, expected.data(), expected.size() * sizeof expected[0]), 0);

    std::set<uint32> visited;
    visit_operand_chunks(descriptor, given.major, given.rows, [&](uint32 address, uint32 bytes) {
      for (uint32 i = 0; i < bytes; i += 2) visited.insert(address + i);
    });
    ASSERT_EQ(visited, addresses);
  }
}

TEST(HostWgmmaOperand, BaseOffsetMovesTheStartOfThePattern) {
  // A pattern that begins 3 rows past its alignment: row r of it is swizzled by r.
  const OperandDescriptor descriptor = decode_operand_descriptor(
      encode({.start = 0x580, .stride = 1024, .base = (0x580 >> 7) & 7, .mode = 1}));
  for (int row = 0; row < 8; ++row) {
    EXPECT_EQ(operand_address(descriptor, OperandMajor::kK, row, 0),
              0x580u + static_cast<uint32>(row * 128 + row * 16));
  }
}

TEST(HostWgmmaOperand, FragmentsCoverTheirTilesOnce) {
  constexpr int kN = 48;
  std::set<std::pair<int, int>> sums, a;
  for (int thread = 0; thread < 128; ++thread) {
    for (int reg = 0; reg < kN / 2; ++reg) {
      const TileElement element = wgmma_sum_element(thread, reg);
      EXPECT_LT(element.row, 64);
      EXPECT_LT(element.column, kN);
      sums.insert({element.row, element.column});
    }
    for (int reg = 0; reg < 4; ++reg) {
      for (int half = 0; half < 2; ++half) {
        const TileElement element = wgmma_a_element(thread, reg, half);
        a.insert({element.row, element.column});
        // Sums 0 to 7 of a product, packed in pairs, are A of the next one.
        const TileElement sum = wgmma_sum_element(thread, 2 * reg + half);
        EXPECT_EQ(element.row, sum.row);
        EXPECT_EQ(element.column, sum.column);
      }
    }
  }
  EXPECT_EQ(sums.size(), std::size_t{64 * kN});
  EXPECT_EQ(a.size(), std::size_t{64 * 16});
  EXPECT_EQ(wgmma_sum_element(37, 7).row, 16 + 5 / 4 + 8);
  EXPECT_EQ(wgmma_sum_element(37, 7).column, 8 + 2 * (37 % 4) + 1);
}

uint16 bf16(int x) {
  return static_cast<uint16>(std::bit_cast<uint32>(static_cast<float>(x)) >> 16);
}

// Small integers, so every order of additions gives the same sums.
struct IntegerMatrix {
  int rows, columns;
  std::vector<int> values;
  std::vector<uint16> elements;

  IntegerMatrix(int num_rows, int num_columns, unsigned seed)
      : rows(num_rows), columns(num_columns) {
    std::mt19937 random(seed);
    for (int i = 0; i < rows * columns; ++i) {
      values.push_back(static_cast<int>(random() % 7) - 3);
      elements.push_back(bf16(values.back()));
    }
  }
  int at(int row, int column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

// As the copy engine brings it in: panels of 64 columns, 128 bytes a row.
void load_panels(const IntegerMatrix& matrix, unsigned char* window, uint32 smem) {
  const auto rows = static_cast<uint32>(matrix.rows), columns = static_cast<uint32>(matrix.columns);
  const TensorMapSpec spec{.rank = 3,
                           .address = reinterpret_cast<std::uint64_t>(matrix.elements.data()),
                           .size = {64, rows, columns / 64},
                           .stride_bytes = {columns * 2, 128},
                           .box = {64, rows, columns / 64},
                           .swizzle = TensorMapSwizzle::k128};
  copy_box_to_shared(spec, std::array{0, 0, 0}, window, smem);
}

// Columns [k, k + 16) of such a matrix as an operand along its rows.
void read_k_major(const unsigned char* window, uint32 smem, int rows, uint32 k,
                  uint16 (*operand)[kMmaDepth]) {
  const uint32 start = smem + k / 64 * static_cast<uint32>(rows) * 128 + k % 64 * 2;
  read_operand(
      decode_operand_descriptor(encode({.start = start, .leading = 16, .stride = 1024, .mode = 1})),
      OperandMajor::kK, rows, window, operand);
}

constexpr int kRows = 64, kTokens = 32, kDim = 128;
constexpr uint32 kQ = 0x2000, kKv = kQ + kRows * kDim * 2;

TEST(HostWgmmaOperand, MultipliesKMajorTilesThatTensorMapsBroughtIn) {
  const IntegerMatrix q(kRows, kDim, 1), keys(kTokens, kDim, 2);
  std::vector<unsigned char> window(kWindowBytes);
  load_panels(q, window.data(), kQ);
  load_panels(keys, window.data(), kKv);
  float scores[kRows][kTokens] = {};
  for (uint32 k = 0; k < kDim; k += 16) {
    uint16 a[kRows][kMmaDepth], b[kTokens][kMmaDepth];
    read_k_major(window.data(), kQ, kRows, k, a);
    read_k_major(window.data(), kKv, kTokens, k, b);
    multiply_tile(kRows, kTokens, a, b, scores[0], kTensorCoreSm90);
  }
  for (int row = 0; row < kRows; ++row) {
    for (int token = 0; token < kTokens; ++token) {
      int expected = 0;
      for (int i = 0; i < kDim; ++i) expected += q.at(row, i) * keys.at(token, i);
      ASSERT_EQ(scores[row][token], static_cast<float>(expected));
    }
  }
}

TEST(HostWgmmaOperand, MultipliesMnMajorTilesThatTensorMapsBroughtIn) {
  const IntegerMatrix weights(kRows, kTokens, 3), values(kTokens, kDim, 4);
  std::vector<unsigned char> window(kWindowBytes);
  load_panels(values, window.data(), kKv);
  std::vector<float> output(kRows * kDim);
  for (int token = 0; token < kTokens; token += 16) {
    uint16 a[kRows][kMmaDepth], b[kDim][kMmaDepth];
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < 16; ++i) a[row][i] = bf16(weights.at(row, token + i));
    }
    read_operand(decode_operand_descriptor(encode({.start = kKv + static_cast<uint32>(token) * 128,
                                                   .leading = kTokens * 128,
                                                   .stride = 1024,
                                                   .mode = 1})),
                 OperandMajor::kMn, kDim, window.data(), b);
    multiply_tile(kRows, kDim, a, b, output.data(), kTensorCoreSm90);
  }
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kDim; ++column) {
      int expected = 0;
      for (int i = 0; i < kTokens; ++i) expected += weights.at(row, i) * values.at(i, column);
      ASSERT_EQ(output[static_cast<std::size_t>(row * kDim + column)],
                static_cast<float>(expected));
    }
  }
}

}  // namespace
}  // namespace attune::host
