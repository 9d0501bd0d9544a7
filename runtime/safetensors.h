// Tensors of safetensors files, where they lie in the mapped files.
// Source: the format's description in huggingface/safetensors (Apache-2.0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/mapped_file.h"

namespace attune {

enum class Dtype {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
  kC64
};

std::string_view name_of(Dtype dtype);  // "BF16", as headers spell it
std::size_t size_of(Dtype dtype);       // bytes of an element

using TensorShape = std::vector<std::int64_t>;

std::string text_of(const TensorShape& shape);  // "[320, 64]"
std::int64_t num_elements(const TensorShape& shape);

// A tensor in a file, row-major and little-endian, at any address: files do not align tensors.
struct TensorView {
  Dtype dtype = Dtype::kBf16;
  TensorShape shape;
  std::span<const std::byte> bytes;
};

using TensorViews = std::map<std::string, TensorView, std::less<>>;

// Throws InvalidArgument unless elements have `bytes` bytes.
void check_element_bytes(const TensorView& tensor, std::size_t bytes);

// A copy of a tensor's elements, which are as large as a Value.
template <typename Value>
std::vector<Value> elements(const TensorView& tensor) {
  check_element_bytes(tensor, sizeof(Value));
  std::vector<Value> values(tensor.bytes.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// The tensors of a whole file. Throws InvalidArgument, with the tensor and its offsets, when the
// header breaks a rule of the format: among them that tensors cover the data without gaps and
// overlaps, hence a file that was cut off never passes. Nothing of the data is read.
TensorViews parse_safetensors(std::span<const std::byte> file);

// The tensors of a file or of the shards that an index names. Owns the mapped files; views of them
// are good for as long as it lives, also after it was moved.
class Safetensors {
 public:
  // `path` is a *.safetensors file, a *.index.json, or a folder that has model.safetensors or
  // model.safetensors.index.json, the first one first. Throws InvalidArgument as above with the
  // file in front; and when index and shards disagree, or a shard is not beside its index.
  explicit Safetensors(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const TensorViews& tensors() const { return tensors_; }
  // Throws InvalidArgument where there is no such tensor.
  const TensorView& at(std::string_view name) const;

 private:
  void read_file(const std::filesystem::path& file);
  void read_shards(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  TensorViews tensors_;
};

}  // namespace attune
