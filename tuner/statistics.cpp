#include "tuner/statistics.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"

namespace attune {

double quantile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

CleanSamples drop_wild(const std::vector<double>& samples) {
  CleanSamples clean;
  for (const double us : samples) {
    if (std::isfinite(us) && us > 0) clean.kept.push_back(us);
  }
  if (clean.kept.size() >= 3) {
    const double middle = median(clean.kept);
    std::vector<double> deviations;
    for (const double us : clean.kept) deviations.push_back(std::abs(us - middle));
    const double limit =
        std::max(kWildShare * middle, kWildDeviations * median(std::move(deviations)));
    std::erase_if(clean.kept, [&](double us) { return std::abs(us - middle) > limit; });
  }
  clean.num_dropped = static_cast<int>(samples.size() - clean.kept.size());
  return clean;
}

int bound_rank(int n, double risk) {
  // P(at most k of n samples below the median), one binomial term after the other; 2^-n itself is 0
  // from 1075 samples on.
  double log_term = n * std::log(0.5);
  double probability = std::exp(log_term);
  int rank = 0;
  while (rank < n && probability <= risk) {
    ++rank;
    log_term += std::log(static_cast<double>(n - rank + 1) / rank);
    probability += std::exp(log_term);
  }
  return rank;
}

Interval median_interval(std::vector<double> samples, double risk) {
  if (samples.empty()) throw InvalidArgument("no samples have no median");
  std::sort(samples.begin(), samples.end());
  const auto rank =
      static_cast<std::size_t>(std::max(1, bound_rank(static_cast<int>(samples.size()), risk)));
  return {samples[rank - 1], samples[samples.size() - rank]};
}

}  // namespace attune
