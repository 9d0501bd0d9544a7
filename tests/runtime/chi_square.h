// Whether counts are of a distribution.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace attune {

// Pearson's test against exact probabilities. Fails above the quantile of 5 standard deviations, by
// Wilson and Hilferty's approximation: one test in 3.5 million by chance, and the seeds are fixed.
inline testing::AssertionResult is_drawn_from(std::span<const double> probabilities,
                                              std::span<const std::int64_t> counts) {
  constexpr double kMinExpected = 5;  // rarer cells are judged together
  constexpr double kDeviations = 5;
  std::int64_t num_draws = 0;
  for (const std::int64_t count : counts) num_draws += count;
  double statistic = 0, rare_expected = 0, rare_count = 0;
  int num_cells = 0;
  const auto add = [&](double expected, double count) {
    statistic += (count - expected) * (count - expected) / expected;
    ++num_cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(num_draws);
    const auto count = static_cast<double>(counts[i]);
    if (expected == 0 && count > 0) {
      return testing::AssertionFailure() << "cell " << i << " is impossible, count=" << count;
    }
    if (expected >= kMinExpected) {
      add(expected, count);
    } else {
      rare_expected += expected;
      rare_count += count;
    }
  }
  if (rare_expected > 0) add(rare_expected, rare_count);
  const double freedom = num_cells - 1;
  if (freedom < 1) return testing::AssertionSuccess();
  const double term = 2 / (9 * freedom);
  const double limit = freedom * std::pow(1 - term + kDeviations * std::sqrt(term), 3);
  const std::string values = fmt::format("chi2={:.1f} limit={:.1f} cells={} draws={}", statistic,
                                         limit, num_cells, num_draws);
  return (statistic < limit ? testing::AssertionSuccess() : testing::AssertionFailure()) << values;
}

}  // namespace attune
