// Prefills whose linear layers a library multiplies: against references in double, the golden logits and
// themselves.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/linear_layers.h"
#include "tests/runtime/gemma4_model_cases.h"
#include "tests/support/model_run.h"

namespace attune {

// Where the tests look for cuBLASLt: ATTUNE_CUBLASLT, as the program does.
inline GemmSearch test_gemm_search() {
  const char* path = std::getenv("ATTUNE_CUBLASLT");
  return {path == nullptr ? "" : path};
}

// A layer of `shape` whose products are the library's for up to max_tokens tokens.
inline std::unique_ptr<LinearLayers> make_layers(Engine& engine, const Compiler& compiler,
                                                 const LinearShape& shape, int max_tokens,
                                                 LinearPrefill::Warn warn = {}) {
  Device& device = engine.device();
  const auto load = [&](const Source& source) {
    return std::make_shared<const LoadedModule>(
        LoadedModule{nullptr, device.load(compiler.compile(source, device.info().arch))});
  };
  auto layers = std::make_unique<LinearLayers>(engine, std::span(&shape, 1), shape.weights);
  layers->prefill_by(device.open_gemm(test_gemm_search()), load, std::span(&shape, 1), max_tokens,
                     std::move(warn));
  return layers;
}

// What `layers` give for a problem of their shape.
inline std::vector<std::uint16_t> run_layers(Device& device, const LinearLayers& layers,
                                             const LinearProblem& problem) {
  const LinearShape& shape = problem.shape;
  const DeviceArray<std::uint16_t> weights(device, problem.weights);
  const DeviceArray<unsigned char> packed(
      device, problem.packed.bytes.empty() ? std::vector<unsigned char>(16) : problem.packed.bytes);
  const DeviceArray<std::uint16_t> input(device, problem.input);
  const std::size_t used = std::size_t(problem.num_tokens) * shape.out_features;
  const DeviceArray<std::uint16_t> out(device, used + 64, kModelPoison);
  layers.run(shape,
             {.weights = problem.packed.bytes.empty() ? weights.ptr() : packed.ptr(),
              .input = input.ptr(),
              .out = out.ptr(),
              .num_tokens = problem.num_tokens},
             nullptr);
  std::vector<std::uint16_t> values = out.read();
  for (std::size_t i = used; i < values.size(); ++i) EXPECT_EQ(values[i], kModelPoison);
  values.resize(used);
  return values;
}

inline std::vector<std::uint16_t> run_layers(Engine& engine, const Compiler& compiler,
                                             const LinearProblem& problem, int max_tokens) {
  const auto layers = make_layers(engine, compiler, problem.shape, max_tokens);
  return run_layers(engine.device(), *layers, problem);
}

// The products of every kind of layer.
inline void expect_right_prefills(Engine& engine, const Compiler& compiler) {
  unsigned seed = 60;
  for (const LinearShape& shape :
       {LinearShape{72, 136}, LinearShape{40, 96, LinearEpilogue::kGeglu},
        LinearShape{2056, 32, LinearEpilogue::kSwiglu}}) {
    SCOPED_TRACE(::testing::Message() << shape.out_features << "x" << shape.in_features);
    const LinearProblem problem(shape, 37, seed++);
    expect_right(problem, run_layers(engine, compiler, problem, 40));
    if (::testing::Test::HasFailure()) return;
  }
}

// Of packed weights too, each rounded to bf16.
inline void expect_right_packed_prefills(Engine& engine, const Compiler& compiler) {
  unsigned seed = 70;
  for (const LinearShape& shape :
       {LinearShape{72, 264}, LinearShape{24, 512, LinearEpilogue::kGeglu}}) {
    SCOPED_TRACE(::testing::Message() << shape.out_features << "x" << shape.in_features);
    LinearProblem problem(shape, 131, seed++);
    problem.pack();
    const std::vector<std::uint16_t> out = run_layers(engine, compiler, problem, 131);
    for (double& value : problem.packed.values) value = round_to_bf16(value);
    problem.shape.weights = LinearWeights::kBf16;  // how exact the sums are
    expect_right(problem, out);
    if (::testing::Test::HasFailure()) return;
  }
}

// Of 21504 products in a row in the accumulators of tensor cores, which cut where fp32 rounds.
constexpr double kLongSumPrecision = 4e-6;

// Some outputs of layers of 31B's shapes, for several numbers of tokens; the same bits each time.
inline void expect_right_large_prefills(Engine& engine, const Compiler& compiler) {
  for (const LinearShape& shape : {LinearShape{5376, 21504}, LinearShape{18432, 5376}}) {
    for (const int num_tokens : {17, 512}) {
      SCOPED_TRACE(::testing::Message() << shape.out_features << " " << num_tokens);
      const LinearProblem problem(shape, num_tokens, 80);
      const std::vector<std::uint16_t> out = run_layers(engine, compiler, problem, 512);
      EXPECT_EQ(run_layers(engine, compiler, problem, 512), out);
      std::mt19937 random(81);
      for (int i = 0; i < 200; ++i) {
        const int token = static_cast<int>(random() % num_tokens);
        const int row = static_cast<int>(random() % shape.out_features);
        const auto product = problem.product(row, token);
        expect_rounded(out[std::size_t(token) * shape.out_features + row], product.value,
                       kLongSumPrecision * product.magnitude);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// The logits behind prompts that are one chunk and more are as close to the fp32 run as the golden bf16
// run's, and a prompt's are the same bits again.
inline void expect_golden_prefills(Engine& engine) {
  const TinyModel tiny;
  const GoldenLogits golden;
  Gemma4Model model = tiny.on(engine);
  const std::vector<int> ids = golden.ids();
  const std::size_t vocab = tiny.checkpoint.config.vocab_size;
  const oracle::Rows all = golden.logits("logits"), of_bf16 = golden.logits("logits_bf16_compute");
  oracle::Rows given, expected;
  const auto prefill = [&](int length) {
    Gemma4Session session = model.open_session();
    for (int at = 0; at < length;) {
      const int count = std::min(length - at, model.options().attention.max_prefill);
      model.set_tokens(std::span(ids).subspan(at, count), nullptr);
      model.prefill(session, count, nullptr);
      session.commit(count, nullptr);
      at += count;
    }
    return read_logits(model, 1);
  };
  for (const int length : {17, 33, 57}) {  // the last one is two chunks
    const std::vector<float> logits = prefill(length);
    if (length == 17) {
      EXPECT_EQ(prefill(length), logits);
    }
    given.insert(given.end(), logits.begin(), logits.end());
    const auto row = all.begin() + static_cast<std::ptrdiff_t>((length - 1) * vocab);
    expected.insert(expected.end(), row, row + static_cast<std::ptrdiff_t>(vocab));
  }
  const double error = relative_l2(given, expected), bf16_error = relative_l2(of_bf16, all);
  std::printf("logits of prefills: relative L2 %.3g, of the golden bf16 run %.3g\n", error,
              bf16_error);
  EXPECT_LE(error, bf16_error);
}

}  // namespace attune
