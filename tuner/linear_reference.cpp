#include "tuner/linear_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "templates/model_plan.h"
#include "tuner/parallel.h"
#include "tuner/reference.h"

namespace attune {
namespace {

// A sum in fp32 is off by far less than this share of its size; a wrong column is not.
constexpr double kSumTolerance = 1e-3;
// Of a number at most; rounding is off by half of it.
constexpr double kBf16Step = 1.0 / 128;

// Uniform with variance 1, the same on every platform.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : bits_(seed) {}
  float next() {
    constexpr float kRootOf12 = 3.4641016f;
    return (static_cast<float>(below(1 << 20)) / (1 << 20) - 0.5f) * kRootOf12;
  }
  unsigned below(unsigned limit) { return static_cast<unsigned>(bits_() >> 32) % limit; }

 private:
  std::mt19937_64 bits_;
};

std::vector<std::uint16_t> noise_of(std::size_t count, Noise* noise) {
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& one : values) one = float_to_bf16(noise->next());
  return values;
}

// Byte of a packed row's panel that holds a group's column, and the column's first bit in its word.
struct Int4Place {
  int word;  // in bytes
  int bit;
};
Int4Place int4_place(int group, int column) {
  const int chunk = column / 8 + group / 4 * 4;
  return {chunk * 16 + group % 4 * 4, column % 8 / 2 * 4 + column % 2 * 16};
}

std::uint32_t word_at(const std::byte* at) {
  std::uint32_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Columns behind the last one have scale 0, as those that the packing kernel writes.
void pack_panel(int columns, Noise* noise, std::byte* to) {
  for (int group = 0; group < kInt4Groups; ++group) {
    const bool is_there = group * kInt4GroupColumns < columns;
    for (int column = 0; column < kInt4GroupColumns; ++column) {
      const Int4Place place = int4_place(group, column);
      const bool is_column = group * kInt4GroupColumns + column < columns;
      const unsigned number = is_column ? 1 + noise->below(15) : unsigned{kInt4Zero};
      const std::uint32_t word = word_at(to + place.word) | number << place.bit;
      std::memcpy(to + place.word, &word, sizeof word);
    }
    const std::uint16_t scale = float_to_bf16(is_there ? 0.1f + 0.1f * std::abs(noise->next()) : 0);
    std::memcpy(to + kInt4ScalesOffset + group * kBytesPerElement, &scale, sizeof scale);
  }
}

// Row `row` as numbers.
std::vector<double> row_values(const LinearInputs& inputs, int row) {
  const int columns = inputs.problem.linear.in_features;
  std::vector<double> values(static_cast<std::size_t>(columns));
  for (int i = 0; i < columns; ++i) {
    auto& value = values[static_cast<std::size_t>(i)];
    if (inputs.packed.empty()) {
      value = bf16_to_float(inputs.rows[std::size_t{1} * row * columns + i]);
      continue;
    }
    const int group = i % kInt4Columns / kInt4GroupColumns;
    const Int4Place place = int4_place(group, i % kInt4GroupColumns);
    const std::byte* panel =
        &inputs
             .packed[(std::size_t{1} * (i / kInt4Columns) * inputs.num_rows + row) * kInt4RowBytes];
    const auto number = static_cast<int>(word_at(panel + place.word) >> place.bit & 15);
    std::uint16_t scale = 0;
    std::memcpy(&scale, panel + kInt4ScalesOffset + group * kBytesPerElement, sizeof scale);
    value = double{bf16_to_float(scale)} * (number - kInt4Zero);
  }
  return values;
}

double round_bf16(double value) { return bf16_to_float(float_to_bf16(static_cast<float>(value))); }

double activated(LinearEpilogue epilogue, double gate) {
  if (epilogue == LinearEpilogue::kSwiglu) return gate / (1 + std::exp(-gate));
  constexpr double kSqrt2OverPi = 0.79788456080286535588;
  return gate / 2 * (1 + std::tanh(kSqrt2OverPi * (gate + 0.044715 * gate * gate * gate)));
}

}  // namespace

