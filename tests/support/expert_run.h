// Runs the router and the linear layers of experts on any device, and what they have to give.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "jit/experts.h"
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
  ExpertsProblem(const LinearShape& of, int experts, std::vector<int> entries, int tokens,
                 bool input_per_entry, unsigned seed)
      : shape(of),
        num_experts(experts),
        chosen(std::move(entries)),
        num_tokens(tokens),
        has_input_per_entry(input_per_entry),
        weights(random_bf16(std::size_t(experts) * of.weight_rows() * of.in_features, seed, 0.1)),
        input(random_bf16(
            std::size_t(input_per_entry ? chosen.size() : 1) * tokens * of.in_features, seed + 1)) {
  }

  // What one entry is: a linear layer.
  LinearProblem entry(int idx) const {
    LinearProblem one(shape, num_tokens, 1);
    const std::size_t matrix = std::size_t(shape.weight_rows()) * shape.in_features;
    const std::size_t rows = std::size_t(num_tokens) * shape.in_features;
    const auto from = weights.begin() + static_cast<std::ptrdiff_t>(matrix * chosen[idx]);
    one.weights.assign(from, from + static_cast<std::ptrdiff_t>(matrix));
    const auto x =
        input.begin() + static_cast<std::ptrdiff_t>(has_input_per_entry ? rows * idx : 0);
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
  int num_experts;
  std::vector<int> chosen;
  int num_tokens;
  bool has_input_per_entry;
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
  const ExpertsKernel& of(const ExpertsProblem& problem, int num_sms, int num_entries) {
    experts.shape = problem.shape;
    experts.num_experts = problem.num_experts;
    experts.plan = plan_experts(problem.shape, experts.config, num_sms, num_entries);
    return experts;
  }
  Source source;
  Module module;
  ExpertsKernel experts;
};

// bf16 [entries, num_tokens, out_features]; entries that nobody chose stay as they were.
inline std::vector<std::uint16_t> run_experts(Device& device, const ExpertsKernel& kernel,
                                              const ExpertsProblem& problem) {
  const int num_entries = static_cast<int>(problem.chosen.size());
  std::vector<unsigned char> packed(16);
  if (problem.shape.weights == LinearWeights::kInt4) {
    packed = reference_int4(problem.weights, problem.num_experts * problem.shape.weight_rows(),
                            problem.shape.in_features)
                 .bytes;
  }
  std::vector<int> list = {num_entries};
  list.insert(list.end(), problem.chosen.begin(), problem.chosen.end());
  const DeviceArray<int> chosen(device, std::span<const int>(list));
  const DeviceArray<std::uint16_t> weights(device, problem.weights);
  const DeviceArray<unsigned char> packed_weights(device, packed);
  const DeviceArray<std::uint16_t> input(device, problem.input);
  const std::size_t used =
      std::size_t(num_entries) * problem.num_tokens * problem.shape.out_features;
  const DeviceArray<std::uint16_t> out(device, used + 64, kModelPoison);
  launch_experts(device, kernel,
                 {.weights = problem.shape.weights == LinearWeights::kInt4 ? packed_weights.ptr()
                                                                           : weights.ptr(),
                  .input = input.ptr(),
                  .out = out.ptr(),
                  .chosen = chosen.ptr(),
                  .num_tokens = problem.num_tokens,
                  .most_entries = num_entries,
                  .has_input_per_entry = problem.has_input_per_entry},
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
    const bool is_down = epilogue == LinearEpilogue::kStore;
    unsigned seed = 1;
    for (const auto& [out, in] : {std::pair(72, 64), std::pair(41, 584)}) {
      for (const int num_sms : {2, 40}) {
        for (const std::vector<int>& chosen : {std::vector{3}, {0, 2, 3, 4, 6}}) {
          SCOPED_TRACE(testing::Message() << loaded.source.symbols.front() << " " << out << "x"
                                          << in << " " << num_sms << " SMs, " << chosen.size());
          const ExpertsProblem problem({out, in, epilogue, weights}, 7, chosen,
                                       std::max(1, config.block_m - 1), is_down, seed++);
          expect_right_experts(problem,
                               run_experts(device, loaded.of(problem, num_sms, 2), problem));
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// A token's bits are those it has alone, whatever config, tiles, other tokens and other entries.
inline void expect_bits_of_a_token(Device& device, const Compiler& compiler,
                                   LinearWeights weights) {
  const LinearShape shape{77, 1288, LinearEpilogue::kStore, weights};
  const ExpertsProblem all(shape, 6, {0, 1, 4, 5}, 16, true, 3);
  LoadedExperts many(device, compiler, {16, 32, 1, linear_warps(weights)}, shape.epilogue, weights);
  LoadedExperts few(device, compiler, {8, 16, 2, linear_warps(weights)}, shape.epilogue, weights);
  const auto expected = run_experts(device, many.of(all, 3, 4), all);
  for (const int token : {0, 7, 15}) {
    ExpertsProblem one = all.token(token);
    one.chosen = {4};
    const auto x = one.input.begin() + 2 * shape.in_features;
    one.input = std::vector<std::uint16_t>(x, x + shape.in_features);
    const auto bits = run_experts(device, few.of(one, 7, 1), one);
    EXPECT_TRUE(std::equal(bits.begin(), bits.end(),
                           expected.begin() + (2 * 16 + token) * shape.out_features))
        << token;
  }
}

}  // namespace attune
