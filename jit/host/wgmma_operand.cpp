#include "jit/host/wgmma_operand.h"

#include <cstring>

#include "jit/host/tensor_map.h"

namespace attune::host {

namespace {

constexpr uint32 kAddressMask = 0x3ffff;  // of the shared window
constexpr int kChunk = 8;                 // elements of 16 bytes
constexpr uint32 kChunkBytes = 16;

// Field of 14 bits, in units of 16 bytes.
uint32 bytes_at(uint64 descriptor, int bit) {
  return static_cast<uint32>(descriptor >> bit & 0x3fff) << 4;
}

// Offset of the 16-byte chunk that (row, k) is in, before the swizzle: the canonical layouts of
// the PTX ISA, written as "which 8 rows, which 8 of k".
uint32 chunk_offset(const OperandDescriptor& descriptor, OperandMajor major, int row, int k) {
  const auto r = static_cast<uint32>(row), z = static_cast<uint32>(k);
  const auto span = static_cast<uint32>(span_bytes(descriptor.swizzle));
  if (major == OperandMajor::kK) {
    if (span == 0) {
      return r % kChunk * kChunkBytes + r / kChunk * descriptor.stride_offset +
             z / kChunk * descriptor.leading_offset;
    }
    return r % kChunk * span + r / kChunk * descriptor.stride_offset + z / kChunk * kChunkBytes;
  }
  if (span == 0) {
    return z % kChunk * kChunkBytes + z / kChunk * descriptor.leading_offset +
           r / kChunk * descriptor.stride_offset;
  }
  const uint32 row_bytes = r / kChunk * kChunkBytes;  // rows run along the span, then on at LBO
  return row_bytes % span + row_bytes / span * descriptor.leading_offset + z % kChunk * span +
         z / kChunk * descriptor.stride_offset;
}

// The pattern repeats from an address that is `base_offset` times 128 bytes past its alignment.
uint32 swizzled_from(uint32 address, uint32 base_offset, TensorMapSwizzle swizzle) {
  const uint32 base = base_offset << 7;
  return swizzled(address - base, swizzle) + base;
}

}  // namespace

OperandDescriptor decode_operand_descriptor(uint64 descriptor) {
  constexpr TensorMapSwizzle kModes[4] = {TensorMapSwizzle::kNone, TensorMapSwizzle::k128,
                                          TensorMapSwizzle::k64, TensorMapSwizzle::k32};
  return {.start = bytes_at(descriptor, 0),
          .leading_offset = bytes_at(descriptor, 16),
          .stride_offset = bytes_at(descriptor, 32),
          .base_offset = static_cast<uint32>(descriptor >> 49 & 7),
          .swizzle = kModes[descriptor >> 62]};
}

uint32 operand_address(const OperandDescriptor& descriptor, OperandMajor major, int row, int k) {
  const int along = major == OperandMajor::kK ? k % kChunk : row % kChunk;
  const uint32 address = descriptor.start + chunk_offset(descriptor, major, row, k);
  const uint32 chunk = swizzled_from(address, descriptor.base_offset, descriptor.swizzle);
  return (chunk + static_cast<uint32>(along) * 2) & kAddressMask;
}

void read_operand(const OperandDescriptor& descriptor, OperandMajor major, int rows,
                  const unsigned char* window, uint16 (*operand)[kMmaDepth]) {
  if (major == OperandMajor::kK) {
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < kMmaDepth; k += kChunk) {
        const uint32 address = operand_address(descriptor, major, row, k);
        std::memcpy(&operand[row][k], window + address, kChunkBytes);
      }
    }
    return;
  }
  for (int row = 0; row < rows; row += kChunk) {
    for (int k = 0; k < kMmaDepth; ++k) {
      uint16 chunk[kChunk];
      std::memcpy(chunk, window + operand_address(descriptor, major, row, k), kChunkBytes);
      for (int i = 0; i < kChunk; ++i) operand[row + i][k] = chunk[i];
    }
  }
}

}  // namespace attune::host