LinearInputs linear_inputs(const Problem& problem, std::uint64_t seed) {
  const LinearShape& shape = problem.linear;
  Noise noise(seed);
  LinearInputs inputs;
  inputs.problem = problem;
  const bool is_alike = shape.is_experts() && shape.weight_rows() % kLinearPeriod == 0;
  inputs.num_rows = std::min(shape.all_weight_rows(), is_alike ? kOtherPeriod : kLinearPeriod);
  inputs.num_inputs = shape.has_input_per_expert() ? kInputPeriod : problem.linear_tokens;
  inputs.input = noise_of(std::size_t{1} * inputs.num_inputs * shape.in_features, &noise);
  if (shape.weights == LinearWeights::kBf16) {
    inputs.rows = noise_of(std::size_t{1} * inputs.num_rows * shape.in_features, &noise);
    // Sums of about 1, where an activation bends.
    const float scale = 2.0f / std::sqrt(static_cast<float>(shape.in_features));
    for (std::uint16_t& one : inputs.rows) one = float_to_bf16(bf16_to_float(one) * scale);
    return inputs;
  }
  const int panels = linear_panels(shape.weights, shape.in_features);
  inputs.packed.resize(std::size_t{1} * panels * inputs.num_rows * kInt4RowBytes);
  for (int panel = 0; panel < panels; ++panel) {
    for (int row = 0; row < inputs.num_rows; ++row) {
      pack_panel(shape.in_features - panel * kInt4Columns, &noise,
                 &inputs.packed[(std::size_t{1} * panel * inputs.num_rows + row) * kInt4RowBytes]);
    }
  }
  // The numbers have deviation 4 and the scales are about 0.2.
  const float scale = 2.0f / std::sqrt(static_cast<float>(shape.in_features));
  for (std::uint16_t& one : inputs.input) one = float_to_bf16(bf16_to_float(one) * scale);
  return inputs;
}

void fill_weights(const LinearInputs& inputs, std::size_t begin, std::vector<std::byte>* to) {
  const LinearShape& shape = inputs.problem.linear;
  const bool is_packed = !inputs.packed.empty();
  const std::size_t row_bytes =
      is_packed ? kInt4RowBytes : std::size_t{kBytesPerElement} * shape.in_features;
  const std::byte* const from =
      is_packed ? inputs.packed.data() : reinterpret_cast<const std::byte*>(inputs.rows.data());
  const auto weight_rows = static_cast<std::size_t>(shape.all_weight_rows());
  const auto num_rows = static_cast<std::size_t>(inputs.num_rows);
  for (std::size_t done = 0; done < to->size();) {
    const std::size_t at = begin + done;
    const std::size_t row = at / row_bytes, in_row = at % row_bytes;
    const std::size_t panel = row / weight_rows;
    const std::size_t source = panel * num_rows + row % weight_rows % num_rows;
    const std::size_t count = std::min(row_bytes - in_row, to->size() - done);
    std::memcpy(to->data() + done, from + source * row_bytes + in_row, count);
    done += count;
  }
}

LinearReference::LinearReference(const LinearInputs& inputs, int num_threads)
    : shape_(inputs.problem.linear),
      num_rows_(inputs.num_rows),
      num_inputs_(inputs.num_inputs),
      sums_(std::size_t{1} * inputs.num_inputs * inputs.num_rows) {
  const int columns = shape_.in_features;
  std::vector<double> input(inputs.input.size());
  std::transform(inputs.input.begin(), inputs.input.end(), input.begin(), bf16_to_float);
  parallel_for(static_cast<std::size_t>(num_rows_), num_threads, [&](std::size_t row) {
    const std::vector<double> weights = row_values(inputs, static_cast<int>(row));
    for (int idx = 0; idx < num_inputs_; ++idx) {
      const double* const x = &input[std::size_t{1} * idx * columns];
      double value = 0, squares = 0;
      for (int i = 0; i < columns; ++i) {
        const double product = weights[static_cast<std::size_t>(i)] * x[i];
        value += product;
        squares += product * product;
      }
      sums_[std::size_t{1} * idx * num_rows_ + row] = {value, std::sqrt(squares)};
    }
  });
}

const LinearReference::Sum& LinearReference::sum(int input, int row) const {
  return sums_[std::size_t{1} * (input % num_inputs_) * num_rows_ + row % num_rows_];
}

LinearOutput LinearReference::output(int input, int output, float softcap, int expert) const {
  const int row = expert * shape_.weight_rows() + output;
  const Sum& first = sum(input, row);
  if (shape_.epilogue == LinearEpilogue::kLogits) {
    const double value = softcap > 0 ? softcap * std::tanh(first.value / softcap) : first.value;
    return {value, kSumTolerance * first.size};
  }
  if (shape_.epilogue == LinearEpilogue::kStore) {
    return {first.value, kBf16Step / 2 * std::abs(first.value) + kSumTolerance * first.size};
  }
  // The gate, its activation and the other factor are rounded on the way; where a sum in fp32 is
  // rounded to the other side, one of them differs by a step.
  const Sum& second = sum(input, row + shape_.out_features);
  const double gate = round_bf16(first.value), up = round_bf16(second.value);
  const double bent = round_bf16(activated(shape_.epilogue, gate));
  return {bent * up,
          3 * kBf16Step * std::abs(gate * up) +
              2 * kSumTolerance * (first.size * std::abs(up) + second.size * std::abs(gate))};
}

}  // namespace attune
