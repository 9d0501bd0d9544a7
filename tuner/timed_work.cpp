// The pure parts of tuner/timer.h: what is timed, and what its samples say.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/host_target.h"
#include "templates/expert_plan.h"
#include "templates/model_plan.h"
#include "templates/split_plan.h"
#include "tuner/timer.h"

namespace attune {
namespace {

KeyRange visible(const Problem& problem, int kv_len, int first_token, int last_token) {
  return visible_keys(kv_len, problem.seqlen_q, first_token, last_token, problem.window,
                      problem.causal ? 1 : 0);
}

double linear_bytes(const Problem& problem) {
  const LinearShape& shape = problem.linear;
  const int out_bytes = shape.epilogue == LinearEpilogue::kLogits ? 4 : kBytesPerElement;
  const auto entries = static_cast<double>(typical_entries(shape, problem.linear_tokens).size());
  const double inputs = shape.has_input_per_expert() ? entries : 1;
  return entries / std::max(1, shape.num_experts) *
             static_cast<double>(linear_weight_bytes(shape)) +
         problem.linear_tokens * (inputs * kBytesPerElement * shape.in_features +
                                  entries * out_bytes * shape.out_features);
}

double linear_flops(const Problem& problem) {
  const LinearShape& shape = problem.linear;
  const int chosen = shape.is_experts() ? shape.top_k : 1;
  return 2.0 * problem.linear_tokens * chosen * shape.weight_rows() * shape.in_features;
}

}  // namespace

Timing summarize(const std::vector<double>& samples_us) {
  CleanSamples clean = drop_wild(samples_us);
  Timing timing;
  timing.num_samples = static_cast<int>(clean.kept.size());
  timing.num_dropped = clean.num_dropped;
  timing.samples_us = clean.kept;
  if (clean.kept.empty()) return timing;
  std::vector<double>& sorted = clean.kept;
  std::sort(sorted.begin(), sorted.end());
  timing.median_us = quantile(sorted, 0.5);
  timing.spread_us = (quantile(sorted, 0.75) - quantile(sorted, 0.25)) / 2;
  timing.median_in = median_interval(sorted, kShownRisk);
  return timing;
}

TimingSizes timing_sizes(const DeviceInfo& device) {
  if (!is_host_arch(device.arch)) return {};
  return {.min_launches = 1,
          .max_launches = 1,
          .warm_ups = 0,
          .settling_replays = 0,
          .max_samples = 2,
          .max_rounds = 5,
          .plays_again = false,
          .evict_over_l2 = 0,
          .read_probe_bytes = std::size_t{16} << 20,
          .probe_samples = 2,
          .tensor_probe_trial = 4};
}

int launches_per_graph(double launch_us, const TimingSizes& sizes) {
  if (!(launch_us > 0)) return sizes.max_launches;
  const double wanted = std::ceil(sizes.graph_us / launch_us);
  return static_cast<int>(std::clamp<double>(wanted, sizes.min_launches, sizes.max_launches));
}

int equivalent_kv_len(const Problem& problem, int kv_len) {
  if (problem.window == 0) return kv_len;
  const auto beyond_window = std::bit_ceil(static_cast<unsigned>(problem.window) +
                                           static_cast<unsigned>(problem.seqlen_q));
  return static_cast<int>(std::min<unsigned>(static_cast<unsigned>(kv_len), beyond_window));
}

std::vector<std::vector<int>> judged_lengths(const Problem& problem, int kv_len) {
  const auto batch = static_cast<std::size_t>(problem.batch);
  std::vector<std::vector<int>> mixes = {std::vector<int>(batch, kv_len)};
  if (problem.batch == 1 || problem.window > 0) return mixes;
  std::vector<int> spread;
  for (std::int64_t i = 1; i <= problem.batch; ++i) {
    spread.push_back(std::max(1, static_cast<int>(kv_len * i / problem.batch)));
  }
  mixes.push_back(std::move(spread));
  return mixes;
}

void require_lengths(const Problem& problem, std::span<const int> kv_lens) {
  if (kv_lens.size() != static_cast<std::size_t>(problem.batch)) {
    throw InvalidArgument("cannot time a batch of this many lengths",
                          fmt::format("lengths={} batch={} problem={}", kv_lens.size(),
                                      problem.batch, problem.text()),
                          "give one length for each sequence of the batch");
  }
  for (const int kv_len : kv_lens) {
    if (kv_len >= 1 && kv_len <= problem.kv.max) continue;
    throw InvalidArgument("cannot time at a length outside the problem's range",
                          fmt::format("kv_len={} problem={}", kv_len, problem.text()),
                          fmt::format("take lengths from 1 to {}", problem.kv.max));
  }
}

double problem_bytes(const Problem& problem, std::span<const int> kv_lens) {
  if (problem.is_linear()) return linear_bytes(problem);
  const double row_elements =
      is_unified(problem.kv_layout) ? kUnifiedColumns : 2 * problem.head_dim;
  const double q_elements = 2.0 * problem.seqlen_q * problem.num_q_heads * problem.head_dim;
  double elements = 0;
  for (const int kv_len : kv_lens) {
    const KeyRange keys = visible(problem, kv_len, 0, problem.seqlen_q - 1);
    elements += row_elements * (keys.end - keys.begin) * problem.num_kv_heads + q_elements;
  }
  return elements * kBytesPerElement;
}

double problem_bytes(const Problem& problem, int kv_len) {
  return problem_bytes(problem, {&kv_len, 1}) * problem.batch;
}

double problem_flops(const Problem& problem, std::span<const int> kv_lens) {
  if (problem.is_linear()) return linear_flops(problem);
  double pairs = 0;
  for (const int kv_len : kv_lens) {
    for (int token = 0; token < problem.seqlen_q; ++token) {
      const KeyRange keys = visible(problem, kv_len, token, token);
      pairs += keys.end - keys.begin;
    }
  }
  return 4.0 * pairs * problem.num_q_heads * problem.head_dim;
}

double problem_flops(const Problem& problem, int kv_len) {
  return problem_flops(problem, {&kv_len, 1}) * problem.batch;
}

}  // namespace attune
