// Runs the router and the linear layers of experts on any device, and what they have to give.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "jit/linear.h"
#include "templates/expert_plan.h"
#include "tests/support/model_run.h"

namespace attune {

struct Routes {
  std::vector<int> chosen;  // [groups, 1 + num_experts]; -7 where nothing is written
  std::vector<int> entries;
  std::vector<double> weights;
};

// Of scores [num_tokens, num_experts].
inline Routes reference_routes(const std::vector<float>& scores, int num_experts, int top_k,
                               float score_scale, const std::vector<std::uint16_t>& expert_scale) {
  Routes routes;
  const int num_tokens = static_cast<int>(scores.size()) / num_experts;
  std::vector<int> picks;  // of all tokens
  for (int token = 0; token < num_tokens; ++token) {
    const auto score = [&](int expert) {
      const float value = scores[std::size_t(token) * num_experts + expert];
      return std::isnan(value) ? -std::numeric_limits<double>::infinity()
                               : double(value) * score_scale;
    };
    std::vector<int> order(num_experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score(a) > score(b); });
    double total = 0;
    for (int k = 0; k < top_k; ++k) total += std::exp(score(order[k]) - score(order[0]));
    for (int k = 0; k < top_k; ++k) {
      routes.weights.push_back(std::exp(score(order[k]) - score(order[0])) / total *
                               value_of_bf16(expert_scale[order[k]]));
      picks.push_back(order[k]);
    }
  }
  for (int first = 0; first < num_tokens; first += kMaxLinearTokens) {
    const auto begin = picks.begin() + first * top_k;
    const auto end = picks.begin() + std::min(first + kMaxLinearTokens, num_tokens) * top_k;
    const std::set<int> distinct(begin, end);
    std::vector<int> list(1 + num_experts, -7);
    list[0] = static_cast<int>(distinct.size());
    std::copy(distinct.begin(), distinct.end(), list.begin() + 1);
    routes.chosen.insert(routes.chosen.end(), list.begin(), list.end());
    for (auto pick = begin; pick != end; ++pick) {
      routes.entries.push_back(
          static_cast<int>(std::distance(distinct.begin(), distinct.find(*pick))));
    }
  }
  return routes;
}

// Groups that are whole and that are not, ties, and NaN; a token that has NaN alone.
inline void expect_right_routes(Device& device, const Kernel& kernel, int num_experts, int top_k) {
  constexpr int kTokens = 21;
  constexpr float kScale = 0.25f, kNan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(static_cast<unsigned>(num_experts + top_k));
  std::normal_distribution<float> normal(0, 8);
  std::vector<float> scores(std::size_t{kTokens} * num_experts);
  for (float& score : scores) score = normal(random);
  for (int i = 0; i < num_experts; ++i) {
    scores[std::size_t{1} * num_experts + i] = 1;                   // the first top_k
    scores[std::size_t{2} * num_experts + i] = i % 2 == 0 ? 3 : 2;  // every second one, then others
    scores[std::size_t{20} * num_experts + i] = kNan;
  }
  scores[3 * num_experts] = kNan;
  const std::vector<std::uint16_t> scale = random_bf16(num_experts, 5);
  const Routes expected = reference_routes(scores, num_experts, top_k, kScale, scale);

  const DeviceArray<float> from(device, std::span<const float>(scores));
  const DeviceArray<std::uint16_t> expert_scale(device, scale);
  const DeviceArray<int> chosen(device, expected.chosen.size(), -7);
  const DeviceArray<int> entries(device, expected.entries.size() + 1, -7);
  const DeviceArray<float> weights(device, expected.weights.size() + 1, -7.0f);
  const RouteParams p{from.get(), expert_scale.get(), kScale,        kTokens,      num_experts,
                      top_k,      chosen.get(),       entries.get(), weights.get()};
  device.launch(kernel, plan_route(kTokens), &p, nullptr);
  EXPECT_EQ(chosen.read(), expected.chosen);
  std::vector<int> right = expected.entries;
  right.push_back(-7);
  EXPECT_EQ(entries.read(), right);
  const std::vector<float> given = weights.read();
  EXPECT_EQ(given.back(), -7.0f);
  for (std::size_t i = 0; i < expected.weights.size(); ++i) {
    if (std::isnan(expected.weights[i])) {
      EXPECT_TRUE(std::isnan(given[i])) << i;
    } else {
      EXPECT_NEAR(given[i], expected.weights[i], 2e-6 * (1 + std::abs(expected.weights[i]))) << i;
    }
  }
}

