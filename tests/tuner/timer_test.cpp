#include "tuner/timer.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "common/error.h"
#include "jit/source.h"
#include "tests/tuner/fake_attention.h"

namespace attune {
namespace {

const Problem kProblem = Problem::parse("decode/b2/q1/kv1-1024/h4x2/d64/contiguous/bf16");
const Candidate kCandidate{"splitkv", {16, 32, 2, 4}, 4};

// Loads a kernel of the fake device and times it.
class AttentionTimerTest : public testing::Test {
 protected:
  Binary compiled(const Source& source) {
    Binary binary;
    compiles_.run(one_by_one({{0, source, "sm_90a"}}),
                  [&](CompileOutcome outcome) { binary = *outcome.binary; }, {});
    return binary;
  }
  AttentionKernels load(const Problem& problem) {
    const Variant variant = kCandidate.variant(problem);
    return load_attention(device_, compiled(attention_source(variant)), variant,
                          plan_launch(problem, kCandidate));
  }
  AttentionTimer make_timer(const Problem& problem) {
    return {device_, compiled(probe_source("sm_90a")), problem};
  }
  // Every launch takes the next of these times, the last one again and again. The combine is free.
  void launches_take(std::vector<double> times_us) {
    device_.on_launch = [this, times_us, next = std::size_t{0}](
                            const Kernel& kernel, const KernelLaunch&, const void*) mutable {
      if (!FakeDevice::symbol_of(kernel).starts_with("splitkv")) return;
      device_.now_us += times_us[std::min(next++, times_us.size() - 1)];
    };
  }

