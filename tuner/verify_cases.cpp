#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "templates/launch_plan.h"
#include "templates/split_plan.h"
#include "tuner/parallel.h"
#include "tuner/verify.h"

namespace attune {
namespace {

constexpr int kTiles[] = {16, 32, 64, 128};
// Around the ends of splits: 8 full tiles of 64 and one key more, 1024 and its neighbours.
constexpr int kSplitEdges[] = {513, 1023, 1024, 1025};
constexpr int kAccuracyKvLen = 4133;  // a prime: no tile and no split divides it
// Longer sequences are a launch of their own, so that the short ones need no buffer of that size.
constexpr int kShortKvLen = 1200;
// Above it one KV head has to do, to bound the memory and the reference's time.
constexpr int kLongKvLen = 4200;

// Factor on q.k / sqrt(head_dim) of normal data: scores have this standard deviation.
constexpr float kScoreStddev = 2.0f;
// Scores in the hundreds: a softmax that does not track the maximum overflows.
constexpr float kLargeScoreStddev = 40.0f;
// Small enough that a kernel which ignores it is far off.
constexpr float kSoftcap = 5.0f;
// Two NaN patterns, so that a comparison of bits cannot take one for the other's poison.
constexpr std::uint16_t kHiddenK = 0x7fc0;
constexpr std::uint16_t kHiddenV = 0x7fff;

// Packed rows of a KV head in the cases of a prefill: two blocks of the largest BLOCK_M, the second
// with padding. seqlen_q is no part of a binary.
constexpr int kPrefillRows = 144;

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// splitmix64 (Steele, Lea, Flood 2014): the same data on every platform.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed) {}

  // About normal with variance 1: the sum of four uniform 16-bit numbers.
  float normal() {
    state_ += 0x9e3779b97f4a7c15ull;
    std::uint64_t bits = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9ull;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
    bits ^= bits >> 31;
    const auto sum = static_cast<int>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                      (bits >> 32 & 0xffff) + (bits >> 48));
    return static_cast<float>(sum - 2 * 0xffff) * kToUnitVariance;
  }
  void fill(std::uint16_t* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = float_to_bf16(normal());
  }

 private:
  static constexpr float kToUnitVariance = 1.7320508f / 65536.0f;  // sqrt(12 / 4) / 2^16
  std::uint64_t state_;
};

int capacity_of(const Problem& problem, const std::vector<int>& kv_lens) {
  if (problem.kv_layout == KvLayout::kRing) return min_ring_capacity(problem);
  const int longest = *std::max_element(kv_lens.begin(), kv_lens.end());
  return round_up(std::max(longest, 1), 16);
}

// Makes K and V of one token of unified rows: what a query does not see rotated is V itself.
void share_rows(const Problem& problem, std::uint16_t* k, const std::uint16_t* v) {
  for (int head = 0; head < problem.num_kv_heads; ++head) {
    const int first = head * problem.head_dim;
    for (int column = kUnifiedRotated; column < problem.head_dim; ++column) {
      k[first + column] = v[first + unified_value_dim(column - kUnifiedRotated)];
    }
  }
}

void fill_visible_rows(AttentionInputs* inputs, std::size_t batch_idx, Noise noise) {
  const Problem& problem = inputs->problem;
  const KeyRange keys = visible_keys(inputs->kv_len[batch_idx], problem.seqlen_q, 0,
                                     problem.seqlen_q - 1, problem.window, problem.causal ? 1 : 0);
  const std::size_t row_size = std::size_t{1} * problem.num_kv_heads * problem.head_dim;
  for (int position = keys.begin; position < keys.end; ++position) {
    const int row = problem.kv_layout == KvLayout::kRing ? position % inputs->capacity : position;
    const std::size_t at = (batch_idx * inputs->capacity + row) * row_size;
    noise.fill(&inputs->k[at], row_size);
    noise.fill(&inputs->v[at], row_size);
    if (is_unified(problem.kv_layout)) share_rows(problem, &inputs->k[at], &inputs->v[at]);
  }
}

