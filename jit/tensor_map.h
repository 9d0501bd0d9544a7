// Tensor maps of the bulk copy engine (TMA): what a box of a tensor in global memory is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "templates/params.h"  // TensorMap, what a spec is encoded to

namespace attune {

enum class TensorMapType { kUint8, kBf16, kFloat32 };
enum class TensorMapSwizzle { kNone, k32, k64, k128 };  // bytes
enum class TensorMapFill { kZero, kNan };               // of elements outside the tensor

// Sizes and strides are innermost first, as in cuTensorMapEncodeTiled, whose limits hold on every
// device.
struct TensorMapSpec {
  TensorMapType type = TensorMapType::kBf16;
  int rank = 2;                         // 1 to 5
  std::uint64_t address = 0;            // in global memory, 16-byte aligned
  std::array<std::uint64_t, 5> size{};  // elements, each 1 to 2^32
  // Of dimensions 1 to rank - 1, multiples of 16, below 2^40.
  std::array<std::uint64_t, 4> stride_bytes{};
  std::array<std::uint32_t, 5> box{};  // elements, each 1 to 256
  TensorMapSwizzle swizzle = TensorMapSwizzle::kNone;
  TensorMapFill fill = TensorMapFill::kZero;
};

// Throws InvalidArgument that names the field when a limit is broken. Every device calls it before
// it encodes.
void validate(const TensorMapSpec& spec);

int element_bytes(TensorMapType type);
int span_bytes(TensorMapSwizzle swizzle);  // within which 16-byte chunks are permuted; 0 for kNone

}  // namespace attune
