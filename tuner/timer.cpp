#include "tuner/timer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/host_target.h"
#include "jit/source.h"
#include "templates/split_plan.h"

namespace attune {
namespace {

// K/V of one replay together, in units of the L2, where they are too small to need rotating.
constexpr std::size_t kPoolOverL2 = 4;
// A single launch this far above the limit is not worth a graph; the constant is launch latency.
constexpr double kHopelessFactor = 2;
constexpr double kHopelessUs = 20;
constexpr int kRingRounding = 64;
constexpr std::uint64_t kNoiseSeed = 0x5eed;

constexpr unsigned kFillThreads = 256;
constexpr unsigned kReadThreads = 512;
constexpr unsigned kCtasPerSm = 4;
constexpr double kTensorProbeUs = 2000;

KeyRange visible(const Problem& problem, int kv_len, int first_token, int last_token) {
  return visible_keys(kv_len, problem.seqlen_q, first_token, last_token, problem.window,
                      problem.causal ? 1 : 0);
}

double quantile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Binary compile_probes(const Device& device, const Compiler& compiler) {
  const std::string& arch = device.info().arch;
  return compiler.compile(probe_source(arch), arch);
}

// The measuring kernels on a device.
class Probes {
 public:
  Probes(Device& device, const Binary& binary)
      : device_(device),
        module_(device.load(binary)),
        fill_(device.kernel(module_, "fill_noise", 0)),
        read_(device.kernel(module_, "probe_read", 0)),
        tensor_(device.kernel(module_, "probe_tensor", 0)),
        sink_(device.allocate(sizeof(float))) {}

  void fill_noise(const DeviceMem& mem, StreamHandle stream) {
    const FillParams params{reinterpret_cast<void*>(mem.ptr()), mem.bytes() / 16 * 16, kNoiseSeed};
    device_.launch(fill_, grid_of(kFillThreads), &params, stream);
  }
  void read(const DeviceMem& mem, StreamHandle stream) {
    const ProbeParams params{reinterpret_cast<const void*>(mem.ptr()), mem.bytes() / 16 * 16, 0,
                             sink()};
    device_.launch(read_, grid_of(kReadThreads), &params, stream);
  }
  // Returns the number of CTAs.
  unsigned tensor(int iterations, StreamHandle stream) {
    KernelLaunch shape{{1, 1, 1}, {kProbeTensorThreads, 1, 1}, 0};
    const int resident = std::max(1, device_.resident_blocks(tensor_, shape));
    shape.grid.x = static_cast<unsigned>(device_.info().num_sms * resident);
    const ProbeParams params{nullptr, 0, iterations, sink()};
    device_.launch(tensor_, shape, &params, stream);
    return shape.grid.x;
  }

 private:
  float* sink() const { return reinterpret_cast<float*>(sink_.ptr()); }
  KernelLaunch grid_of(unsigned threads) const {
    const auto ctas = static_cast<unsigned>(device_.info().num_sms) * kCtasPerSm;
    return {{ctas, 1, 1}, {threads, 1, 1}, 0};
  }

  Device& device_;
  Module module_;
  Kernel fill_, read_, tensor_;
  DeviceMem sink_;
};

// Events around a piece of work.
class StopWatch {
 public:
  explicit StopWatch(Device& device)
      : device_(device), begin_(device.create_event()), end_(device.create_event()) {}

  template <typename Work>
  double time_us(StreamHandle stream, const Work& work) {
    device_.record(begin_, stream);
    work();
    device_.record(end_, stream);
    return device_.elapsed_us(begin_, end_);
  }

 private:
  Device& device_;
  Event begin_, end_;
};

}  // namespace

struct AttentionTimer::State {
  State(Device& on, const Binary& binary, const Problem& asked)
      : device(on),
        sizes(timing_sizes(on.info())),
        problem(asked),
        stream(on.create_stream()),
        probes(on, binary),
        watch(on),
        pool(on.allocate(pool_bytes())),
        evict(on.allocate(std::max<std::size_t>(16, sizes.evict_over_l2 * on.info().l2_bytes))),
        q(on.allocate(q_elements() * kBytesPerElement)),
        out(on.allocate(q_elements() * kBytesPerElement)),
        kv_len(on.allocate(static_cast<std::size_t>(asked.batch) * sizeof(int))),
        block_table(on.allocate(block_table_bytes())) {
    probes.fill_noise(pool, stream.get());
    probes.fill_noise(q, stream.get());
    device.fill_bytes(evict.ptr(), 0, evict.bytes(), stream.get());
    device.synchronize(stream.get());
  }

