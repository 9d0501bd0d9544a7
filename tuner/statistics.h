// Samples to numbers that can be believed: pure functions that assume no distribution.
#pragma once

#include <vector>

namespace attune {

struct Interval {
  double low = 0;
  double high = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Of the sorted values, which is not empty; between two neighbours in proportion.
double quantile(const std::vector<double>& sorted, double fraction);
double median(std::vector<double> values);

// A sample is wild when no clock can give it (zero, negative, not finite), or when it is alone: off
// the median by more than kWildShare of it and by more than kWildDeviations times the median
// deviation of all. Three samples are the fewest of which one can be told to be alone.
constexpr double kWildShare = 0.1;
constexpr double kWildDeviations = 8;

struct CleanSamples {
  std::vector<double> kept;  // in the order given
  int num_dropped = 0;
};
CleanSamples drop_wild(const std::vector<double>& samples);

// How many of n samples may lie on one side of the median with less than `risk`: the k for which the
// k-th smallest is a lower bound of the median that fails with at most this probability. 0 when n
// are too few for it.
int bound_rank(int n, double risk);

// Where the median of what the samples are taken from lies, either bound failing with `risk`: order
// statistics. Too few samples give their whole range. Throws InvalidArgument without a sample.
Interval median_interval(std::vector<double> samples, double risk);

// Either bound of what is stored and shown: 95% together.
constexpr double kShownRisk = 0.025;

}  // namespace attune
