// Checkpoints that a test makes: tensors in memory, and safetensors files of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "runtime/safetensors.h"
#include "runtime/weights.h"
#include "tuner/reference.h"

namespace attune {

struct MadeTensor {
  Dtype dtype = Dtype::kBf16;
  TensorShape shape;
  std::string bytes;

  template <typename Value>
  static MadeTensor of(Dtype dtype, TensorShape shape, const std::vector<Value>& values) {
    MadeTensor tensor{dtype, std::move(shape), std::string(values.size() * sizeof(Value), '\0')};
    if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    return tensor;
  }
  static MadeTensor bf16(TensorShape shape, const std::vector<float>& values) {
    std::vector<std::uint16_t> bits;
    for (const float value : values) bits.push_back(float_to_bf16(value));
    return of(Dtype::kBf16, std::move(shape), bits);
  }
  // Zeros; for tests that only shapes matter to.
  static MadeTensor zeros(Dtype dtype, const TensorShape& shape) {
    const auto bytes = static_cast<std::size_t>(num_elements(shape)) * size_of(dtype);
    return {dtype, shape, std::string(bytes, '\0')};
  }
};

using MadeTensors = std::map<std::string, MadeTensor>;

// Good for as long as `tensors` stays as it is.
inline TensorViews views_of(const MadeTensors& tensors) {
  TensorViews views;
  for (const auto& [name, tensor] : tensors) {
    views[name] = {tensor.dtype, tensor.shape, std::as_bytes(std::span(tensor.bytes))};
  }
  return views;
}

// The bytes of a safetensors file; the header is padded with `padding` spaces.
inline std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + data;
}

inline std::string safetensors_of(const MadeTensors& tensors) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    data += tensor.bytes;
    header[name] = {{"dtype", name_of(tensor.dtype)},
                    {"shape", tensor.shape},
                    {"data_offsets", {begin, data.size()}}};
  }
  return file_of(header.dump(), data);
}

// Normal numbers, matrices over the square root of what they sum up; norms and scales around 1.
inline MadeTensor random_tensor(const WeightSpec& spec, std::mt19937* random) {
  std::normal_distribution<float> normal;
  const bool is_vector = spec.shape.size() == 1;
  const float spread = is_vector ? 0.2f : 1 / std::sqrt(static_cast<float>(spec.shape.back()));
  std::vector<float> values(static_cast<std::size_t>(num_elements(spec.shape)));
  for (float& value : values) value = (is_vector ? 1.0f : 0.0f) + spread * normal(*random);
  return MadeTensor::bf16(spec.shape, values);
}

// Draft tokens are spread over the target's vocabulary.
inline MadeTensors random_tensors(const std::vector<WeightSpec>& specs, unsigned seed,
                                  std::int64_t target_vocab_size = 0) {
  std::mt19937 random(seed);
  MadeTensors tensors;
  for (const WeightSpec& spec : specs) {
    if (spec.dtype == Dtype::kBf16) {
      tensors[spec.name] = random_tensor(spec, &random);
      continue;
    }
    std::vector<std::int64_t> offsets;
    for (std::int64_t draft = 0; draft < spec.shape[0]; ++draft) {
      offsets.push_back(draft * (target_vocab_size / spec.shape[0] - 1));
    }
    tensors[spec.name] = MadeTensor::of(spec.dtype, spec.shape, offsets);
  }
  return tensors;
}

}  // namespace attune
