// Where the operands and sums of wgmma.mma_async are: matrix descriptors of shared memory and the
// fragments in registers (PTX ISA 9.0, "Register Fragments and Shared Memory Matrix Layouts").
#pragma once

#include "jit/host/tensor_core.h"
#include "jit/tensor_map.h"
#include "templates/int_types.h"

namespace attune::host {

constexpr int kWgmmaRows = 64;

// A matrix descriptor, all in bytes.
struct OperandDescriptor {
  uint32 start;           // address in the shared window
  uint32 leading_offset;  // K-major: next 8 of k without swizzle, unused with; MN-major: next
                          // swizzle span of rows, next 8 of k without swizzle
  uint32 stride_offset;  // K-major: next 8 rows; MN-major: next 8 of k, next 8 rows without swizzle
  uint32 base_offset;    // of the swizzle pattern, in units of 128 bytes
  TensorMapSwizzle swizzle;
};

OperandDescriptor decode_operand_descriptor(uint64 descriptor);

// What the rows of an operand run along: A [rows, 16] and B [16, rows] transposed.
enum class OperandMajor { kK, kMn };

// Address of element (row, k) of an operand in the shared window; element k = 1 is next to it when
// K-major, element row + 1 when MN-major. Throws nothing: addresses wrap at 2^18 as in hardware.
uint32 operand_address(const OperandDescriptor& descriptor, OperandMajor major, int row, int k);

// Reads an operand of `rows` rows, a multiple of 8. 64 rows are A, otherwise n columns of B.
void read_operand(const OperandDescriptor& descriptor, OperandMajor major, int rows,
                  const unsigned char* window, uint16 (*operand)[kMmaDepth]);

// Calls visit(address, 16) for each 16-byte chunk of shared memory that read_operand reads.
template <typename Visit>
void visit_operand_chunks(const OperandDescriptor& descriptor, OperandMajor major, int rows,
                          Visit&& visit) {
  const int row_step = major == OperandMajor::kK ? 1 : 8;
  const int k_step = major == OperandMajor::kK ? 8 : 1;
  for (int row = 0; row < rows; row += row_step) {
    for (int k = 0; k < kMmaDepth; k += k_step) {
      visit(operand_address(descriptor, major, row, k), 16u);
    }
  }
}

struct TileElement {
  int row, column;
};

// Element of the sums [64, n] that thread 0..127 of the warpgroup has in register 0..n/2-1.
constexpr TileElement wgmma_sum_element(int thread, int reg) {
  return {thread / 32 * 16 + thread % 32 / 4 + reg / 2 % 2 * 8,
          reg / 4 * 8 + thread % 4 * 2 + reg % 2};
}

// Element of A [64, 16] that the thread has in half 0 (low) or 1 of register 0..3.
constexpr TileElement wgmma_a_element(int thread, int reg, int half) {
  return {thread / 32 * 16 + thread % 32 / 4 + reg % 2 * 8, reg / 2 * 8 + thread % 4 * 2 + half};
}

}  // namespace attune::host
