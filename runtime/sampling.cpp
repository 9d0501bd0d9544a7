#include "runtime/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/error.h"
#include "runtime/philox.h"

namespace attune {
namespace {

[[noreturn]] void refuse(std::string_view name, double value, std::string_view allowed) {
  throw InvalidArgument("the sampling options cannot be used", fmt::format("{}={}", name, value),
                        fmt::format("{} is {}", name, allowed));
}

// The `count` tokens of the largest logits.
std::vector<std::int32_t> largest_tokens(std::span<const float> logits, int count) {
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::partial_sort(tokens.begin(), tokens.begin() + count, tokens.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                    });
  tokens.resize(count);
  return tokens;
}

double sum_of(std::span<const double> weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

// The largest weights, as few as make top_p of the sum; 0 in place of the others.
std::vector<double> nucleus(std::span<const double> weights, double top_p) {
  const double sum = sum_of(weights);
  // All tokens below it have less than 1 - top_p of the sum together, and no part in the nucleus.
  const double negligible = sum * (1 - top_p) / (2 * static_cast<double>(weights.size()));
  std::vector<std::int32_t> heap;
  for (std::int32_t token = 0; token < static_cast<std::int32_t>(weights.size()); ++token) {
    if (weights[token] > negligible) heap.push_back(token);
  }
  const auto is_behind = [&](std::int32_t a, std::int32_t b) {
    return weights[a] != weights[b] ? weights[a] < weights[b] : a > b;
  };
  std::make_heap(heap.begin(), heap.end(), is_behind);
  std::vector<double> kept(weights.size());
  for (double mass = 0; mass < top_p * sum && !heap.empty();) {
    std::pop_heap(heap.begin(), heap.end(), is_behind);
    const std::int32_t token = heap.back();
    heap.pop_back();
    kept[token] = weights[token];
    mass += weights[token];
  }
  return kept;
}

}  // namespace

void check_sampling(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    refuse("temperature", options.temperature, "0 (greedy) or above");
  }
  if (options.top_k < 0) refuse("top_k", options.top_k, "0 (all tokens) or above");
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    refuse("top_p", options.top_p, "above 0, up to 1 (all tokens)");
  }
}

double uniform(std::uint64_t seed, std::int64_t position, Draw draw) {
  const auto at = static_cast<std::uint64_t>(position);
  const PhiloxBlock block =
      philox({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32),
              static_cast<std::uint32_t>(draw), 0},
             static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  const std::uint64_t bits = std::uint64_t{block[1]} << 32 | block[0];
  constexpr int kMantissaBits = std::numeric_limits<double>::digits;
  return std::ldexp(static_cast<double>(bits >> (64 - kMantissaBits)), -kMantissaBits);
}

std::int32_t argmax(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float largest = -kInfinity;
  std::size_t token = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == kInfinity) {
      throw InvalidArgument("the logits cannot be used",
                            fmt::format("token={} logit={}", i, logits[i]),
                            "logits are finite, or -infinity for a token that is ruled out");
    }
    if (logits[i] > largest) {
      largest = logits[i];
      token = i;
    }
  }
  if (largest == -kInfinity) {
    throw InvalidArgument("the logits rule out every token",
                          fmt::format("vocab_size={}", logits.size()));
  }
  return static_cast<std::int32_t>(token);
}

std::vector<double> probabilities(std::span<const float> logits, const SamplingOptions& options) {
  check_sampling(options);
  if (options.greedy()) refuse("temperature", 0, "above 0 where probabilities are asked for");
  const float largest = logits[argmax(logits)];
  const auto weight_of = [&](std::int32_t token) {
    return std::exp((double{logits[token]} - largest) / options.temperature);
  };
  const auto vocab_size = static_cast<std::int32_t>(logits.size());
  std::vector<double> weights(logits.size());
  if (options.top_k > 0 && options.top_k < vocab_size) {
    for (const std::int32_t token : largest_tokens(logits, options.top_k)) {
      weights[token] = weight_of(token);
    }
  } else {
    for (std::int32_t token = 0; token < vocab_size; ++token) weights[token] = weight_of(token);
  }
  if (options.top_p < 1) weights = nucleus(weights, options.top_p);
  const double sum = sum_of(weights);
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::int32_t draw_token(std::span<const double> weights, double u) {
  const double target = u * sum_of(weights);
  double sum = 0;
  std::int32_t last = -1;
  for (std::int32_t token = 0; token < static_cast<std::int32_t>(weights.size()); ++token) {
    if (!(weights[token] > 0)) continue;
    last = token;
    sum += weights[token];
    if (target < sum) return token;
  }
  if (last >= 0) return last;  // the target was rounded up to the sum
  throw InvalidArgument("no token can be drawn: every weight is 0",
                        fmt::format("vocab_size={}", weights.size()));
}

std::int32_t next_token(std::span<const float> logits, const SamplingOptions& options,
                        std::int64_t position) {
  if (options.greedy()) return argmax(logits);
  return draw_token(probabilities(logits, options), uniform(options.seed, position, Draw::kToken));
}

}  // namespace attune
