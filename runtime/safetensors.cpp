#include "runtime/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/error.h"
#include "runtime/json_section.h"

namespace attune {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::string_view kFile = "the safetensors file";
constexpr std::string_view kIndex = "the safetensors index";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  std::size_t bytes;
};

constexpr DtypeRow kDtypes[] = {
    {Dtype::kBool, "BOOL", 1},      {Dtype::kU8, "U8", 1},          {Dtype::kI8, "I8", 1},
    {Dtype::kF8E4M3, "F8_E4M3", 1}, {Dtype::kF8E5M2, "F8_E5M2", 1}, {Dtype::kF8E8M0, "F8_E8M0", 1},
    {Dtype::kI16, "I16", 2},        {Dtype::kU16, "U16", 2},        {Dtype::kF16, "F16", 2},
    {Dtype::kBf16, "BF16", 2},      {Dtype::kI32, "I32", 4},        {Dtype::kU32, "U32", 4},
    {Dtype::kF32, "F32", 4},        {Dtype::kI64, "I64", 8},        {Dtype::kU64, "U64", 8},
    {Dtype::kF64, "F64", 8},        {Dtype::kC64, "C64", 8},
};

const DtypeRow& row_of(Dtype dtype) {
  return *std::find_if(std::begin(kDtypes), std::end(kDtypes),
                       [&](const DtypeRow& row) { return row.dtype == dtype; });
}

[[noreturn]] void fail(std::string_view values, std::string_view rule) {
  throw InvalidArgument(fmt::format("{} cannot be used", kFile), values,
                        fmt::format("{}; fetch the file again", rule));
}

// Names come from the file: quoted, escaped and short.
std::string quoted(const std::string& name) { return shown(json(name)); }

// Shapes and offsets are shown with their numbers, unless these are many.
std::string shown_whole(const json& value) {
  constexpr std::size_t kMaxShown = 60;
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return value.is_array() && text.size() <= kMaxShown ? text : shown(value);
}

// Where a tensor lies, counted from the end of the header.
struct Extent {
  std::uint64_t begin = 0, end = 0;
};

// One entry of a header.
class TensorEntry {
 public:
  TensorEntry(const std::string& name, const json& entry) : name_(name), entry_(entry) {
    if (entry.is_object()) return;
    fail(fmt::format("tensor={} entry={}", quoted(name), shown(entry)), "a tensor is an object");
  }

  Dtype dtype() const {
    const json& value = field("dtype");
    for (const DtypeRow& row : kDtypes) {
      if (value == row.name) return row.dtype;
    }
    refuse("dtype", "dtype is a known element type, such as BF16");
  }

  TensorShape shape() const {
    TensorShape shape;
    for (const std::uint64_t extent : integers("shape")) {
      if (extent > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        refuse("shape", "an extent has 63 bits");
      }
      shape.push_back(static_cast<std::int64_t>(extent));
    }
    return shape;
  }

  // Checked against the size of all data, and against what dtype and shape say.
  Extent extent(std::uint64_t data_bytes, Dtype dtype, const TensorShape& shape) const {
    const std::vector<std::uint64_t> offsets = integers("data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      refuse("data_offsets", "data_offsets are a begin and an end");
    }
    if (offsets[1] > data_bytes) {
      refuse("data_offsets", fmt::format("data_bytes={}, tensors end inside of them", data_bytes));
    }
    std::uint64_t bytes = size_of(dtype);
    for (const std::int64_t extent : shape) {
      const auto factor = static_cast<std::uint64_t>(extent);
      if (factor != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / factor) {
        refuse("shape", "its bytes have 64 bits");
      }
      bytes *= factor;
    }
    if (offsets[1] - offsets[0] != bytes) {
      refuse("data_offsets",
             fmt::format("{} {} takes {} bytes", name_of(dtype), text_of(shape), bytes));
    }
    return {offsets[0], offsets[1]};
  }

 private:
  [[noreturn]] void refuse(const std::string& key, std::string_view rule) const {
    const auto found = entry_.find(key);
    fail(fmt::format("tensor={} {}={}", quoted(name_), key,
                     found == entry_.end() ? "(missing)" : shown_whole(*found)),
         rule);
  }

  const json& field(const std::string& key) const {
    const auto found = entry_.find(key);
    if (found == entry_.end()) refuse(key, "a tensor has dtype, shape and data_offsets");
    return *found;
  }

  std::vector<std::uint64_t> integers(const std::string& key) const {
    const json& array = field(key);
    std::vector<std::uint64_t> values;
    if (!array.is_array()) refuse(key, fmt::format("{} lists integers", key));
    for (const json& value : array) {
      if (!value.is_number_unsigned()) refuse(key, fmt::format("{} lists integers from 0", key));
      values.push_back(value.get<std::uint64_t>());
    }
    return values;
  }

  const std::string& name_;
  const json& entry_;
};

std::string_view header_of(std::span<const std::byte> file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) {
    fail(fmt::format("bytes={}", file.size()), "a file starts with 8 bytes of header length");
  }
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeaderBytes) {
    fail(fmt::format("header_bytes={}", length),
         fmt::format("a header has at most {} bytes", kMaxHeaderBytes));
  }
  if (length > file.size() - sizeof(length)) {
    fail(fmt::format("header_bytes={} bytes={}", length, file.size()), "the header is cut off");
  }
  return {reinterpret_cast<const char*>(file.data()) + sizeof(length), length};
}

TensorView view_of(const std::string& name, const json& entry, std::span<const std::byte> data) {
  const TensorEntry reader(name, entry);
  TensorView view{.dtype = reader.dtype(), .shape = reader.shape(), .bytes = {}};
  const Extent extent = reader.extent(data.size(), view.dtype, view.shape);
  view.bytes = data.subspan(extent.begin, extent.end - extent.begin);
  return view;
}

