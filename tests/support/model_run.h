// Runs the kernels of a model beside its attention on any device, and what they have to give.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "jit/compiler.h"
#include "jit/linear.h"
#include "jit/model_source.h"
#include "templates/model_plan.h"
#include "tests/support/prologue_reference.h"

namespace attune {

inline constexpr std::uint16_t kModelPoison = 0x7fc1;  // a NaN

template <typename T>
class DeviceArray {
 public:
  DeviceArray(Device& device, std::span<const T> values)
      : device_(device), memory_(device.allocate(values.size_bytes())), size_(values.size()) {
    device.copy_to_device(ptr(), std::as_bytes(values), nullptr);
  }
  DeviceArray(Device& device, std::size_t size, T value)
      : DeviceArray(device, std::vector<T>(size, value)) {}

  DevicePtr ptr() const { return memory_.ptr(); }
  T* get() const { return reinterpret_cast<T*>(memory_.ptr()); }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    device_.copy_to_host(std::as_writable_bytes(std::span(values)), ptr(), nullptr);
    return values;
  }

 private:
  Device& device_;
  DeviceMem memory_;
  std::size_t size_;
};

inline std::vector<std::uint16_t> random_bf16(std::size_t size, unsigned seed, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<std::uint16_t> values(size);
  for (std::uint16_t& value : values) value = bf16_of(normal(random));
  return values;
}

// The numbers that packed rows stand for, quantized as quantize.cuh says; rows of bf16 cannot hold
// them.
struct PackedRows {
  std::vector<double> values;  // [rows, in_features]
  std::vector<unsigned char> bytes;
};
inline PackedRows reference_int4(const std::vector<std::uint16_t>& rows, int num_rows,
                                 int in_features) {
  PackedRows packed;
  packed.values.resize(rows.size());
  packed.bytes.resize(static_cast<std::size_t>(int4_bytes(num_rows, in_features)));
  for (int row = 0; row < num_rows; ++row) {
    for (int panel = 0; panel < linear_panels(LinearWeights::kInt4, in_features); ++panel) {
      unsigned char* const to =
          packed.bytes.data() + (std::size_t(panel) * num_rows + row) * kInt4RowBytes;
      for (int group = 0; group < kInt4Groups; ++group) {
        const int first = panel * kInt4Columns + group * kInt4GroupColumns;
        const auto value = [&](int i) {
          return first + i < in_features
                     ? value_of_bf16(rows[std::size_t(row) * in_features + first + i])
                     : 0.0;
        };
        float most = 0;
        for (int i = 0; i < kInt4GroupColumns; ++i) {
          most = std::max(most, static_cast<float>(std::abs(value(i))));
        }
        const std::uint16_t scale = bf16_of(most / 7.0f);
        std::memcpy(to + kInt4ScalesOffset + 2 * group, &scale, 2);
        const auto step = static_cast<float>(value_of_bf16(scale));
        for (int i = 0; i < kInt4GroupColumns; ++i) {
          const float steps = step > 0 ? static_cast<float>(value(i)) / step : 0;
          const int number = static_cast<int>(std::nearbyint(std::clamp(steps, -7.0f, 7.0f)));
          if (first + i < in_features) {
            packed.values[std::size_t(row) * in_features + first + i] = number * double(step);
          }
          const int lane = i / 8, column = i % 8;
          const int bit = column / 2 * 4 + column % 2 * 16;
          to[(lane + group / 4 * 4) * 16 + group % 4 * 4 + bit / 8] |=
              static_cast<unsigned char>((number + kInt4Zero) << bit % 8);
        }
      }
    }
  }
  return packed;
}

// W and x of a layer, and its outputs in double.
struct LinearProblem {
  LinearProblem(const LinearShape& of, int tokens, unsigned seed)
      : shape(of),
        num_tokens(tokens),
        weights(random_bf16(std::size_t(of.weight_rows()) * of.in_features, seed, 0.1)),
        input(random_bf16(std::size_t(tokens) * of.in_features, seed + 1)) {}

