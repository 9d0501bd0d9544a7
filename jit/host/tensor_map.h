// Tensor maps of the host device and the copies of cp.async.bulk.tensor in tile mode, on plain
// memory.
#pragma once

#include <span>
#include <string>

#include "jit/tensor_map.h"
#include "templates/int_types.h"

namespace attune::host {

// The map as the 128 bytes that a kernel takes. Throws InvalidArgument when `spec` breaks a limit.
TensorMap encode_tensor_map(const TensorMapSpec& spec);

// The spec in the 128 bytes at `map`, which need no alignment. Throws InvalidArgument when they
// were not written by encode_tensor_map of this version.
TensorMapSpec decode_tensor_map(const void* map);

// Bytes that a copy of a box adds to complete_tx: the whole box, whatever is out of bounds.
uint32 box_bytes(const TensorMapSpec& spec);

// Bytes of shared memory from the start of a box to its end: more than box_bytes when a row is
// shorter than the span of the swizzle, because a row takes a whole span (CUDA programming guide,
// "The Swizzle Modes").
uint32 box_span_bytes(const TensorMapSpec& spec);

// Where the byte of a box goes that would be at `address` without swizzle: 16-byte chunks change
// places by the bits of the address above them, whatever the start of the box.
constexpr uint32 swizzled(uint32 address, TensorMapSwizzle swizzle) {
  const uint32 chunks = swizzle == TensorMapSwizzle::k128  ? 7
                        : swizzle == TensorMapSwizzle::k64 ? 3
                        : swizzle == TensorMapSwizzle::k32 ? 1
                                                           : 0;
  return address ^ ((address >> 7 & chunks) << 4);
}

// A row of a box: its part inside the tensor, which for a store goes on to the end of its last 16
// bytes.
struct BoxRow {
  uint64 global;        // address of the first element inside
  uint32 global_bytes;  // 0 when the whole row is outside
  uint32 skipped;       // bytes of the row before it
  uint32 offset;        // of the row in the box, without swizzle
};

// The rows of a box at `coordinates` (innermost first, one per dimension), one after another.
class BoxRows {
 public:
  BoxRows(const TensorMapSpec& spec, std::span<const int> coordinates, bool is_load);
  bool next(BoxRow& row);  // false after the last one

 private:
  const TensorMapSpec& spec_;
  std::span<const int> coordinates_;
  uint32 index_[5] = {};
  uint32 num_rows_ = 1;
  uint32 row_ = 0;
  uint32 pitch_ = 0;
  uint32 skipped_ = 0;
  uint32 inside_ = 0;  // bytes of a row that are inside along the innermost dimension
};

// Why hardware refuses to copy the box at `coordinates`, empty when it does not. The rules are in
// the CUDA programming guide; an H200 ends such kernels with CUDA_ERROR_ILLEGAL_INSTRUCTION.
std::string box_refusal(const TensorMapSpec& spec, std::span<const int> coordinates, bool is_load);

// Calls visit(global address, bytes) for what a copy of the box reads or writes, row by row.
template <typename Visit>
void visit_global_rows(const TensorMapSpec& spec, std::span<const int> coordinates, bool is_load,
                       Visit&& visit) {
  BoxRows rows(spec, coordinates, is_load);
  for (BoxRow row; rows.next(row);) {
    if (row.global_bytes > 0) visit(row.global, row.global_bytes);
  }
}

// Global to shared: the box at `coordinates` to `smem` in the CTA's shared window, a multiple of
// 128. Elements outside the tensor become the map's fill value.
void copy_box_to_shared(const TensorMapSpec& spec, std::span<const int> coordinates,
                        unsigned char* window, uint32 smem);

// Shared to global, of a box that is not refused. Elements outside the tensor are not written, but
// for those in the last 16 bytes of a row: an H200 writes all of these (tests/conformance).
void copy_box_to_global(const TensorMapSpec& spec, std::span<const int> coordinates,
                        const unsigned char* window, uint32 smem);

}  // namespace attune::host
