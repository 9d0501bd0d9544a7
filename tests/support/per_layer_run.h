// Runs the kernels of per-layer inputs on any device, and what they have to give.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/model_run.h"

namespace attune {

struct PerLayerProblem {
  PerLayerProblem(int columns, int layers, int tokens, unsigned seed)
      : width(columns),
        num_layers(layers),
        num_tokens(tokens),
        projected(random_bf16(std::size_t(tokens) * layers * columns, seed, 7)),
        embedding(random_bf16(std::size_t(kVocabulary) * layers * columns, seed + 1, 0.1)),
        weight(random_bf16(columns, seed + 2)) {
    std::mt19937 random(seed);
    for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<int>(random() % kVocabulary));
    ids.front() = -1;  // counts as 0
  }
  static constexpr int kVocabulary = 7;
  static constexpr float kProjectedScale = 0.051f, kEmbeddingScale = 16, kEps = 1e-6f;

  int width, num_layers, num_tokens;
  std::vector<std::uint16_t> projected, embedding, weight;
  std::vector<int> ids;
};

// In double, rounded where the model's definition rounds.
inline std::vector<std::uint16_t> reference_per_layer_inputs(const PerLayerProblem& problem) {
  std::vector<std::uint16_t> inputs;
  for (int row = 0; row < problem.num_tokens * problem.num_layers; ++row) {
    const int token = row / problem.num_layers, layer = row % problem.num_layers;
    const std::size_t table =
        std::size_t(std::max(problem.ids[token], 0)) * problem.num_layers + layer;
    std::vector<double> values;
    double sum = 0;
    for (int i = 0; i < problem.width; ++i) {
      const double x = value_of_bf16(problem.projected[std::size_t(row) * problem.width + i]);
      values.push_back(round_to_bf16(x * PerLayerProblem::kProjectedScale));
      sum += values.back() * values.back();
    }
    const double scale = 1 / std::sqrt(sum / problem.width + PerLayerProblem::kEps);
    for (int i = 0; i < problem.width; ++i) {
      const double normed = round_to_bf16(values[i] * scale * value_of_bf16(problem.weight[i]));
      const double own = round_to_bf16(PerLayerProblem::kEmbeddingScale *
                                       value_of_bf16(problem.embedding[table * problem.width + i]));
      inputs.push_back(bf16_of(round_to_bf16(normed + own) / std::sqrt(2.0)));
    }
  }
  return inputs;
}

// Inputs and gates of one kernel pair, for rows of `width`.
inline void expect_right_per_layer(Device& device, const Module& module, const Source& source,
                                   int width) {
  constexpr int kLayers = 11, kTokens = 3, kLayer = 9;
  const PerLayerProblem problem(width, kLayers, kTokens, static_cast<unsigned>(width));
  const DeviceArray<std::uint16_t> rows(device, problem.projected);
  const DeviceArray<std::uint16_t> embedding(device, problem.embedding);
  const DeviceArray<std::uint16_t> weight(device, problem.weight);
  const DeviceArray<int> ids(device, std::span<const int>(problem.ids));
  PerLayerParams p{};
  p.projected = p.inputs = rows.get();
  p.weight = weight.get();
  p.tokens = ids.get();
  p.embedding = embedding.get();
  p.projected_scale = PerLayerProblem::kProjectedScale;
  p.embedding_scale = PerLayerProblem::kEmbeddingScale;
  p.num_layers = kLayers;
  p.width = width;
  p.eps = PerLayerProblem::kEps;
  device.launch(device.kernel(module, source.symbols[0], 0),
                plan_per_layer_inputs(kLayers, kTokens), &p, nullptr);
  const std::vector<std::uint16_t> inputs = rows.read();
  expect_close(inputs, reference_per_layer_inputs(problem), 2e-3);

  const std::vector<std::uint16_t> gate = random_bf16(std::size_t(kTokens) * width, 4, 2);
  const DeviceArray<std::uint16_t> gates(device, gate);
  PerLayerGateParams g{};
  g.gate = gates.get();
  g.inputs = rows.get() + kLayer * width;
  g.inputs_stride = std::int64_t{kLayers} * width;
  g.width = width;
  device.launch(device.kernel(module, source.symbols[1], 0), plan_per_layer_gate(kTokens), &g,
                nullptr);
  std::vector<std::uint16_t> expected;
  for (int i = 0; i < kTokens * width; ++i) {
    const int at = (i / width * kLayers + kLayer) * width + i % width;
    const double gelu = reference_gate(LinearEpilogue::kGeglu, value_of_bf16(gate[i]));
    expected.push_back(bf16_of(round_to_bf16(gelu) * value_of_bf16(inputs[at])));
  }
  expect_close(gates.read(), expected, 1e-2);
}

}  // namespace attune