  // A row of W times a token's x, and the sum of the products' magnitudes.
  struct Product {
    double value = 0, magnitude = 0;
  };
  Product product(int row, int token) const {
    Product sum;
    for (int i = 0; i < shape.in_features; ++i) {
      const std::size_t at = std::size_t(row) * shape.in_features + i;
      const double weight = packed.values.empty() ? value_of_bf16(weights[at]) : packed.values[at];
      const double term = weight * value_of_bf16(input[std::size_t(token) * shape.in_features + i]);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  }

  // From now on W is made of 4-bit numbers.
  void pack() {
    packed = reference_int4(weights, shape.weight_rows(), shape.in_features);
    shape.weights = LinearWeights::kInt4;
  }

  LinearShape shape;
  int num_tokens;
  std::vector<std::uint16_t> weights, input;
  PackedRows packed;
};

inline double reference_gate(LinearEpilogue epilogue, double z) {
  if (epilogue == LinearEpilogue::kSwiglu) return z / (1 + std::exp(-z));
  return 0.5 * z * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
}

// A kernel compiled and loaded for a device.
struct LoadedLinear {
  LoadedLinear(Device& on, const Compiler& compiler, const KernelConfig& config,
               LinearEpilogue epilogue, LinearWeights weights = LinearWeights::kBf16)
      : source(linear_source(config, epilogue, weights)),
        module(on.load(compiler.compile(source, on.info().arch))) {
    linear.config = config;
    linear.kernel = on.kernel(module, source.symbols.front(), linear_smem_bytes(config, weights));
  }
  const LinearKernel& of(const LinearShape& shape, int num_sms) {
    linear.shape = shape;
    linear.plan = plan_linear(shape, linear.config, num_sms);
    return linear;
  }
  Source source;
  Module module;
  LinearKernel linear;
};

// What fp32 sums may be off by, as a share of the magnitudes; packed rows go through sums that are
// 136 times as large.
inline constexpr double kLinearPrecision = 1e-6;
inline constexpr double kInt4Precision = 3e-5;

// Outputs as raw words: bf16 or float, poison behind the last token included.
template <typename Word>
std::vector<Word> run_linear(Device& device, const LinearKernel& linear,
                             const LinearProblem& problem, float softcap = 0) {
  const Word poison = static_cast<Word>(kModelPoison);
  const DeviceArray<std::uint16_t> weights(device, problem.weights);
  const DeviceArray<unsigned char> packed(
      device, problem.packed.bytes.empty() ? std::vector<unsigned char>(16) : problem.packed.bytes);
  const DeviceArray<std::uint16_t> input(device, problem.input);
  const std::size_t used = std::size_t(problem.num_tokens) * problem.shape.out_features;
  const DeviceArray<Word> out(device, used + 64, poison);
  launch_linear(device, linear,
                {.weights = problem.packed.bytes.empty() ? weights.ptr() : packed.ptr(),
                 .input = input.ptr(),
                 .out = out.ptr(),
                 .num_tokens = problem.num_tokens,
                 .softcap = softcap},
                nullptr);
  std::vector<Word> words = out.read();
  for (std::size_t i = used; i < words.size(); ++i) EXPECT_EQ(words[i], poison) << "behind the end";
  words.resize(used);
  return words;
}

// bf16(value), or its neighbour where fp32 sums leave the rounding open.
inline void expect_rounded(std::uint16_t bits, double value, double tolerance) {
  if (bits == bf16_of(value)) return;
  EXPECT_LE(std::abs(value_of_bf16(bits) - value), half_ulp_of_bf16(value) + tolerance);
}

inline void expect_right(const LinearProblem& problem, const std::vector<std::uint16_t>& out) {
  const LinearShape& shape = problem.shape;
  const double precision =
      shape.weights == LinearWeights::kInt4 ? kInt4Precision : kLinearPrecision;
  for (int token = 0; token < problem.num_tokens; ++token) {
    for (int row = 0; row < shape.out_features; ++row) {
      SCOPED_TRACE("token " + std::to_string(token) + " output " + std::to_string(row));
      const std::uint16_t bits = out[std::size_t(token) * shape.out_features + row];
      const auto first = problem.product(row, token);
      if (shape.epilogue == LinearEpilogue::kStore) {
        expect_rounded(bits, first.value, precision * first.magnitude);
      } else {
        const auto up = problem.product(shape.out_features + row, token);
        const double gate = reference_gate(shape.epilogue, first.value);
        // Three roundings to bf16, of gate, gelu and up, before that of the product. A gate's slope
        // is at most 1.13.
        const double roundings = 4 * half_ulp_of_bf16(gate * up.value) +
                                 0x1p-8 * std::abs(up.value) * (std::abs(first.value) + 0.1);
        const double sums = precision * (std::abs(gate) * up.magnitude +
                                         1.13 * first.magnitude * std::abs(up.value));
        EXPECT_NEAR(value_of_bf16(bits), gate * up.value, roundings + sums);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// fp32, with a softcap and without, of a kernel with LinearEpilogue::kLogits.
inline void expect_right_logits(Device& device, LoadedLinear* loaded) {
  const LinearShape shape{.out_features = 100,
                          .in_features = 64,
                          .epilogue = LinearEpilogue::kLogits,
                          .weights = LinearWeights::kBf16};
  LinearProblem problem(shape, 3, 9);
  for (std::uint16_t& x : problem.input) x = bf16_of(20 * value_of_bf16(x));
  for (const float softcap : {0.0f, 30.0f}) {
    const auto words = run_linear<std::uint32_t>(device, loaded->of(shape, 4), problem, softcap);
    for (int token = 0; token < 3; ++token) {
      for (int row = 0; row < shape.out_features; ++row) {
        const auto product = problem.product(row, token);
        const double expected =
            softcap > 0 ? softcap * std::tanh(product.value / softcap) : product.value;
        EXPECT_NEAR(std::bit_cast<float>(words[token * shape.out_features + row]), expected,
                    kLinearPrecision * product.magnitude + 2e-5);
      }
    }
  }
}

// Numbers, scales and places of packed rows, of a last panel that is not whole and of groups of zeros.
inline void expect_right_quantize(Device& device, const Kernel& kernel) {
  constexpr int kRows = 37, kColumns = 1304;
  std::vector<std::uint16_t> rows = random_bf16(std::size_t{kRows} * kColumns, 6, 3);
  std::fill(rows.begin() + kColumns, rows.begin() + kColumns + 200, std::uint16_t{0});
  const PackedRows expected = reference_int4(rows, kRows, kColumns);
  const DeviceArray<std::uint16_t> from(device, rows);
  const DeviceArray<unsigned char> to(device, expected.bytes.size() + 64, 0xa5);
  quantize_int4(device, kernel, from.ptr(), kRows, kColumns, to.ptr(), nullptr);
  std::vector<unsigned char> bytes = to.read();
  for (std::size_t i = expected.bytes.size(); i < bytes.size(); ++i) EXPECT_EQ(bytes[i], 0xa5);
  bytes.resize(expected.bytes.size());
  EXPECT_TRUE(bytes == expected.bytes);
}

// A step of the residual stream.
struct ResidualProblem {
  ResidualProblem(int columns, int tokens, unsigned seed)
      : hidden(columns),
        num_tokens(tokens),
        branch(random_bf16(std::size_t(tokens) * columns, seed, 5)),
        stream(random_bf16(std::size_t(tokens) * columns, seed + 1, 20)),
        post_weight(random_bf16(columns, seed + 2)),
        next_weight(random_bf16(columns, seed + 3)),
        embedding(random_bf16(std::size_t(kVocabulary) * columns, seed + 4)) {
    std::mt19937 random(seed);
    for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<int>(random() % kVocabulary));
  }
  static constexpr int kVocabulary = 11;
  static constexpr double kEps = 1e-6;

  int hidden, num_tokens;
  std::vector<std::uint16_t> branch, stream, post_weight, next_weight, embedding;
  std::vector<int> ids;
  std::uint16_t scalar = 0;   // bf16; 0: none
  float embedding_scale = 0;  // 0: no embedding
  bool taps = false;
  bool has_out = true;
};

struct ResidualOutputs {
  std::vector<std::uint16_t> stream, out, tap;
  friend bool operator==(const ResidualOutputs&, const ResidualOutputs&) = default;
};

inline double round_to_bf16(double x) { return value_of_bf16(bf16_of(x)); }

// In double, rounded where the model's definition rounds.
inline ResidualOutputs reference_residual(const ResidualProblem& problem) {
  ResidualOutputs outputs;
  const auto inverse_rms = [&](const std::vector<double>& row) {
    double sum = 0;
    for (const double x : row) sum += x * x;
    return 1 / std::sqrt(sum / problem.hidden + ResidualProblem::kEps);
  };
  for (int token = 0; token < problem.num_tokens; ++token) {
    std::vector<double> branch, h;
    for (int i = 0; i < problem.hidden; ++i) {
      const std::size_t at = std::size_t(token) * problem.hidden + i;
      branch.push_back(value_of_bf16(problem.branch[at]));
      const std::size_t row = std::size_t(problem.ids[token]) * problem.hidden + i;
      h.push_back(
          problem.embedding_scale > 0
              ? round_to_bf16(value_of_bf16(problem.embedding[row]) * problem.embedding_scale)
              : value_of_bf16(problem.stream[at]));
    }
    const double branch_scale = inverse_rms(branch);
    for (int i = 0; i < problem.hidden && problem.embedding_scale == 0; ++i) {
      const double weight = value_of_bf16(problem.post_weight[i]);
      h[i] = round_to_bf16(h[i] + round_to_bf16(branch[i] * branch_scale * weight));
      if (problem.scalar != 0) h[i] = round_to_bf16(h[i] * value_of_bf16(problem.scalar));
    }
    const double scale = inverse_rms(h);
    for (int i = 0; i < problem.hidden; ++i) {
      outputs.stream.push_back(bf16_of(h[i]));
      outputs.out.push_back(bf16_of(h[i] * scale * value_of_bf16(problem.next_weight[i])));
    }
  }
  if (problem.taps) outputs.tap = outputs.stream;
  return outputs;
}

// `kernel` is the embedding's or the residual one, as the problem says.
inline ResidualOutputs run_residual(Device& device, const Kernel& kernel,
                                    const ResidualProblem& problem) {
  const DeviceArray<std::uint16_t> branch(device, problem.branch);
  const DeviceArray<std::uint16_t> stream(device, problem.stream);
  const DeviceArray<std::uint16_t> post_weight(device, problem.post_weight);
  const DeviceArray<std::uint16_t> next_weight(device, problem.next_weight);
  const DeviceArray<std::uint16_t> embedding(device, problem.embedding);
  const DeviceArray<std::uint16_t> scalar(device, 1, problem.scalar);
  const DeviceArray<int> ids(device, problem.ids);
  const std::size_t size = problem.stream.size();
  const std::int64_t tap_stride = problem.hidden + 8;
  const DeviceArray<std::uint16_t> out(device, size, kModelPoison);
  const DeviceArray<std::uint16_t> tap(device, problem.num_tokens * tap_stride, kModelPoison);
  const bool embeds = problem.embedding_scale > 0;
  ResidualParams p{};
  p.branch = embeds ? nullptr : branch.get();
  p.post_weight = embeds ? nullptr : post_weight.get();
  p.scalar = problem.scalar != 0 ? scalar.get() : nullptr;
  p.next_weight = next_weight.get();
  p.from = stream.get();
  p.stream = stream.get();
  p.out = problem.has_out ? out.get() : nullptr;
  p.from_stride = p.out_stride = problem.hidden;
  p.tap = problem.taps ? tap.get() : nullptr;
  p.tap_stride = tap_stride;
  p.tokens = ids.get();
  p.embedding = embedding.get();
  p.embedding_scale = problem.embedding_scale;
  p.hidden = problem.hidden;
  p.eps = static_cast<float>(ResidualProblem::kEps);
  device.launch(kernel, plan_residual(problem.hidden, problem.num_tokens), &p, nullptr);
  ResidualOutputs outputs{stream.read(), out.read(), {}};
  const std::vector<std::uint16_t> tapped = tap.read();
  for (int token = 0; token < problem.num_tokens; ++token) {
    const auto row = tapped.begin() + token * tap_stride;
    if (problem.taps) outputs.tap.insert(outputs.tap.end(), row, row + problem.hidden);
    for (int i = problem.taps ? problem.hidden : 0; i < tap_stride; ++i) {
      EXPECT_EQ(row[i], kModelPoison) << "beside the tap of token " << token;
    }
  }
  return outputs;
}

// Elements that are not the reference's, which no more than `most` may be; a first rounding that
// goes the other way shows in what follows, so they are a few units away at most.
inline void expect_close(const std::vector<std::uint16_t>& bits,
                         const std::vector<std::uint16_t>& expected, double most) {
  ASSERT_EQ(bits.size(), expected.size());
  int num_others = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    num_others += bits[i] != expected[i];
    const double value = value_of_bf16(expected[i]);
    ASSERT_NEAR(value_of_bf16(bits[i]), value, 4 * half_ulp_of_bf16(value) + 0.06) << i;
  }
  EXPECT_LE(num_others, most * static_cast<double>(bits.size()));
}

// What every device has to give for rows of one kernel.
inline void expect_right_residuals(Device& device, const Module& module, const Source& source,
                                   int hidden) {
  // fp32 sums leave the rounding of so many elements open; seen are 2e-4.
  constexpr double kMostOthers = 2e-3;
  const Kernel step = device.kernel(module, source.symbols[0], 0);
  const Kernel embed = device.kernel(module, source.symbols[1], 0);
  ResidualProblem problem(hidden, 5, static_cast<unsigned>(hidden));
  const auto expect_right = [&](const Kernel& kernel) {
    const ResidualOutputs outputs = run_residual(device, kernel, problem);
    const ResidualOutputs expected = reference_residual(problem);
    expect_close(outputs.stream, expected.stream, kMostOthers);
    if (problem.has_out) {
      expect_close(outputs.out, expected.out, kMostOthers);
    } else {
      EXPECT_EQ(outputs.out, std::vector(outputs.out.size(), kModelPoison));
    }
    EXPECT_EQ(outputs.tap, problem.taps ? outputs.stream : outputs.tap);
  };
  expect_right(step);
  problem.scalar = bf16_of(0.37);
  problem.taps = true;
  expect_right(step);
  problem.has_out = false;
  expect_right(step);
  problem.has_out = true;
  problem.embedding_scale = 73.5f;
  expect_right(embed);
}

// The first largest value of each row, with ties, infinities and NaN.
inline void expect_right_argmax(Device& device, const Kernel& kernel) {
  constexpr int kColumns = 5000;
  constexpr int kStride = kColumns + 3;
  constexpr int kRows = 7;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> logits(kRows * kStride, kInfinity);
  std::vector<int> expected;
  for (int row = 0; row < kRows; ++row) {
    float* const at = logits.data() + row * kStride;
    for (int i = 0; i < kColumns; ++i) at[i] = row == 4 ? -kInfinity : normal(random);
    expected.push_back(static_cast<int>(std::max_element(at, at + kColumns) - at));
  }
  const auto put = [&](int row, int column, float value, bool wins) {
    logits[row * kStride + column] = value;
    if (wins) expected[row] = column;
  };
  put(1, 4999, 100, false);
  put(1, 1030, 100, true);
  put(1, 2054, 100, false);
  put(2, 0, std::numeric_limits<float>::quiet_NaN(), false);
  put(2, 4999, 7, true);
  put(3, 17, kInfinity, true);
  put(3, 18, kInfinity, false);
  put(5, 31, -0.0f, false);
  std::fill_n(logits.begin() + 6 * kStride, kColumns, std::numeric_limits<float>::quiet_NaN());
  expected[6] = -1;
  const DeviceArray<float> values(device, std::span<const float>(logits));
  const DeviceArray<int> out(device, kRows + 1, -7);
  ArgmaxParams p{values.get(), kStride, kColumns, nullptr, out.get()};
  device.launch(kernel, plan_argmax(kRows), &p, nullptr);
  expected.push_back(-7);
  EXPECT_EQ(out.read(), expected);

  std::vector<int> map(kColumns);
  for (int i = 0; i < kColumns; ++i) map[i] = 3 * i + 1;
  const DeviceArray<int> mapped(device, std::span<const int>(map));
  p.map = mapped.get();
  device.launch(kernel, plan_argmax(kRows), &p, nullptr);
  for (int row = 0; row < 6; ++row) expected[row] = map[expected[row]];  // and NaN stays -1
  EXPECT_EQ(out.read(), expected);
}

}  // namespace attune
