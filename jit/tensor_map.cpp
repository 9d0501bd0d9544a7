#include "jit/tensor_map.h"

#include <fmt/format.h>

#include "common/error.h"

namespace attune {
namespace {

constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 32;
constexpr std::uint64_t kMaxStrideBytes = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxBox = 256;
constexpr std::uint64_t kAlignment = 16;  // of the address, the strides and a box's row, in bytes

[[noreturn]] void refuse(std::string_view what, const std::string& values) {
  throw InvalidArgument(fmt::format("a tensor map cannot have this {}", what), values);
}

void validate_dimension(const TensorMapSpec& spec, std::size_t i) {
  if (spec.size[i] < 1 || spec.size[i] > kMaxSize) {
    refuse("size", fmt::format("dimension={} size={} limit={}", i, spec.size[i], kMaxSize));
  }
  if (spec.box[i] < 1 || spec.box[i] > kMaxBox) {
    refuse("box", fmt::format("dimension={} box={} limit={}", i, spec.box[i], kMaxBox));
  }
  if (i == 0) return;
  const std::uint64_t stride_bytes = spec.stride_bytes[i - 1];
  if (stride_bytes % kAlignment != 0 || stride_bytes >= kMaxStrideBytes) {
    refuse("stride", fmt::format("dimension={} stride_bytes={} multiple_of={} limit={}", i,
                                 stride_bytes, kAlignment, kMaxStrideBytes));
  }
}

}  // namespace

int element_bytes(TensorMapType type) {
  switch (type) {
    case TensorMapType::kUint8:
      return 1;
    case TensorMapType::kBf16:
      return 2;
    case TensorMapType::kFloat32:
      return 4;
  }
  throw InvalidArgument("unknown tensor map type", fmt::format("value={}", static_cast<int>(type)));
}

int span_bytes(TensorMapSwizzle swizzle) {
  switch (swizzle) {
    case TensorMapSwizzle::kNone:
      return 0;
    case TensorMapSwizzle::k32:
      return 32;
    case TensorMapSwizzle::k64:
      return 64;
    case TensorMapSwizzle::k128:
      return 128;
  }
  throw InvalidArgument("unknown swizzle", fmt::format("value={}", static_cast<int>(swizzle)));
}

void validate(const TensorMapSpec& spec) {
  if (spec.rank < 1 || spec.rank > 5) refuse("rank", fmt::format("rank={} limit=5", spec.rank));
  if (spec.address == 0 || spec.address % kAlignment != 0) {
    refuse("address", fmt::format("address={:#x} multiple_of={}", spec.address, kAlignment));
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec.rank); ++i) validate_dimension(spec, i);
  const std::uint64_t row_bytes =
      std::uint64_t{spec.box[0]} * static_cast<std::uint64_t>(element_bytes(spec.type));
  if (row_bytes % kAlignment != 0) {
    refuse("box", fmt::format("row_bytes={} multiple_of={}", row_bytes, kAlignment));
  }
  const int span = span_bytes(spec.swizzle);
  if (span != 0 && row_bytes > static_cast<std::uint64_t>(span)) {
    refuse("box", fmt::format("row_bytes={} swizzle={}", row_bytes, span));
  }
  if (spec.fill == TensorMapFill::kNan && spec.type == TensorMapType::kUint8) {
    refuse("fill", "fill=nan type=uint8");
  }
}

}  // namespace attune
