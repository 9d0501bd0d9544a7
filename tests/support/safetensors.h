// Reads safetensors files of tests: 8 bytes of header length, a JSON header, then the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace attune {

class Safetensors {
 public:
  explicit Safetensors(const std::filesystem::path& path) : path_(path.string()) {
    std::ifstream stream(path, std::ios::binary);
    std::string file{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    std::uint64_t length = 0;
    if (file.size() < sizeof(length)) fail("it has no header");
    std::memcpy(&length, file.data(), sizeof(length));
    if (length > file.size() - sizeof(length)) fail("its header is cut off");
    header_ = nlohmann::json::parse(file.substr(sizeof(length), length));
    data_ = file.substr(sizeof(length) + length);
  }

  bool has(const std::string& name) const { return header_.contains(name); }
  std::vector<std::size_t> shape(const std::string& name) const {
    return entry(name).at("shape").get<std::vector<std::size_t>>();
  }

  // The values of an F32 or BF16 tensor; both widen without loss.
  std::vector<float> floats(const std::string& name) const {
    if (entry(name).at("dtype") == "F32") return values<float>(name, "F32");
    std::vector<float> wide;
    for (const std::uint16_t bits : bf16(name)) {
      const std::uint32_t widened = static_cast<std::uint32_t>(bits) << 16;
      wide.emplace_back();
      std::memcpy(&wide.back(), &widened, sizeof(widened));
    }
    return wide;
  }
  std::vector<std::uint16_t> bf16(const std::string& name) const {
    return values<std::uint16_t>(name, "BF16");
  }
  std::vector<std::int32_t> ints(const std::string& name) const {
    return values<std::int32_t>(name, "I32");
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(path_ + ": " + why);
  }

  const nlohmann::json& entry(const std::string& name) const {
    if (!has(name)) fail("it has no tensor " + name);
    return header_.at(name);
  }

  template <typename Value>
  std::vector<Value> values(const std::string& name, const std::string& dtype) const {
    if (entry(name).at("dtype") != dtype) fail(name + " is not of type " + dtype);
    const auto offsets = entry(name).at("data_offsets").get<std::vector<std::size_t>>();
    std::size_t count = 1;
    for (const std::size_t extent : shape(name)) count *= extent;
    if (offsets.size() != 2 || offsets[1] < offsets[0] || offsets[1] > data_.size() ||
        offsets[1] - offsets[0] != count * sizeof(Value)) {
      fail(name + " has other bytes than its shape");
    }
    std::vector<Value> read(count);
    if (count > 0) std::memcpy(read.data(), data_.data() + offsets[0], count * sizeof(Value));
    return read;
  }

  std::string path_;
  nlohmann::json header_;
  std::string data_;
};

}  // namespace attune