  std::size_t q_elements() const {
    return std::size_t{1} * problem.batch * problem.seqlen_q * problem.num_q_heads *
           problem.head_dim;
  }

  // Rows of a sequence.
  std::int64_t capacity(int length) const {
    const bool is_ring = problem.kv_layout == KvLayout::kRing;
    const int rows = is_ring ? min_ring_capacity(problem) : length;
    const int multiple = is_ring ? kRingRounding : std::max(problem.page_size, 1);
    return std::int64_t{1} * (rows + multiple - 1) / multiple * multiple;
  }
  std::int64_t row_elements() const {
    return std::int64_t{1} * problem.num_kv_heads *
           kv_row_columns(problem.kv_layout, problem.head_dim);
  }
  // K and V of all sequences at one kv_len.
  std::size_t set_bytes(int length) const {
    const std::size_t buffers = is_unified(problem.kv_layout) ? 1 : 2;
    return buffers * problem.batch * capacity(length) * row_elements() * kBytesPerElement;
  }

  // The pages of all sequences in an order without locality, as a cache has them after a while.
  void write_block_table(int length) {
    if (!is_paged(problem.kv_layout)) return;
    std::vector<int> table(static_cast<std::size_t>(problem.batch * num_pages(length)));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(kNoiseSeed));
    device.copy_to_device(block_table.ptr(), std::as_bytes(std::span(table)), stream.get());
  }
  // Of a sequence.
  std::int64_t num_pages(int length) const {
    return is_paged(problem.kv_layout) ? capacity(length) / problem.page_size : 0;
  }

  std::size_t block_table_bytes() const {
    const std::int64_t pages = num_pages(equivalent_kv_len(problem, problem.kv.max));
    return static_cast<std::size_t>(std::max<std::int64_t>(problem.batch * pages, 1)) * sizeof(int);
  }

  std::size_t pool_bytes() const {
    const std::size_t largest = 2 * set_bytes(equivalent_kv_len(problem, problem.kv.max));
    const std::size_t limit = device.free_memory_bytes() / 2;
    if (largest > limit) {
      throw Error("the K/V buffers for timing do not fit",
                  fmt::format("problem={} needed_bytes={} limit_bytes={} (half of the free memory)",
                              problem.text(), largest, limit),
                  "tune a smaller batch or kv range, or free device memory");
    }
    return std::max(largest, std::min(kPoolOverL2 * device.info().l2_bytes, limit));
  }

  // The launch on the K/V buffers number `set_idx`.
  AttentionParams params(const LaunchPlan& plan, int length, std::size_t set_idx) const {
    AttentionParams p{};
    const DevicePtr set = pool.ptr() + set_idx * set_bytes(length);
    p.q = reinterpret_cast<const void*>(q.ptr());
    p.k = reinterpret_cast<const void*>(set);
    p.v = reinterpret_cast<const void*>(set + set_bytes(length) / 2);  // unless rows are unified
    p.out = reinterpret_cast<void*>(out.ptr());
    p.kv_len = reinterpret_cast<const int*>(kv_len.ptr());
    p.q_head_stride = p.out_head_stride = problem.head_dim;
    p.k_head_stride = p.v_head_stride = kv_row_columns(problem.kv_layout, problem.head_dim);
    p.q_token_stride = p.out_token_stride =
        std::int64_t{1} * problem.num_q_heads * problem.head_dim;
    p.q_batch_stride = p.out_batch_stride = problem.seqlen_q * p.q_token_stride;
    p.k_token_stride = p.v_token_stride = row_elements();
    const bool paged = is_paged(problem.kv_layout);
    p.k_batch_stride = p.v_batch_stride =
        (paged ? problem.page_size : capacity(length)) * row_elements();
    p.block_table = reinterpret_cast<const int*>(block_table.ptr());
    p.block_table_stride = num_pages(length);
    p.kv_capacity = static_cast<int>(capacity(length));
    p.overlap = 1;
    p.ring_capacity = problem.kv_layout == KvLayout::kRing ? static_cast<int>(capacity(length)) : 0;
    p.sm_scale = 1.0f / std::sqrt(static_cast<float>(problem.head_dim));
    p.softcap = problem.softcap ? 50.0f : 0.0f;
    set_plan_params(problem, plan, workspace.ptr(), &p);
    return p;
  }

