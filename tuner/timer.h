// Cold-L2 times of candidates: events around replays of a CUDA graph whose nodes rotate over KV
// buffers, or over weights (linear_timer.h).
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "cache/records.h"
#include "jit/compiler.h"
#include "jit/device.h"
#include "tuner/conditions.h"
#include "tuner/statistics.h"

namespace attune {

// Version of the way of measuring; stored with every measurement. Raise it when times stop being
// comparable.
constexpr int kTimingMethod = 6;  // 6: finalists are timed by two graphs

struct Timing {
  double median_us = 0;     // per launch, combine included
  double spread_us = 0;     // half the interquartile range
  Interval median_in = {};  // 95% confidence; the whole range of fewer than 6 samples
  int num_samples = 0;
  int num_dropped = 0;  // wild ones, and those of windows in which a clock jumped
  std::vector<double> samples_us = {};
  Conditions conditions = {};
};

// Of the samples that are not wild (tuner/statistics.h); num_samples is 0 when none is left.
Timing summarize(const std::vector<double>& samples_us);

// How much is run for a number. The defaults are a GPU's.
struct TimingSizes {
  // A replay lasts at least this long where max_launches allow it: 1% is then 2 us, above the
  // 0.5 us steps of event times.
  double graph_us = 200;
  int min_launches = 2;
  int max_launches = 32;
  int warm_ups = 2;
  // Of a new graph, until settling_us have passed: the first six are 0.25 us a launch faster than all later
  // ones (H200, driver 580), which is 5% of a short kernel.
  int settling_replays = 8;
  double settling_us = 4000;
  int max_samples = std::numeric_limits<int>::max();  // at most, whatever TimerOptions say
  int max_rounds = std::numeric_limits<int>::max();   // of a rematch
  bool plays_again = true;                            // where a rematch left something open
  // Read before every replay, in units of the L2: nothing of an earlier one stays in it. It also
  // keeps the device busy until the replay is enqueued, so that the host's time is not part of a
  // sample.
  int evict_over_l2 = 3;
  std::size_t read_probe_bytes = std::size_t{2} << 30;
  int probe_samples = 7;
  int tensor_probe_trial = 64;  // iterations of the launch that sets the real number

  friend bool operator==(const TimingSizes&, const TimingSizes&) = default;
};

// The host device takes milliseconds for a launch: there a launch is a sample, a few samples are
// enough, and caches that the work itself does not fit in need no eviction.
TimingSizes timing_sizes(const DeviceInfo& device);

// Launches in one graph, so that a replay is long against the clock's steps and short against the
// budget.
int launches_per_graph(double launch_us, const TimingSizes& sizes = {});

// The kv_len to measure at instead of `kv_len`: beyond a window the work does not change.
int equivalent_kv_len(const Problem& problem, int kv_len);

struct TimerOptions {
  int min_samples = 5;
  int max_samples = 25;
  double relative_spread = 0.01;  // stop once spread/median is below, after min_samples
  double abandon_above_us = 0;    // after two samples above this, stop (0: never)
  bool new_graph = false;         // do not replay the one of an earlier measurement
};

// The lengths of a batch that a kernel is judged by at `kv_len`: all alike, and in a batch without a
// window also evenly from kv_len / batch up to it, because splits that suit sequences of one length
// may leave a long one among short ones to few CTAs. Launches take them in turn.
std::vector<std::vector<int>> judged_lengths(const Problem& problem, int kv_len);

// What the device can do at most, taken in the same run as the times it is quoted with.
struct Ceilings {
  double read_bytes_per_s = 0;
  double tensor_flops_per_s = 0;  // dense bf16
};

// Throws InvalidArgument unless there is one length for each sequence of the batch, each from 1 to
// problem.kv.max.
void require_lengths(const Problem& problem, std::span<const int> kv_lens);

// Times the candidates of one problem.
class CandidateTimer {
 public:
  virtual ~CandidateTimer() = default;

  // What a candidate is judged by at `kv_len`. Throws CudaError when a launch fails and Error when no
  // sample is usable; never returns a partial result.
  virtual Timing judge(const AttentionKernels& kernels, const Candidate& candidate, int kv_len,
                       const TimerOptions& options) = 0;
  // From now on the conditions of the samples are looked at, and samples during which a clock jumps
  // are taken again. The monitor has to outlive the timer.
  virtual void watch(DeviceMonitor& monitor) = 0;
};

// With the measuring kernels compiled already (probe_source). Throws Error when what is timed does not
// fit into memory.
std::unique_ptr<CandidateTimer> make_timer(Device& device, const Binary& probes,
                                           const Problem& problem);

// Buffers, streams and the noise kernel for timing one problem shape. K/V hold random bf16.
class AttentionTimer : public CandidateTimer {
 public:
  // Allocates for sequences of `longest_kv_len` (0: problem.kv.max), at least two buffers and at
  // most half of the free memory. Throws Error when they do not fit.
  AttentionTimer(Device& device, const Compiler& compiler, const Problem& problem,
                 int longest_kv_len = 0);
  // With the measuring kernels compiled already (probe_source).
  AttentionTimer(Device& device, const Binary& probes, const Problem& problem,
                 int longest_kv_len = 0);
  ~AttentionTimer() override;

  // `kv_lens` has the length of each sequence, as require_lengths has it; where the buffers are too
  // small for them they are allocated anew, as above. The kernels have to live as long as the timer:
  // it keeps the graphs of the candidates that it measured last. Throws CudaError when a launch fails and Error
  // when no sample is usable; never returns a partial result.
  Timing measure(const AttentionKernels& kernels, const Candidate& candidate,
                 std::span<const int> kv_lens, const TimerOptions& options = {});
  // All sequences of one length.
  Timing measure(const AttentionKernels& kernels, const Candidate& candidate, int kv_len,
                 const TimerOptions& options = {});
  // The mean over judged_lengths(problem, kv_len).
  Timing judge(const AttentionKernels& kernels, const Candidate& candidate, int kv_len,
               const TimerOptions& options = {}) override;

  void watch(DeviceMonitor& monitor) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Ceilings measure_ceilings(Device& device, const Compiler& compiler);
Ceilings measure_ceilings(Device& device, const Binary& probes);

// Bytes and FLOPs that a problem must move and do for sequences of these lengths: each visible K/V
// byte once, q and out once. A linear layer has no lengths: its weights, input and output once; of
// experts those of typical_entries, multiplied with the tokens that chose them.
double problem_bytes(const Problem& problem, std::span<const int> kv_lens);
double problem_flops(const Problem& problem, std::span<const int> kv_lens);
// All sequences of one length.
double problem_bytes(const Problem& problem, int kv_len);
double problem_flops(const Problem& problem, int kv_len);

}  // namespace attune
