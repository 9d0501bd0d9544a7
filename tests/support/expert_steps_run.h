// Runs the steps of the residual stream around experts on any device, and what they have to give.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "templates/expert_plan.h"
#include "tests/support/model_run.h"

namespace attune {

struct ExpertStepsProblem : ResidualProblem {
  static constexpr int kEntries = 5, kTopK = 3;
  ExpertStepsProblem(int columns, int tokens)
      : ResidualProblem(columns, tokens, static_cast<unsigned>(columns + 1)),
        first_weight(random_bf16(columns, 50)),
        second_weight(random_bf16(columns, 51)),
        rows(random_bf16(std::size_t{kEntries} * tokens * columns, 52, 3)) {
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    for (int token = 0; token < tokens; ++token) {
      std::vector<int> order(kEntries);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      entries.insert(entries.end(), order.begin(), order.begin() + kTopK);
      for (int k = 0; k < kTopK; ++k) weights.push_back(normal(random));
    }
  }

  // The branch that the mixing step adds, before its own norm.
  std::vector<std::uint16_t> mixed_branch() const {
    std::vector<std::uint16_t> mixed;
    for (int token = 0; token < num_tokens; ++token) {
      std::vector<double> dense, sum(std::size_t(hidden), 0.0);
      for (int i = 0; i < hidden; ++i) {
        dense.push_back(value_of_bf16(branch[std::size_t(token) * hidden + i]));
        for (int k = 0; k < kTopK; ++k) {
          const int entry = entries[token * kTopK + k];
          sum[i] += weights[token * kTopK + k] *
                    value_of_bf16(rows[(std::size_t(entry) * num_tokens + token) * hidden + i]);
        }
        sum[i] = round_to_bf16(sum[i]);
      }
      const auto norm = [&](std::vector<double>& row, const std::vector<std::uint16_t>& by) {
        double squares = 0;
        for (const double x : row) squares += x * x;
        const double scale = 1 / std::sqrt(squares / hidden + kEps);
        for (int i = 0; i < hidden; ++i)
          row[i] = round_to_bf16(row[i] * scale * value_of_bf16(by[i]));
      };
      norm(dense, first_weight);
      norm(sum, second_weight);
      for (int i = 0; i < hidden; ++i) mixed.push_back(bf16_of(dense[i] + sum[i]));
    }
    return mixed;
  }

  std::vector<std::uint16_t> first_weight, second_weight, rows;
  std::vector<int> entries;
  std::vector<float> weights;
};

// Both steps, for rows of `hidden` elements.
inline void expect_right_expert_steps(Device& device, const Module& module, const Source& source,
                                      int hidden) {
  // More roundings than a plain step has, each of which may go the other way.
  constexpr double kMostOthers = 2e-2;
  const ExpertStepsProblem problem(hidden, 4);
  const DeviceArray<std::uint16_t> branch(device, problem.branch);
  const DeviceArray<std::uint16_t> post_weight(device, problem.post_weight);
  const DeviceArray<std::uint16_t> next_weight(device, problem.next_weight);
  const DeviceArray<std::uint16_t> first_weight(device, problem.first_weight);
  const DeviceArray<std::uint16_t> second_weight(device, problem.second_weight);
  const DeviceArray<std::uint16_t> rows(device, problem.rows);
  const DeviceArray<std::uint16_t> scalar(device, 1, bf16_of(0.37));
  const DeviceArray<int> entries(device, std::span<const int>(problem.entries));
  const DeviceArray<float> weights(device, std::span<const float>(problem.weights));
  const std::size_t size = problem.stream.size();
  const auto params_of = [&](const DeviceArray<std::uint16_t>& stream,
                             const DeviceArray<std::uint16_t>& out) {
    ResidualParams p{};
    p.branch = branch.get();
    p.post_weight = post_weight.get();
    p.next_weight = next_weight.get();
    p.from = p.stream = stream.get();
    p.out = out.get();
    p.from_stride = p.out_stride = hidden;
    p.hidden = hidden;
    p.eps = static_cast<float>(ResidualProblem::kEps);
    return p;
  };
  {
    const DeviceArray<std::uint16_t> stream(device, problem.stream);
    const DeviceArray<std::uint16_t> out(device, size, kModelPoison), first(device, size, 0),
        second(device, size, 0);
    const EnterExpertsParams p{params_of(stream, out), first_weight.get(), second_weight.get(),
                               first.get(), second.get()};
    device.launch(device.kernel(module, source.symbols[0], 0), plan_residual(hidden, 4), &p,
                  nullptr);
    ResidualProblem plain = problem;
    expect_close(stream.read(), reference_residual(plain).stream, kMostOthers);
    expect_close(out.read(), reference_residual(plain).out, kMostOthers);
    plain.next_weight = problem.first_weight;
    expect_close(first.read(), reference_residual(plain).out, kMostOthers);
    plain.next_weight = problem.second_weight;
    expect_close(second.read(), reference_residual(plain).out, kMostOthers);
  }
  for (const bool has_out : {true, false}) {
    const DeviceArray<std::uint16_t> stream(device, problem.stream);
    const DeviceArray<std::uint16_t> out(device, size, kModelPoison);
    MixExpertsParams p{params_of(stream, out),
                       first_weight.get(),
                       second_weight.get(),
                       rows.get(),
                       entries.get(),
                       weights.get(),
                       4,
                       ExpertStepsProblem::kTopK};
    p.residual.scalar = scalar.get();
    if (!has_out) p.residual.out = nullptr;
    device.launch(device.kernel(module, source.symbols[1], 0), plan_residual(hidden, 4), &p,
                  nullptr);
    ResidualProblem plain = problem;
    plain.branch = problem.mixed_branch();
    plain.scalar = bf16_of(0.37);
    const ResidualOutputs expected = reference_residual(plain);
    expect_close(stream.read(), expected.stream, kMostOthers);
    if (has_out) {
      expect_close(out.read(), expected.out, kMostOthers);
    } else {
      EXPECT_EQ(out.read(), std::vector(size, kModelPoison));
    }
  }
}

}  // namespace attune