  FakeDevice device_{small_l2_device_info()};
  FakeCompiles compiles_;
};

TEST(Summarize, GivesTheMedianAndHalfTheInterquartileRange) {
  const Timing timing = summarize({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(timing.median_us, 3);
  EXPECT_DOUBLE_EQ(timing.spread_us, 1);
  EXPECT_EQ(timing.num_samples, 5);
  EXPECT_DOUBLE_EQ(summarize({1, 2}).median_us, 1.5);
}

TEST(Summarize, IsNotMovedByOneLuckySample) {
  EXPECT_DOUBLE_EQ(summarize({10, 10, 7, 10, 10}).median_us, 10);
}

TEST(Summarize, DropsSamplesNoClockCanGive) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  const Timing timing = summarize({nan, 2, 0, -1, infinity, 4});
  EXPECT_DOUBLE_EQ(timing.median_us, 3);
  EXPECT_EQ(timing.num_samples, 2);
  EXPECT_EQ(summarize({nan, 0}).num_samples, 0);
}

TEST(LaunchesPerGraph, MakeAReplayLongEnough) {
  EXPECT_EQ(launches_per_graph(5), 32);    // as many as allowed
  EXPECT_EQ(launches_per_graph(20), 10);   // 200 us
  EXPECT_EQ(launches_per_graph(1000), 2);  // still two buffers in turn
  EXPECT_EQ(launches_per_graph(0), 32);
  EXPECT_EQ(launches_per_graph(std::nan("")), 32);
  EXPECT_EQ(launches_per_graph(5, timing_sizes(architecture_limits("host"))), 1);
}

TEST(TimingSizes, AreFullForEveryGpuAndSmallForTheHost) {
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) {
    EXPECT_EQ(timing_sizes(architecture_limits(arch)), TimingSizes{}) << arch;
  }
  for (const char* arch : {"host", "host+checks"}) {
    const TimingSizes sizes = timing_sizes(architecture_limits(arch));
    EXPECT_EQ(sizes.max_launches, 1) << arch;
    EXPECT_LE(sizes.max_samples, 3) << arch;
    EXPECT_LE(sizes.read_probe_bytes, std::size_t{64} << 20) << arch;
  }
}

TEST(EquivalentKvLen, IsCutBeyondAWindow) {
  const Problem sliding = Problem::parse("verify/b1/q8/kv1-131072/h2x1/d64/w1024/ring/bf16");
  EXPECT_EQ(equivalent_kv_len(sliding, 1024), 1024);
  EXPECT_EQ(equivalent_kv_len(sliding, 131072), 2048);
  EXPECT_EQ(problem_bytes(sliding, 2048), problem_bytes(sliding, 131072));
  EXPECT_EQ(problem_flops(sliding, 2048), problem_flops(sliding, 131072));
  EXPECT_EQ(equivalent_kv_len(kProblem, 1 << 20), 1 << 20);
}

TEST(AttentionWork, CountsEachVisibleByteOnce) {
  const Problem global = Problem::parse("verify/b1/q4/kv1-32768/h32x4/d512/contiguous/bf16");
  EXPECT_DOUBLE_EQ(problem_bytes(global, 1024), 8192.0 * 1024 + 2.0 * 4 * 32 * 512 * 2);
  EXPECT_DOUBLE_EQ(problem_flops(global, 1024), 65536.0 * (1024 + 1023 + 1022 + 1021));
  EXPECT_DOUBLE_EQ(problem_flops(global, 0), 0);
}

TEST(AttentionWork, AddsUpTheSequencesOfABatch) {
  const Problem batch = Problem::parse("verify/b3/q4/kv1-32768/h32x4/d512/unified/bf16");
  Problem alone = batch;
  alone.batch = 1;
  const std::vector<int> kv_lens = {100, 1024, 7};
  double bytes = 0, flops = 0;
  for (const int kv_len : kv_lens) {
    bytes += problem_bytes(alone, kv_len);
    flops += problem_flops(alone, kv_len);
  }
  EXPECT_DOUBLE_EQ(problem_bytes(batch, kv_lens), bytes);
  EXPECT_DOUBLE_EQ(problem_flops(batch, kv_lens), flops);
  EXPECT_DOUBLE_EQ(problem_bytes(batch, 100), 3 * problem_bytes(alone, 100));
  EXPECT_DOUBLE_EQ(problem_flops(batch, 100), 3 * problem_flops(alone, 100));
}

TEST_F(AttentionTimerTest, ReportsTheTimeOfOneLaunch) {
  launches_take({25});
  const Timing timing = make_timer(kProblem).measure(load(kProblem), kCandidate, 512);
  EXPECT_DOUBLE_EQ(timing.median_us, 25);
  EXPECT_DOUBLE_EQ(timing.spread_us, 0);
  EXPECT_EQ(timing.num_samples, TimerOptions{}.min_samples);  // nothing to gain from more
}

TEST_F(AttentionTimerTest, LeavesOutTheLaunchesOfTheWarmUp) {
  launches_take({5000, 25, 900, 900, 900, 900, 900, 900, 900, 900, 25});
  const Timing timing = make_timer(kProblem).measure(load(kProblem), kCandidate, 512);
  EXPECT_DOUBLE_EQ(timing.median_us, 25);
}

TEST_F(AttentionTimerTest, SamplesMoreWhileTimesSpread) {
  std::vector<double> times;
  for (int i = 0; i < 400; ++i) times.push_back(100 + 50 * ((i / 2) % 5));
  launches_take(times);
  TimerOptions options;
  options.max_samples = 11;
  const Timing timing = make_timer(kProblem).measure(load(kProblem), kCandidate, 512, options);
  EXPECT_EQ(timing.num_samples, 11);
  EXPECT_GT(timing.spread_us, 0);
}

TEST_F(AttentionTimerTest, StopsEarlyAboveTheAbandonLimit) {
  launches_take({25});
  TimerOptions options;
  options.abandon_above_us = 20;
  AttentionTimer timer = make_timer(kProblem);
  const AttentionKernels kernels = load(kProblem);
  EXPECT_EQ(timer.measure(kernels, kCandidate, 512, options).num_samples, 2);
  options.abandon_above_us = 1;  // not even worth a graph
  int captures = 0;
  device_.on_call = [&](std::string_view call) { captures += call == "capture"; };
  EXPECT_EQ(timer.measure(kernels, kCandidate, 256, options).num_samples, 1);
  EXPECT_EQ(captures, 0);
}

TEST_F(AttentionTimerTest, IsNotMisledByOneSlowLaunch) {
  // The launch that decides about a graph, and a sample: each is 100 times too slow, once.
  launches_take({25, 2500, 25});
  TimerOptions options;
  options.abandon_above_us = 30;
  const Timing first = make_timer(kProblem).measure(load(kProblem), kCandidate, 512, options);
  EXPECT_EQ(first.num_samples, options.min_samples);
  EXPECT_DOUBLE_EQ(first.median_us, 25);
}

// A monitor whose clock the test sets, and kernels that run with it.
class ClockedTimerTest : public AttentionTimerTest, public DeviceMonitor {
 protected:
  ClockedTimerTest() {
    device_.on_launch = [this](const Kernel& kernel, const KernelLaunch&, const void*) {
      if (!FakeDevice::symbol_of(kernel).starts_with("splitkv")) return;
      device_.now_us += 25 * 2000.0 / clock_mhz(device_.now_us);
    };
  }
  DeviceState read() override {
    return {.sm_clock_mhz = clock_mhz(device_.now_us),
            .memory_clock_mhz = 3201,
            .throttle = throttle,
            .processes = processes};
  }
  Timing measure() {
    AttentionTimer timer = make_timer(kProblem);
    timer.watch(*this);
    start_us = device_.now_us;
    return timer.measure(load(kProblem), kCandidate, 512);
  }