// Entries of a group: every one with all tokens, as the kernel has them.
struct ExpertsProblem {
  ExpertsProblem(const LinearShape& of, std::vector<int> entries, int tokens, unsigned seed)
      : shape(of),
        chosen(std::move(entries)),
        num_tokens(tokens),
        weights(random_bf16(std::size_t(of.all_weight_rows()) * of.in_features, seed, 0.1)),
        input(random_bf16(
            std::size_t(of.has_input_per_expert() ? chosen.size() : 1) * tokens * of.in_features,
            seed + 1)) {}

  // What one entry is: a linear layer.
  LinearProblem entry(int idx) const {
    LinearShape alone = shape;
    alone.num_experts = alone.top_k = 0;
    LinearProblem one(alone, num_tokens, 1);
    const std::size_t matrix = std::size_t(shape.weight_rows()) * shape.in_features;
    const std::size_t rows = std::size_t(num_tokens) * shape.in_features;
    const auto from = weights.begin() + static_cast<std::ptrdiff_t>(matrix * chosen[idx]);
    one.weights.assign(from, from + static_cast<std::ptrdiff_t>(matrix));
    const auto x =
        input.begin() + static_cast<std::ptrdiff_t>(shape.has_input_per_expert() ? rows * idx : 0);
    one.input.assign(x, x + static_cast<std::ptrdiff_t>(rows));
    if (shape.weights == LinearWeights::kInt4) one.pack();
    return one;
  }
  // The same with one of the tokens alone.
  ExpertsProblem token(int idx) const {
    ExpertsProblem one = *this;
    one.num_tokens = 1;
    one.input.clear();
    for (std::size_t at = std::size_t(idx) * shape.in_features; at < input.size();
         at += std::size_t(num_tokens) * shape.in_features) {
      const auto x = input.begin() + static_cast<std::ptrdiff_t>(at);
      one.input.insert(one.input.end(), x, x + shape.in_features);
    }
    return one;
  }

  LinearShape shape;
  std::vector<int> chosen;
  int num_tokens;
  std::vector<std::uint16_t> weights, input;
};

struct LoadedExperts {
  LoadedExperts(Device& on, const Compiler& compiler, const KernelConfig& config,
                LinearEpilogue epilogue, LinearWeights weights = LinearWeights::kBf16)
      : source(experts_source(config, epilogue, weights)),
        module(on.load(compiler.compile(source, on.info().arch))) {
    experts.config = config;
    experts.kernel = on.kernel(module, source.symbols.front(), experts_smem_bytes(config, weights));
  }
  const LinearKernel& of(const ExpertsProblem& problem, int num_sms) {
    experts.shape = problem.shape;
    experts.plan = plan_linear(problem.shape, experts.config, num_sms);
    return experts;
  }
  Source source;
  Module module;
  LinearKernel experts;
};

// bf16 [entries, num_tokens, out_features]; entries that nobody chose stay as they were.
inline std::vector<std::uint16_t> run_experts(Device& device, const LinearKernel& kernel,
                                              const ExpertsProblem& problem) {
  const int num_entries = static_cast<int>(problem.chosen.size());
  std::vector<unsigned char> packed(16);
  if (problem.shape.weights == LinearWeights::kInt4) {
    packed =
        reference_int4(problem.weights, problem.shape.all_weight_rows(), problem.shape.in_features)
            .bytes;
  }
  const DeviceMem chosen = expert_list(device, problem.chosen, nullptr);
  const DeviceArray<std::uint16_t> weights(device, problem.weights);
  const DeviceArray<unsigned char> packed_weights(device, packed);
  const DeviceArray<std::uint16_t> input(device, problem.input);
  const std::size_t used =
      std::size_t(num_entries) * problem.num_tokens * problem.shape.out_features;
  const DeviceArray<std::uint16_t> out(device, used + 64, kModelPoison);
  launch_linear(device, kernel,
                {.weights = problem.shape.weights == LinearWeights::kInt4 ? packed_weights.ptr()
                                                                          : weights.ptr(),
                 .input = input.ptr(),
                 .out = out.ptr(),
                 .num_tokens = problem.num_tokens,
                 .chosen = chosen.ptr(),
                 .most_entries = num_entries},
                nullptr);
  std::vector<std::uint16_t> words = out.read();
  for (std::size_t i = used; i < words.size(); ++i) EXPECT_EQ(words[i], kModelPoison);
  words.resize(used);
  return words;
}

