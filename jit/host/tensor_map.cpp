#include "jit/host/tensor_map.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"

namespace attune::host {

namespace {

constexpr uint32 kMagic = 0x70616d74;  // "tmap"
constexpr uint16 kVersion = 1;
constexpr uint32 kChunkBytes = 16;

// The 128 bytes. Sizes less one, because 2^32 is a size.
struct Encoding {
  uint32 magic;
  uint16 version;
  unsigned char type, rank, swizzle, fill;
  uint64 address;
  uint64 stride_bytes[4];
  uint32 last[5];
  uint32 box[5];
};
static_assert(sizeof(Encoding) <= sizeof(TensorMap));

// Of every 16 bits outside the tensor: the NaN that fma.oob takes for zero. PTX gives it no value;
// this is the one that GPUs write.
constexpr std::array<unsigned char, 2> kFillNan{0xf7, 0x7f};

uint32 row_bytes(const TensorMapSpec& spec) {
  return spec.box[0] * static_cast<uint32>(element_bytes(spec.type));
}

uint32 row_pitch(const TensorMapSpec& spec) {
  return spec.swizzle == TensorMapSwizzle::kNone ? row_bytes(spec)
                                                 : static_cast<uint32>(span_bytes(spec.swizzle));
}

uint32 num_rows(const TensorMapSpec& spec) {
  uint32 count = 1;
  for (std::size_t i = 1; i < static_cast<std::size_t>(spec.rank); ++i) count *= spec.box[i];
  return count;
}

constexpr uint32 kMaxRowBytes = 256 * 4;
using Row = std::array<unsigned char, kMaxRowBytes>;

void fill_row(TensorMapFill fill, Row& row, uint32 bytes) {
  for (uint32 i = 0; i < bytes; ++i) row[i] = fill == TensorMapFill::kNan ? kFillNan[i % 2] : 0;
}

}  // namespace

TensorMap encode_tensor_map(const TensorMapSpec& spec) {
  validate(spec);
  Encoding encoding{.magic = kMagic,
                    .version = kVersion,
                    .type = static_cast<unsigned char>(spec.type),
                    .rank = static_cast<unsigned char>(spec.rank),
                    .swizzle = static_cast<unsigned char>(spec.swizzle),
                    .fill = static_cast<unsigned char>(spec.fill),
                    .address = spec.address,
                    .stride_bytes = {},
                    .last = {},
                    .box = {}};
  const auto rank = static_cast<std::size_t>(spec.rank);
  for (std::size_t i = 0; i < rank; ++i) {
    encoding.last[i] = static_cast<uint32>(spec.size[i] - 1);
    encoding.box[i] = spec.box[i];
    if (i > 0) encoding.stride_bytes[i - 1] = spec.stride_bytes[i - 1];
  }
  TensorMap map;
  std::memcpy(map.bytes, &encoding, sizeof encoding);
  return map;
}

TensorMapSpec decode_tensor_map(const void* map) {
  Encoding encoding;
  std::memcpy(&encoding, map, sizeof encoding);
  if (encoding.magic != kMagic || encoding.version != kVersion) {
    throw InvalidArgument("not a tensor map of the host device",
                          fmt::format("magic={:#x} version={} expected={:#x}/{}", encoding.magic,
                                      encoding.version, kMagic, kVersion),
                          "encode it with the device that runs the kernel");
  }
  TensorMapSpec spec{.type = static_cast<TensorMapType>(encoding.type),
                     .rank = encoding.rank,
                     .address = encoding.address,
                     .swizzle = static_cast<TensorMapSwizzle>(encoding.swizzle),
                     .fill = static_cast<TensorMapFill>(encoding.fill)};
  for (std::size_t i = 0; i < encoding.rank; ++i) {
    spec.size[i] = std::uint64_t{encoding.last[i]} + 1;
    spec.box[i] = encoding.box[i];
    if (i > 0) spec.stride_bytes[i - 1] = encoding.stride_bytes[i - 1];
  }
  return spec;
}

uint32 box_bytes(const TensorMapSpec& spec) { return num_rows(spec) * row_bytes(spec); }

uint32 box_span_bytes(const TensorMapSpec& spec) { return num_rows(spec) * row_pitch(spec); }

std::string box_refusal(const TensorMapSpec& spec, std::span<const int> coordinates, bool is_load) {
  const int64 first_bytes = int64{coordinates[0]} * element_bytes(spec.type);
  if (first_bytes % kChunkBytes != 0) {
    return fmt::format("the innermost coordinate {} is {} bytes, no multiple of {}", coordinates[0],
                       first_bytes, kChunkBytes);
  }
  if (is_load) return {};
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec.rank); ++i) {
    if (coordinates[i] >= 0) continue;
    return fmt::format("a store at a negative coordinate, {} of dimension {}", coordinates[i], i);
  }
  return {};
}