  std::function<int(double)> clock_mhz = [](double) { return 2000; };
  unsigned throttle = 0;
  std::optional<std::vector<unsigned>> processes;
  double start_us = 0;
};

TEST_F(ClockedTimerTest, DropsAWindowInWhichTheClockJumps) {
  // High while the graph settles, for the warm-up and the first samples, then at half of it.
  constexpr double kSettledUs = 8 * 200;
  clock_mhz = [this](double now_us) { return now_us < start_us + kSettledUs + 900 ? 2000 : 1000; };
  const Timing timing = measure();
  EXPECT_DOUBLE_EQ(timing.median_us, 50);
  EXPECT_DOUBLE_EQ(timing.spread_us, 0);
  EXPECT_GT(timing.num_dropped, 0);
  EXPECT_EQ(timing.conditions.sm_clock_mhz, 1000);
  EXPECT_FALSE(timing.conditions.provisional());
}

TEST_F(ClockedTimerTest, SaysSoWhenTheClockNeverSettles) {
  clock_mhz = [](double now_us) { return static_cast<int>(2000 * std::exp(-now_us / 20000)); };
  EXPECT_TRUE(measure().conditions.provisional());
}

TEST_F(ClockedTimerTest, TellsThrottlingAndOtherProcesses) {
  throttle = kThrottlePower;
  processes = {static_cast<unsigned>(getpid()), 1};
  const Timing timing = measure();
  EXPECT_EQ(timing.conditions.throttle, kThrottlePower);
  EXPECT_EQ(timing.conditions.foreign_processes, 1);
  EXPECT_TRUE(timing.conditions.provisional());
}

TEST(JudgedLengths, OfABatchAreAlikeAndUnlike) {
  const auto of = [](const char* text, int kv_len) {
    return judged_lengths(Problem::parse(text), kv_len);
  };
  using Mixes = std::vector<std::vector<int>>;
  EXPECT_EQ(of("decode/b4/q1/kv1-1024/h4x2/d64/contiguous/bf16", 1000),
            (Mixes{{1000, 1000, 1000, 1000}, {250, 500, 750, 1000}}));
  EXPECT_EQ(of("decode/b4/q1/kv1-1024/h4x2/d64/contiguous/bf16", 2),
            (Mixes{{2, 2, 2, 2}, {1, 1, 1, 2}}));
  EXPECT_EQ(of("decode/b1/q1/kv1-1024/h4x2/d64/contiguous/bf16", 1000), (Mixes{{1000}}));
  EXPECT_EQ(of("decode/b2/q1/kv1-1024/h4x2/d64/w64/ring/bf16", 1000), (Mixes{{1000, 1000}}));
}

TEST_F(AttentionTimerTest, JudgesABatchByTheMeanOverBothMixes) {
  std::map<std::vector<int>, int> seen;
  device_.on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void* params) {
    if (!FakeDevice::symbol_of(kernel).starts_with("splitkv")) return;
    const auto& p = *static_cast<const AttentionParams*>(params);
    const std::vector<int> lengths(p.kv_len, p.kv_len + p.batch);
    ++seen[lengths];
    device_.now_us += lengths.front() == 512 ? 30 : 20;
  };
  const Timing timing = make_timer(kProblem).judge(load(kProblem), kCandidate, 512);
  EXPECT_DOUBLE_EQ(timing.median_us, 25);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_EQ((seen[{512, 512}]), (seen[{256, 512}]));
}

TEST_F(AttentionTimerTest, KeepsTheGraphsOfThoseWhoTakeTurns) {
  launches_take({25});
  int captures = 0;
  device_.on_call = [&](std::string_view call) { captures += call == "capture"; };
  AttentionTimer timer = make_timer(kProblem);
  const AttentionKernels kernels = load(kProblem);
  const Candidate other{"splitkv", {16, 32, 2, 4}, 2};
  for (int round = 0; round < 3; ++round) {
    timer.measure(kernels, kCandidate, 512);
    timer.measure(kernels, other, 512);
  }
  EXPECT_EQ(captures, 2);
  timer.measure(kernels, kCandidate, 256);  // other lengths
  EXPECT_EQ(captures, 3);
  const AttentionKernels again = load(kProblem);  // other kernels
  timer.measure(again, kCandidate, 256);
  EXPECT_EQ(captures, 4);
  timer.measure(again, kCandidate, 256, {.new_graph = true});
  EXPECT_EQ(captures, 5);
}

TEST_F(AttentionTimerTest, ThrowsWhenTheClockIsBroken) {
  launches_take({25});
  device_.clock_us = [] { return std::nan(""); };
  AttentionTimer timer = make_timer(kProblem);
  EXPECT_THROW(timer.measure(load(kProblem), kCandidate, 512), Error);
}

TEST_F(AttentionTimerTest, RotatesOverBuffersAndEvictsBeforeEachReplay) {
  std::set<const void*> buffers;
  std::vector<std::string> order;
  device_.on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void* params) {
    const std::string& symbol = FakeDevice::symbol_of(kernel);
    if (symbol.starts_with("splitkv")) {
      buffers.insert(static_cast<const AttentionParams*>(params)->k);
      device_.now_us += 40;
    }
    if (symbol == "probe_read") {
      EXPECT_GE(static_cast<const ProbeParams*>(params)->num_bytes, 3 * device_.info().l2_bytes);
    }
    order.push_back(symbol);
  };
  AttentionTimer timer = make_timer(kProblem);
  const AttentionKernels kernels = load(kProblem);
  order.clear();
  timer.measure(kernels, kCandidate, 1024);
  EXPECT_EQ(buffers.size(), 4u);  // 5 launches over all sets that 4 L2s hold
  const auto reads = std::count(order.begin(), order.end(), "probe_read");
  EXPECT_EQ(reads, 8 + 2 + TimerOptions{}.min_samples);  // a new graph settles, then warms up
  order.clear();
  timer.measure(kernels, kCandidate, 1024);
  EXPECT_EQ(std::count(order.begin(), order.end(), "probe_read"), 2 + TimerOptions{}.min_samples);
}