  void prepare(const LaunchPlan& plan, int length) {
    if (workspace.bytes() < plan.workspace_bytes()) {
      workspace = DeviceMem();  // gives the old one back first
      workspace = device.allocate(plan.workspace_bytes());
    }
    const std::vector<int> lengths(static_cast<std::size_t>(problem.batch), length);
    device.copy_to_device(kv_len.ptr(), std::as_bytes(std::span(lengths)), stream.get());
    write_block_table(length);
  }

  Timing sample(const Graph& graph, int num_launches, const TimerOptions& options) {
    const auto replay_us = [&] {
      if (sizes.evict_over_l2 > 0) probes.read(evict, stream.get());
      return watch.time_us(stream.get(), [&] { device.launch(graph, stream.get()); });
    };
    for (int i = 0; i < sizes.warm_ups; ++i) replay_us();
    const int max_samples = std::min(options.max_samples, sizes.max_samples);
    const int min_samples = std::min(options.min_samples, max_samples);
    Timing timing;
    std::vector<double> samples;
    for (int i = 0; i < max_samples; ++i) {
      samples.push_back(replay_us() / num_launches);
      if (options.abandon_above_us > 0 && samples.back() > options.abandon_above_us) break;
      if (i + 1 < min_samples) continue;
      timing = summarize(samples);
      if (timing.num_samples >= min_samples &&
          timing.spread_us <= options.relative_spread * timing.median_us) {
        break;
      }
    }
    return summarize(std::move(samples));
  }

  Device& device;
  const TimingSizes sizes;
  Problem problem;
  Stream stream;
  Probes probes;
  StopWatch watch;
  DeviceMem pool, evict, q, out, kv_len, block_table, workspace;
};

Timing summarize(std::vector<double> samples_us) {
  std::erase_if(samples_us, [](double us) { return !std::isfinite(us) || us <= 0; });
  Timing timing;
  timing.num_samples = static_cast<int>(samples_us.size());
  timing.samples_us = samples_us;
  if (samples_us.empty()) return timing;
  std::sort(samples_us.begin(), samples_us.end());
  timing.median_us = quantile(samples_us, 0.5);
  timing.spread_us = (quantile(samples_us, 0.75) - quantile(samples_us, 0.25)) / 2;
  return timing;
}