void check_coverage(const TensorViews& tensors, std::span<const std::byte> data) {
  std::vector<const TensorViews::value_type*> in_order;
  for (const auto& tensor : tensors) in_order.push_back(&tensor);
  const auto place = [](const TensorViews::value_type* tensor) {
    return std::pair(tensor->second.bytes.data(), tensor->second.bytes.size());
  };
  std::sort(in_order.begin(), in_order.end(),
            [&](const auto* a, const auto* b) { return place(a) < place(b); });
  std::size_t covered = 0;
  for (const TensorViews::value_type* tensor : in_order) {
    const auto [address, size] = place(tensor);
    const auto begin = static_cast<std::size_t>(address - data.data());
    if (begin != covered) {
      fail(fmt::format("tensor={} data_offsets=[{}, {}] expected_begin={}", quoted(tensor->first),
                       begin, begin + size, covered),
           "tensors follow each other without gaps and overlaps");
    }
    covered += size;
  }
  if (covered != data.size()) {
    fail(fmt::format("tensors_end={} data_bytes={}", covered, data.size()),
         "the last tensor ends with the file");
  }
}

// Whether a shard's name leads to no other folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\") == std::string::npos;
}

// The shard of each tensor.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
  constexpr std::uintmax_t kMaxIndexBytes = kMaxHeaderBytes;
  const std::string text =
      read_json_file(index, kMaxIndexBytes, kIndex, "name an index or the folder that has it");
  return naming_file(index, [&] {
    const json root = parse_json(text, kIndex, "an index is one JSON object");
    const JsonSection section = JsonSection(root, "", kIndex).section("weight_map");
    std::map<std::string, std::string> shards;
    for (const auto& [name, shard] : section.object().items()) {
      if (!shard.is_string() || !is_plain_name(shard)) {
        section.fail(fmt::format("tensor={} shard={}", quoted(name), shown(shard)),
                     "a shard is a file beside the index");
      }
      shards.emplace(name, shard);
    }
    return shards;
  });
}

[[noreturn]] void fail_index(const std::filesystem::path& index, std::string_view values,
                             std::string_view rule) {
  throw InvalidArgument(fmt::format("{}: {} cannot be used", index.string(), kIndex), values,
                        fmt::format("{}; fetch the whole folder again", rule));
}

}  // namespace

std::string_view name_of(Dtype dtype) { return row_of(dtype).name; }

std::size_t size_of(Dtype dtype) { return row_of(dtype).bytes; }

std::string text_of(const TensorShape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::int64_t num_elements(const TensorShape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

void check_element_bytes(const TensorView& tensor, std::size_t bytes) {
  if (size_of(tensor.dtype) == bytes) return;
  throw InvalidArgument("the tensor has another type",
                        fmt::format("dtype={} element_bytes={}", name_of(tensor.dtype), bytes));
}

TensorViews parse_safetensors(std::span<const std::byte> file) {
  constexpr std::string_view kRule = "a header is a JSON object of tensors; fetch the file again";
  const std::string_view header = header_of(file);
  if (!header.starts_with('{')) {
    fail(fmt::format("header_bytes={}", header.size()), "a header starts with {");
  }
  const json root = parse_json(header, kFile, kRule);
  const auto data = file.subspan(sizeof(std::uint64_t) + header.size());
  TensorViews tensors;
  for (const auto& [name, entry] : root.items()) {
    if (name != "__metadata__") tensors.emplace(name, view_of(name, entry, data));
  }
  check_coverage(tensors, data);
  return tensors;
}

Safetensors::Safetensors(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  if (path.filename().string().ends_with(".index.json")) {
    read_shards(path);
  } else if (!std::filesystem::is_directory(path, error)) {
    read_file(path);
  } else if (std::filesystem::exists(path / kSingleName, error)) {
    read_file(path / kSingleName);
  } else if (std::filesystem::exists(path / kIndexName, error)) {
    read_shards(path / kIndexName);
  } else {
    throw InvalidArgument("the folder has no weights", fmt::format("path={}", path.string()),
                          fmt::format("it needs {} or {}", kSingleName, kIndexName));
  }
}

const TensorView& Safetensors::at(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  throw InvalidArgument("there is no such tensor",
                        fmt::format("path={} tensor={}", path_.string(), name));
}

void Safetensors::read_file(const std::filesystem::path& file) {
  files_.emplace_back(file);
  tensors_ = naming_file(file, [&] { return parse_safetensors(files_.back().bytes()); });
}

void Safetensors::read_shards(const std::filesystem::path& index) {
  const std::map<std::string, std::string> shard_of = read_weight_map(index);
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);
  for (const std::string& shard : shards) {
    const std::filesystem::path file = index.parent_path() / shard;
    std::error_code error;
    if (!std::filesystem::exists(file, error)) {
      fail_index(index, fmt::format("shard={} is missing", quoted(shard)),
                 "every shard is beside it");
    }
    files_.emplace_back(file);
    for (auto& [name, view] :
         naming_file(file, [&] { return parse_safetensors(files_.back().bytes()); })) {
      const auto named = shard_of.find(name);
      if (named == shard_of.end() || named->second != shard) {
        fail_index(index,
                   fmt::format("tensor={} shard={} index_says={}", quoted(name), quoted(shard),
                               named == shard_of.end() ? "(nothing)" : quoted(named->second)),
                   "the index names each tensor's shard");
      }
      tensors_.emplace(name, std::move(view));
    }
  }
  for (const auto& [name, shard] : shard_of) {
    if (tensors_.contains(name)) continue;
    fail_index(index, fmt::format("tensor={} shard={}", quoted(name), quoted(shard)),
               "each tensor is in the shard that the index names");
  }
}

}  // namespace attune