TEST_F(AttentionTimerTest, CountsNothingOfTheFirstReplaysOfANewGraph) {
  int num_reads = 0;
  device_.on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void*) {
    const std::string& symbol = FakeDevice::symbol_of(kernel);
    if (symbol == "probe_read") ++num_reads;
    if (symbol.starts_with("splitkv")) device_.now_us += num_reads <= 6 ? 40 : 42;  // as on an H200
  };
  AttentionTimer timer = make_timer(kProblem);
  const AttentionKernels kernels = load(kProblem);
  num_reads = 0;
  EXPECT_DOUBLE_EQ(timer.measure(kernels, kCandidate, 1024).median_us, 42);
  EXPECT_DOUBLE_EQ(timer.measure(kernels, kCandidate, 1024).median_us, 42);
}

TEST_F(AttentionTimerTest, LetsNoGraphSettleThatIsSlowAnyway) {
  int num_reads = 0;
  device_.on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void*) {
    const std::string& symbol = FakeDevice::symbol_of(kernel);
    if (symbol == "probe_read") ++num_reads;
    if (symbol.starts_with("splitkv")) device_.now_us += 40;
  };
  AttentionTimer timer = make_timer(kProblem);
  const AttentionKernels kernels = load(kProblem);
  num_reads = 0;
  timer.measure(kernels, kCandidate, 1024, {.abandon_above_us = 30});
  EXPECT_EQ(num_reads, 1 + 2 + 2);  // one settles, two warm up, two are above it
}