inline void expect_right_experts(const ExpertsProblem& problem,
                                 const std::vector<std::uint16_t>& out) {
  const std::size_t size = std::size_t(problem.num_tokens) * problem.shape.out_features;
  for (std::size_t idx = 0; idx < problem.chosen.size(); ++idx) {
    SCOPED_TRACE("entry " + std::to_string(idx));
    const auto from = out.begin() + static_cast<std::ptrdiff_t>(size * idx);
    expect_right(problem.entry(static_cast<int>(idx)),
                 {from, from + static_cast<std::ptrdiff_t>(size)});
    if (testing::Test::HasFailure()) return;
  }
}

// Tiles of unequal sizes, CTAs with many tiles, with one and with none, one expert alone, rows of fewer
// panels than warps and of more.
inline void expect_right_experts(Device& device, const Compiler& compiler,
                                 const KernelConfig& config, LinearWeights weights) {
  for (const auto epilogue : {LinearEpilogue::kGeglu, LinearEpilogue::kStore}) {
    LoadedExperts loaded(device, compiler, config, epilogue, weights);
    unsigned seed = 1;
    for (const auto& [out, in] : {std::pair(72, 64), std::pair(41, 584)}) {
      for (const int num_sms : {2, 40}) {
        for (const std::vector<int>& chosen : {std::vector{3}, {0, 2, 3, 4, 6}}) {
          SCOPED_TRACE(testing::Message() << loaded.source.symbols.front() << " " << out << "x"
                                          << in << " " << num_sms << " SMs, " << chosen.size());
          const ExpertsProblem problem({out, in, epilogue, weights, 7, 2}, chosen,
                                       std::max(1, config.block_m - 1), seed++);
          expect_right_experts(problem, run_experts(device, loaded.of(problem, num_sms), problem));
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// A token's bits are those it has alone, whatever config, tiles, other tokens and other entries.
inline void expect_bits_of_a_token(Device& device, const Compiler& compiler,
                                   LinearWeights weights) {
  const LinearShape shape{77, 1288, LinearEpilogue::kStore, weights, 6, 4};
  const ExpertsProblem all(shape, {0, 1, 4, 5}, 16, 3);
  const int num_warps = linear_warps(weights);
  LoadedExperts many(device, compiler, {16, 32, 1, num_warps}, shape.epilogue, weights);
  LoadedExperts few(device, compiler, {8, 16, 2, num_warps}, shape.epilogue, weights);
  std::vector<LoadedExperts*> loaded = {&few};
  std::optional<LoadedExperts> alone;
  if (is_linear_token_block(1, weights)) {
    loaded.push_back(&alone.emplace(device, compiler, KernelConfig{1, 48, 2, num_warps},
                                    shape.epilogue, weights));
  }
  const auto expected = run_experts(device, many.of(all, 3), all);
  for (const int token : {0, 7, 15}) {
    ExpertsProblem one = all.token(token);
    one.chosen = {4};
    one.shape.top_k = 1;
    const auto x = one.input.begin() + 2 * shape.in_features;
    one.input = std::vector<std::uint16_t>(x, x + shape.in_features);
    for (LoadedExperts* kernel : loaded) {
      const auto bits = run_experts(device, kernel->of(one, 7), one);
      EXPECT_TRUE(std::equal(bits.begin(), bits.end(),
                             expected.begin() + (2 * 16 + token) * shape.out_features))
          << token;
    }
  }
}

}  // namespace attune
