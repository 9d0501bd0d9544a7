#include "tuner/reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/split_plan.h"
#include "tuner/parallel.h"

namespace attune {
namespace {

// Independent partial sums of a dot product: without them the compiler may not vectorize it.
constexpr int kLanes = 8;

double dot(const double* a, const std::uint16_t* b, int count) {
  std::array<double, kLanes> sums{};
  for (int i = 0; i < count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[lane] += a[i + lane] * static_cast<double>(bf16_to_float(b[i + lane]));
    }
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

// One row of the answer: a query token and a q head of a sequence.
struct RowTask {
  int batch_idx;
  int token_idx;
  int head_idx;
  int num_keys;
};

class Reference {
 public:
  explicit Reference(const AttentionInputs& inputs) : in_(inputs), problem_(inputs.problem) {
    const std::size_t rows = in_.kv_len.size() * problem_.seqlen_q * problem_.num_q_heads;
    result_.out.assign(rows * problem_.head_dim, 0.0);
    result_.lse.assign(rows, -std::numeric_limits<double>::infinity());
  }

  AttentionOutputs run(int num_threads) {
    const std::vector<RowTask> tasks = row_tasks();
    parallel_for(tasks.size(), num_threads, [&](std::size_t i) { compute(tasks[i]); });
    return std::move(result_);
  }

 private:
  KeyRange keys_of(int batch_idx, int token_idx) const {
    return visible_keys(in_.kv_len[static_cast<std::size_t>(batch_idx)], problem_.seqlen_q,
                        token_idx, token_idx, problem_.window, problem_.causal ? 1 : 0);
  }

  // Longest rows first, so that no thread is left alone with one at the end.
  std::vector<RowTask> row_tasks() const {
    std::vector<RowTask> tasks;
    for (int batch_idx = 0; batch_idx < static_cast<int>(in_.kv_len.size()); ++batch_idx) {
      for (int token_idx = 0; token_idx < problem_.seqlen_q; ++token_idx) {
        const KeyRange keys = keys_of(batch_idx, token_idx);
        for (int head_idx = 0; head_idx < problem_.num_q_heads; ++head_idx) {
          tasks.push_back({batch_idx, token_idx, head_idx, keys.end - keys.begin});
        }
      }
    }
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const RowTask& a, const RowTask& b) { return a.num_keys > b.num_keys; });
    return tasks;
  }

  // The K or V row of a position.
  const std::uint16_t* kv_row(const std::vector<std::uint16_t>& data, const RowTask& task,
                              int position) const {
    const int row = problem_.kv_layout == KvLayout::kRing ? position % in_.capacity : position;
    const std::size_t token = std::size_t{1} * task.batch_idx * in_.capacity + row;
    const std::size_t kv_head = task.head_idx / problem_.group_size();
    return data.data() + (token * problem_.num_kv_heads + kv_head) * problem_.head_dim;
  }

  void compute(const RowTask& task) {
    if (task.num_keys <= 0) return;
    const int head_dim = problem_.head_dim;
    const KeyRange keys = keys_of(task.batch_idx, task.token_idx);
    const std::size_t row = (std::size_t{1} * task.batch_idx * problem_.seqlen_q + task.token_idx) *
                                problem_.num_q_heads +
                            task.head_idx;
    std::vector<double> query(static_cast<std::size_t>(head_dim));
    for (int d = 0; d < head_dim; ++d) query[d] = bf16_to_float(in_.q[row * head_dim + d]);
    std::vector<double> scores(static_cast<std::size_t>(task.num_keys));
    double max_score = -std::numeric_limits<double>::infinity();
    for (int i = 0; i < task.num_keys; ++i) {
      double score =
          dot(query.data(), kv_row(in_.k, task, keys.begin + i), head_dim) * in_.sm_scale;
      if (problem_.softcap) score = in_.softcap * std::tanh(score / in_.softcap);
      scores[i] = score;
      max_score = std::max(max_score, score);
    }
    double sum = 0;
    double* out = result_.out.data() + row * head_dim;
    for (int i = 0; i < task.num_keys; ++i) {
      const double weight = std::exp(scores[i] - max_score);
      const std::uint16_t* value = kv_row(in_.v, task, keys.begin + i);
      sum += weight;
      for (int d = 0; d < head_dim; ++d) {
        out[d] += weight * static_cast<double>(bf16_to_float(value[d]));
      }
    }
    for (int d = 0; d < head_dim; ++d) out[d] /= sum;
    result_.lse[row] = max_score + std::log(sum);
  }

  const AttentionInputs& in_;
  const Problem& problem_;
  AttentionOutputs result_;  // every thread writes rows of its own
};

void require_size(std::string_view name, std::size_t size, std::size_t needed) {
  if (size == needed) return;
  throw InvalidArgument("the reference got a tensor of the wrong size",
                        fmt::format("{}={} elements, needed {}", name, size, needed),
                        "shape it as AttentionInputs says");
}

void check(const AttentionInputs& inputs) {
  const Problem& problem = inputs.problem;
  const std::size_t batch = inputs.kv_len.size();
  const std::size_t q_size = batch * problem.seqlen_q * problem.num_q_heads * problem.head_dim;
  const std::size_t kv_size = batch * inputs.capacity * problem.num_kv_heads * problem.head_dim;
  require_size("batch", static_cast<std::size_t>(problem.batch), batch);
  require_size("q", inputs.q.size(), q_size);
  require_size("k", inputs.k.size(), kv_size);
  require_size("v", inputs.v.size(), kv_size);
  for (const int kv_len : inputs.kv_len) {
    const KeyRange keys = visible_keys(kv_len, problem.seqlen_q, 0, problem.seqlen_q - 1,
                                       problem.window, problem.causal ? 1 : 0);
    const int rows_needed = problem.kv_layout == KvLayout::kRing ? keys.end - keys.begin : keys.end;
    if (kv_len < 0 || rows_needed > inputs.capacity) {
      throw InvalidArgument("the reference got a kv_len outside its buffer",
                            fmt::format("kv_len={} rows_needed={} capacity={}", kv_len, rows_needed,
                                        inputs.capacity));
    }
  }
}

}  // namespace

AttentionOutputs reference_attention(const AttentionInputs& inputs, int num_threads) {
  check(inputs);
  return Reference(inputs).run(num_threads);
}

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);  // stays a NaN
  const std::uint32_t to_nearest_even = 0x7fff + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>((bits + to_nearest_even) >> 16);
}

double relative_l2(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (difference == 0) return 0;
  return norm == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / norm);
}

}  // namespace attune