TEST_F(AttentionTimerTest, TellsEverySequenceItsLength) {
  const Problem problem = Problem::parse("decode/b3/q1/kv1-5000/h4x2/d64/w100/contiguous/bf16");
  std::set<std::vector<int>> seen;
  device_.on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void* params) {
    if (!FakeDevice::symbol_of(kernel).starts_with("splitkv")) return;
    const auto& p = *static_cast<const AttentionParams*>(params);
    seen.insert({p.kv_len, p.kv_len + p.batch});
    device_.now_us += 40;
  };
  make_timer(problem).measure(load(problem), kCandidate, std::vector{7, 5000, 90});
  EXPECT_EQ(seen, (std::set<std::vector<int>>{{7, 128, 90}}));  // beyond the window nothing changes
}

TEST_F(AttentionTimerTest, RotatesWhatIsReadPastTheL2HoweverLittleOfASetThatIs) {
  const Problem problem = Problem::parse("decode/b8/q1/kv1-1024/h4x2/d64/contiguous/bf16");
  std::vector<int> kv_lens(8, 1);
  kv_lens[3] = 1024;
  std::set<const void*> buffers;
  device_.on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void* params) {
    if (!FakeDevice::symbol_of(kernel).starts_with("splitkv")) return;
    buffers.insert(static_cast<const AttentionParams*>(params)->k);
    device_.now_us += 5;
  };
  make_timer(problem).measure(load(problem), kCandidate, kv_lens);
  EXPECT_GE(buffers.size() * problem_bytes(problem, kv_lens), 3.0 * (1 << 20));
}

TEST_F(AttentionTimerTest, AllocatesForTheLongestLengthItIsToldOf) {
  launches_take({25});
  Problem problem = kProblem;
  problem.kv.max = 1 << 18;
  AttentionTimer timer(device_, compiled(probe_source("sm_90a")), problem, 1024);
  EXPECT_LT(device_.live_bytes(), std::size_t{16} << 20);
  timer.measure(load(problem), kCandidate, 1 << 14);  // grows
  EXPECT_GT(device_.live_bytes(), std::size_t{32} << 20);
}