AttentionInputs make_inputs(const Problem& asked, const std::vector<int>& kv_lens, float stddev,
                            std::uint64_t seed) {
  AttentionInputs inputs;
  const int longest = *std::max_element(kv_lens.begin(), kv_lens.end());
  const int max_kv_heads = longest > kLongKvLen ? 1 : 2;
  Problem& problem = inputs.problem;
  problem = asked;
  problem.batch = static_cast<int>(kv_lens.size());
  problem.kv = {1, std::max(longest, 1)};
  problem.num_kv_heads = std::min(asked.num_kv_heads, max_kv_heads);
  problem.num_q_heads = problem.num_kv_heads * asked.group_size();
  inputs.kv_len = kv_lens;
  inputs.capacity = capacity_of(problem, kv_lens);
  inputs.sm_scale = stddev / std::sqrt(static_cast<float>(problem.head_dim));
  inputs.softcap = problem.softcap ? kSoftcap : 0.0f;

  const std::size_t batch = kv_lens.size();
  const std::size_t q_size =
      std::size_t{1} * problem.seqlen_q * problem.num_q_heads * problem.head_dim;
  const std::size_t kv_size =
      std::size_t{1} * inputs.capacity * problem.num_kv_heads * problem.head_dim;
  inputs.q.resize(batch * q_size);
  inputs.k.assign(batch * kv_size, kHiddenK);
  inputs.v.assign(batch * kv_size, kHiddenV);
  parallel_for(batch, 0, [&](std::size_t i) {
    Noise(seed ^ (2 * i + 1) << 32).fill(&inputs.q[i * q_size], q_size);
    fill_visible_rows(&inputs, i, Noise(seed ^ (2 * i + 2) << 32));
  });
  return inputs;
}

// A prefill of so many tokens that its row blocks have all forms.
Problem with_few_rows(Problem problem) {
  if (problem.op != Op::kPrefill) return problem;
  const int enough = (kPrefillRows - 1) / problem.group_size() + 1;
  problem.seqlen_q = std::min(problem.seqlen_q, enough);
  return problem;
}

}  // namespace

std::vector<int> edge_kv_lens(const Problem& problem) {
  std::set<int> lens = {0, 1, problem.seqlen_q - 1, problem.seqlen_q};
  for (const int tile : kTiles) lens.insert({tile - 1, tile, tile + 1});
  if (problem.window == 0) {
    lens.insert(std::begin(kSplitEdges), std::end(kSplitEdges));
  } else {
    // The first and the last query's window begin to hide keys.
    const int window = problem.window;
    lens.insert({window - 1, window, window + 1, window + problem.seqlen_q - 1,
                 window + problem.seqlen_q, window + 2 * problem.seqlen_q + 17});
  }
  if (is_paged(problem.kv_layout)) {
    lens.insert({problem.page_size - 1, problem.page_size, problem.page_size + 1});
  }
  if (problem.kv_layout == KvLayout::kRing) {
    const int ring = min_ring_capacity(problem);
    lens.insert({ring - 1, ring, ring + 1, ring + problem.seqlen_q, 2 * ring + 3, 3 * ring - 1});
  }
  return {lens.begin(), lens.end()};
}

VerifyCase verify_case(const Problem& asked, std::uint64_t seed, std::string name,
                       const std::vector<int>& kv_lens) {
  AttentionInputs inputs = make_inputs(with_few_rows(asked), kv_lens, kScoreStddev, seed);
  AttentionOutputs expected = reference_attention(inputs);
  return {std::move(name), std::move(inputs), std::move(expected)};
}

std::vector<VerifyCase> verify_cases(const Problem& asked, std::uint64_t seed) {
  const Problem problem = with_few_rows(asked);
  std::vector<int> short_lens;
  std::vector<int> long_lens;
  const bool is_ring = problem.kv_layout == KvLayout::kRing;  // its buffers are all of one size
  for (const int kv_len : edge_kv_lens(problem)) {
    (kv_len <= kShortKvLen || is_ring ? short_lens : long_lens).push_back(kv_len);
  }
  std::vector<VerifyCase> cases;
  const auto add = [&](std::string name, const std::vector<int>& kv_lens, float stddev) {
    AttentionInputs inputs = make_inputs(problem, kv_lens, stddev, seed + cases.size());
    AttentionOutputs expected = reference_attention(inputs);
    cases.push_back({std::move(name), std::move(inputs), std::move(expected)});
  };
  add("edges", short_lens, kScoreStddev);
  if (!long_lens.empty()) add("window edges", long_lens, kScoreStddev);
  add("large scores", {1, 65, 300}, kLargeScoreStddev);
  add(kAccuracyCase, {std::max(kAccuracyKvLen, std::min(problem.window + 1, 1 << 16))},
      kScoreStddev);
  return cases;
}

}  // namespace attune