TimingSizes timing_sizes(const DeviceInfo& device) {
  if (!is_host_arch(device.arch)) return {};
  return {.min_launches = 1,
          .max_launches = 1,
          .warm_ups = 0,
          .max_samples = 2,
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

AttentionTimer::AttentionTimer(Device& device, const Compiler& compiler, const Problem& problem)
    : AttentionTimer(device, compile_probes(device, compiler), problem) {}

AttentionTimer::AttentionTimer(Device& device, const Binary& probes, const Problem& problem)
    : state_(std::make_unique<State>(device, probes, problem)) {}

AttentionTimer::~AttentionTimer() = default;

Timing AttentionTimer::measure(const AttentionKernels& kernels, const Candidate& candidate,
                               int kv_len, const TimerOptions& options) {
  State& s = *state_;
  if (kv_len < 1 || kv_len > s.problem.kv.max) {
    throw InvalidArgument("cannot time at a kv_len outside the problem's range",
                          fmt::format("kv_len={} problem={}", kv_len, s.problem.text()));
  }
  const int length = equivalent_kv_len(s.problem, kv_len);
  const LaunchPlan plan = plan_launch(s.problem, candidate);
  s.prepare(plan, length);
  const std::size_t num_sets = s.pool.bytes() / s.set_bytes(length);
  const auto launch = [&](std::size_t i) {
    const AttentionParams params = s.params(plan, length, i % num_sets);
    launch_attention(s.device, kernels, plan, params, s.stream.get());
  };
  launch(0);  // the first launch of a kernel may load it
  const double launch_us = s.watch.time_us(s.stream.get(), [&] { launch(1); });
  const double limit_us = options.abandon_above_us;
  if (limit_us > 0 && launch_us > kHopelessFactor * limit_us + kHopelessUs) {
    return summarize({launch_us});
  }
  const int num_launches = launches_per_graph(launch_us, s.sizes);
  const Graph graph = s.device.capture(s.stream.get(), [&] {
    for (int i = 0; i < num_launches; ++i) launch(static_cast<std::size_t>(i));
  });
  Timing timing = s.sample(graph, num_launches, options);
  if (timing.num_samples == 0) {
    throw Error("no usable time sample",
                fmt::format("candidate={} kv_len={} samples={}", candidate.text(), kv_len,
                            options.max_samples),
                "check the device's clock with 'attune doctor'");
  }
  return timing;
}

Ceilings measure_ceilings(Device& device, const Compiler& compiler) {
  return measure_ceilings(device, compile_probes(device, compiler));
}

Ceilings measure_ceilings(Device& device, const Binary& binary) {
  const Stream stream = device.create_stream();
  Probes probes(device, binary);
  StopWatch watch(device);
  const TimingSizes sizes = timing_sizes(device.info());
  const auto fastest_us = [&](const auto& work) {
    work();  // warm-up
    std::vector<double> samples;
    for (int i = 0; i < sizes.probe_samples; ++i)
      samples.push_back(watch.time_us(stream.get(), work));
    const Timing timing = summarize(std::move(samples));
    if (timing.num_samples == 0) throw Error("no usable time sample of a probe kernel");
    return *std::min_element(timing.samples_us.begin(), timing.samples_us.end());
  };

  Ceilings ceilings;
  const std::size_t bytes =
      std::min(sizes.read_probe_bytes, device.free_memory_bytes() / 4) / 16 * 16;
  const DeviceMem data = device.allocate(bytes);
  probes.fill_noise(data, stream.get());
  const double read_us = fastest_us([&] { probes.read(data, stream.get()); });
  ceilings.read_bytes_per_s = static_cast<double>(bytes) / read_us * 1e6;

  const double trial_us =
      fastest_us([&] { probes.tensor(sizes.tensor_probe_trial, stream.get()); });
  const int iterations =
      std::max(1, static_cast<int>(sizes.tensor_probe_trial * kTensorProbeUs / trial_us));
  unsigned num_ctas = 0;
  const double tensor_us = fastest_us([&] { num_ctas = probes.tensor(iterations, stream.get()); });
  const bool has_wgmma = device.info().arch == "sm_90a";
  ceilings.tensor_flops_per_s =
      probe_tensor_flops_per_iteration(has_wgmma) * iterations * num_ctas / tensor_us * 1e6;
  return ceilings;
}

double attention_bytes(const Problem& problem, int kv_len) {
  const KeyRange keys = visible(problem, kv_len, 0, problem.seqlen_q - 1);
  const double row_elements =
      is_unified(problem.kv_layout) ? kUnifiedColumns : 2 * problem.head_dim;
  const double kv_elements = row_elements * (keys.end - keys.begin) * problem.num_kv_heads;
  const double q_elements = 2.0 * problem.seqlen_q * problem.num_q_heads * problem.head_dim;
  return (kv_elements + q_elements) * kBytesPerElement * problem.batch;
}

double attention_flops(const Problem& problem, int kv_len) {
  double pairs = 0;
  for (int token = 0; token < problem.seqlen_q; ++token) {
    const KeyRange keys = visible(problem, kv_len, token, token);
    pairs += keys.end - keys.begin;
  }
  return 4.0 * pairs * problem.num_q_heads * problem.head_dim * problem.batch;
}

}  // namespace attune