TEST_F(AttentionTimerTest, KeepsEveryLaunchInsideItsBuffers) {
  for (const char* text : {"decode/b3/q1/kv1-777/h4x2/d64/contiguous/bf16",
                           "verify/b2/q4/kv1-5000/h4x2/d64/w100/ring/bf16",
                           "verify/b2/q4/kv1-5000/h4x2/d64/w100/softcap/contiguous/bf16"}) {
    const Problem problem = Problem::parse(text);
    int num_launches = 0;
    device_.on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void* params) {
      if (!FakeDevice::symbol_of(kernel).starts_with("splitkv")) return;
      // Reads all of K, V and q and writes out: the address sanitizer judges.
      compute_attention(variant_of_symbol(FakeDevice::symbol_of(kernel)),
                        *static_cast<const AttentionParams*>(params));
      device_.now_us += 300;
      ++num_launches;
    };
    AttentionTimer timer = make_timer(problem);
    const AttentionKernels kernels = load(problem);
    for (const int kv_len : {1, 3, problem.kv.max}) {
      const Timing timing =
          timer.measure(kernels, kCandidate, kv_len, {.min_samples = 1, .max_samples = 1});
      EXPECT_DOUBLE_EQ(timing.median_us, 300);
    }
    std::vector<int> kv_lens(static_cast<std::size_t>(problem.batch), problem.kv.max);
    kv_lens.front() = 2;
    timer.measure(kernels, kCandidate, kv_lens, {.min_samples = 1, .max_samples = 1});
    EXPECT_GT(num_launches, 0);
  }
}

TEST_F(AttentionTimerTest, RefusesBuffersLargerThanHalfOfTheMemory) {
  DeviceInfo info = small_l2_device_info();
  info.memory_bytes = std::size_t{8} << 20;
  FakeDevice small(info);
  Problem problem = kProblem;
  problem.kv.max = 1 << 16;
  try {
    AttentionTimer timer(small, compiled(probe_source("sm_90a")), problem);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("needed_bytes=134217728"), std::string::npos)
        << error.what();
  }
}

TEST_F(AttentionTimerTest, RefusesALengthItHasNoBuffersFor) {
  launches_take({25});
  AttentionTimer timer = make_timer(kProblem);
  EXPECT_THROW(timer.measure(load(kProblem), kCandidate, 1025), InvalidArgument);
  EXPECT_THROW(timer.measure(load(kProblem), kCandidate, 0), InvalidArgument);
  const auto measure = [&](std::vector<int> kv_lens) {
    return timer.measure(load(kProblem), kCandidate, kv_lens);
  };
  EXPECT_THROW(measure({1}), InvalidArgument);
  EXPECT_THROW(measure({1, 2, 3}), InvalidArgument);
  EXPECT_THROW(measure({1, 1025}), InvalidArgument);
  EXPECT_THROW(measure({0, 1}), InvalidArgument);
  EXPECT_EQ(measure({1, 1024}).median_us, 25);
}

TEST_F(AttentionTimerTest, GivesAllMemoryBack) {
  launches_take({25});
  make_timer(kProblem).measure(load(kProblem), kCandidate, 512);
  EXPECT_EQ(device_.live_bytes(), 0u);
  EXPECT_EQ(device_.live_modules(), 0);
}

TEST_F(AttentionTimerTest, MeasuresCeilingsByTheFastestSample) {
  DeviceInfo info = small_l2_device_info();
  info.memory_bytes = std::size_t{64} << 20;
  FakeDevice device(info);
  int reads = 0;
  device.on_launch = [&](const Kernel& kernel, const KernelLaunch& shape, const void* params) {
    const auto& probe = *static_cast<const ProbeParams*>(params);
    if (FakeDevice::symbol_of(kernel) == "probe_read") {
      device.now_us += static_cast<double>(probe.num_bytes) / 4e6 * (reads++ == 3 ? 1 : 2);
    } else if (FakeDevice::symbol_of(kernel) == "probe_tensor") {
      EXPECT_EQ(shape.grid.x, 132u);
      device.now_us += probe.iterations;
    }
  };
  const Ceilings ceilings = measure_ceilings(device, compiled(probe_source("sm_90a")));
  EXPECT_NEAR(ceilings.read_bytes_per_s, 4e12, 1e6);
  EXPECT_NEAR(ceilings.tensor_flops_per_s, probe_tensor_flops_per_iteration(true) * 132 * 1e6, 1e6);
}

}  // namespace
}  // namespace attune
