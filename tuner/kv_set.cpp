#include "tuner/kv_set.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "templates/launch_plan.h"

namespace attune {
namespace {

// Rows that a sequence of this length has a place for. A ring has room for the longest verify step: at
// the lengths that are timed it then begins again inside of a tile, as it does at most others.
std::int64_t rows_of(const Problem& problem, int kv_len) {
  if (problem.kv_layout == KvLayout::kRing) {
    return std::max(problem.window + kMaxVerifyTokens - 1, min_ring_capacity(problem));
  }
  const int multiple = std::max(problem.page_size, 1);
  return (std::int64_t{kv_len} + multiple - 1) / multiple * multiple;
}

}  // namespace

KvSet kv_set(const Problem& problem, std::span<const int> kv_lens) {
  KvSet set;
  for (const int kv_len : kv_lens) set.rows.push_back(rows_of(problem, kv_len));
  set.capacity = *std::max_element(set.rows.begin(), set.rows.end());
  const std::int64_t used = std::accumulate(set.rows.begin(), set.rows.end(), std::int64_t{0});
  const std::int64_t all =
      is_paged(problem.kv_layout) ? used : static_cast<std::int64_t>(kv_lens.size()) * set.capacity;
  const std::int64_t row_bytes = std::int64_t{1} * problem.num_kv_heads *
                                 kv_row_columns(problem.kv_layout, problem.head_dim) *
                                 kBytesPerElement * (is_unified(problem.kv_layout) ? 1 : 2);
  set.bytes = static_cast<std::size_t>(all * row_bytes);
  set.used_bytes = static_cast<std::size_t>(used * row_bytes);
  return set;
}

std::size_t sets_in_turn(const KvSet& set, std::size_t least_bytes, std::size_t most) {
  return std::max<std::size_t>(2, std::min(least_bytes / set.used_bytes, most));
}

std::vector<int> page_ids(const Problem& problem, const KvSet& set, std::uint64_t seed) {
  const auto pages_of = [&](std::int64_t rows) {
    return static_cast<std::size_t>(rows / problem.page_size);
  };
  std::size_t num_pages = 0;
  for (const std::int64_t rows : set.rows) num_pages += pages_of(rows);
  std::vector<int> pages(num_pages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(seed));
  std::vector<int> table;
  table.reserve(set.rows.size() * pages_of(set.capacity));
  auto next = pages.begin();
  for (const std::int64_t rows : set.rows) {
    const auto end = next + static_cast<std::ptrdiff_t>(pages_of(rows));
    table.insert(table.end(), next, end);
    table.insert(table.end(), pages_of(set.capacity - rows), *(end - 1));
    next = end;
  }
  return table;
}

}  // namespace attune