BoxRows::BoxRows(const TensorMapSpec& spec, std::span<const int> coordinates, bool is_load)
    : spec_(spec), coordinates_(coordinates), num_rows_(num_rows(spec)), pitch_(row_pitch(spec)) {
  assert(coordinates.size() >= static_cast<std::size_t>(spec.rank));
  const int64 first = coordinates[0];
  const int64 begin = std::max<int64>(first, 0);
  const int64 end = std::min<int64>(first + spec.box[0], static_cast<int64>(spec.size[0]));
  const auto bytes = static_cast<uint32>(element_bytes(spec.type));
  if (begin < end) {
    skipped_ = static_cast<uint32>(begin - first) * bytes;
    inside_ = static_cast<uint32>(end - begin) * bytes;
    if (!is_load) inside_ = (inside_ + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
  }
}

bool BoxRows::next(BoxRow& row) {
  if (row_ == num_rows_) return false;
  row = {spec_.address, inside_, skipped_, row_ * pitch_};
  // Wraps for rows far outside, whose address is not used.
  row.global += static_cast<uint64>(int64{coordinates_[0]} * element_bytes(spec_.type)) + skipped_;
  bool carry = true;  // moves index_ to the next row
  for (std::size_t i = 1; i < static_cast<std::size_t>(spec_.rank); ++i) {
    const int64 position = int64{coordinates_[i]} + index_[i];
    if (position < 0 || position >= static_cast<int64>(spec_.size[i])) row.global_bytes = 0;
    row.global += static_cast<uint64>(position) * spec_.stride_bytes[i - 1];
    if (carry) carry = ++index_[i] == spec_.box[i];
    if (carry) index_[i] = 0;
  }
  ++row_;
  return true;
}

void copy_box_to_shared(const TensorMapSpec& spec, std::span<const int> coordinates,
                        unsigned char* window, uint32 smem) {
  const uint32 bytes = row_bytes(spec);
  BoxRows rows(spec, coordinates, true);
  Row data;
  for (BoxRow row; rows.next(row);) {
    if (row.global_bytes < bytes) fill_row(spec.fill, data, bytes);
    if (row.global_bytes > 0) {
      std::memcpy(data.data() + row.skipped, reinterpret_cast<const void*>(row.global),
                  row.global_bytes);
    }
    for (uint32 chunk = 0; chunk < bytes; chunk += kChunkBytes) {
      std::memcpy(window + swizzled(smem + row.offset + chunk, spec.swizzle), data.data() + chunk,
                  kChunkBytes);
    }
  }
}

void copy_box_to_global(const TensorMapSpec& spec, std::span<const int> coordinates,
                        const unsigned char* window, uint32 smem) {
  const uint32 bytes = row_bytes(spec);
  BoxRows rows(spec, coordinates, false);
  Row data;
  for (BoxRow row; rows.next(row);) {
    if (row.global_bytes == 0) continue;
    for (uint32 chunk = 0; chunk < bytes; chunk += kChunkBytes) {
      std::memcpy(data.data() + chunk, window + swizzled(smem + row.offset + chunk, spec.swizzle),
                  kChunkBytes);
    }
    std::memcpy(reinterpret_cast<void*>(row.global), data.data() + row.skipped, row.global_bytes);
  }
}

}  // namespace attune::host
