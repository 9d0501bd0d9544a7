#include "tuner/timer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "jit/host/host_target.h"
#include "jit/source.h"
#include "templates/split_plan.h"
#include "tuner/kv_set.h"

namespace attune {
namespace {

// K/V of launches in turn, in units of the L2.
constexpr std::size_t kPoolOverL2 = 4;
// A single launch this far above the limit is not worth a graph; the constant is launch latency.
constexpr double kHopelessFactor = 2;
constexpr double kHopelessUs = 20;
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
  State(Device& on, const Binary& binary, const Problem& asked, int longest_kv_len)
      : device(on),
        sizes(timing_sizes(on.info())),
        problem(asked),
        stream(on.create_stream()),
        probes(on, binary),
        watch(on),
        evict(on.allocate(std::max<std::size_t>(16, sizes.evict_over_l2 * on.info().l2_bytes))),
        q(on.allocate(q_elements() * kBytesPerElement)),
        out(on.allocate(q_elements() * kBytesPerElement)),
        kv_len(on.allocate(static_cast<std::size_t>(asked.batch) * sizeof(int))),
        block_table(on.allocate(block_table_bytes())) {
    const std::vector<int> longest(static_cast<std::size_t>(asked.batch),
                                   equivalent_kv_len(asked, longest_kv_len));
    reserve(kv_set(problem, longest), rotation_bytes());
    probes.fill_noise(q, stream.get());
    device.fill_bytes(evict.ptr(), 0, evict.bytes(), stream.get());
    device.synchronize(stream.get());
  }

  // K and V that lie between two launches on the same ones.
  std::size_t rotation_bytes() const { return kPoolOverL2 * device.info().l2_bytes; }

  std::size_t q_elements() const {
    return std::size_t{1} * problem.batch * problem.seqlen_q * problem.num_q_heads *
           problem.head_dim;
  }

  std::size_t block_table_bytes() const {
    if (!is_paged(problem.kv_layout)) return sizeof(int);
    const int longest = equivalent_kv_len(problem, problem.kv.max);
    const std::int64_t pages =
        problem.batch * kv_set(problem, {&longest, 1}).capacity / problem.page_size;
    return static_cast<std::size_t>(pages) * sizeof(int);
  }

  // Makes the pool hold two of `set` at least, and `wanted_bytes` unless that is above half of the
  // memory that is free or the pool's.
  void reserve(const KvSet& set, std::size_t wanted_bytes) {
    const std::size_t limit = (device.free_memory_bytes() + pool.bytes()) / 2;
    const std::size_t bytes = std::max(2 * set.bytes, std::min(wanted_bytes, limit));
    if (bytes <= pool.bytes()) return;
    if (bytes > limit) {
      throw Error("the K/V buffers for timing do not fit",
                  fmt::format("problem={} needed_bytes={} limit_bytes={} (half of the free memory)",
                              problem.text(), bytes, limit),
                  "take a smaller batch or shorter sequences, or free device memory");
    }
    pool = DeviceMem();  // gives the old one back first
    pool = device.allocate(bytes);
    probes.fill_noise(pool, stream.get());
  }

  // The launch on the K/V buffers number `set_idx`.
  AttentionParams params(const LaunchPlan& plan, const KvSet& set, std::size_t set_idx) const {
    AttentionParams p{};
    const DevicePtr k = pool.ptr() + set_idx * set.bytes;
    const std::int64_t row_elements = std::int64_t{1} * problem.num_kv_heads *
                                      kv_row_columns(problem.kv_layout, problem.head_dim);
    const bool paged = is_paged(problem.kv_layout);
    p.q = reinterpret_cast<const void*>(q.ptr());
    p.k = reinterpret_cast<const void*>(k);
    p.v = reinterpret_cast<const void*>(k + set.bytes / 2);  // unless rows are unified
    p.out = reinterpret_cast<void*>(out.ptr());
    p.kv_len = reinterpret_cast<const int*>(kv_len.ptr());
    p.q_head_stride = p.out_head_stride = problem.head_dim;
    p.k_head_stride = p.v_head_stride = kv_row_columns(problem.kv_layout, problem.head_dim);
    p.q_token_stride = p.out_token_stride =
        std::int64_t{1} * problem.num_q_heads * problem.head_dim;
    p.q_batch_stride = p.out_batch_stride = problem.seqlen_q * p.q_token_stride;
    p.k_token_stride = p.v_token_stride = row_elements;
    p.k_batch_stride = p.v_batch_stride = (paged ? problem.page_size : set.capacity) * row_elements;
    p.block_table = reinterpret_cast<const int*>(block_table.ptr());
    p.block_table_stride = paged ? set.capacity / problem.page_size : 0;
    p.kv_capacity = static_cast<int>(set.capacity);
    p.overlap = 1;
    p.ring_capacity = problem.kv_layout == KvLayout::kRing ? static_cast<int>(set.capacity) : 0;
    p.sm_scale = 1.0f / std::sqrt(static_cast<float>(problem.head_dim));
    p.softcap = problem.softcap ? 50.0f : 0.0f;
    set_plan_params(problem, plan, workspace.ptr(), &p);
    return p;
  }

  // Puts what launches on `set` read into place.
  void prepare(const LaunchPlan& plan, const KvSet& set, std::span<const int> kv_lens) {
    if (workspace.bytes() < plan.workspace_bytes()) {
      workspace = DeviceMem();
      workspace = device.allocate(plan.workspace_bytes());
    }
    reserve(set, set.bytes * sets_in_turn(set, rotation_bytes(), sizes.max_launches));
    device.copy_to_device(kv_len.ptr(), std::as_bytes(kv_lens), stream.get());
    if (!is_paged(problem.kv_layout)) return;
    const std::vector<int> table = page_ids(problem, set, kNoiseSeed);
    device.copy_to_device(block_table.ptr(), std::as_bytes(std::span(table)), stream.get());
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

AttentionTimer::AttentionTimer(Device& device, const Compiler& compiler, const Problem& problem,
                               int longest_kv_len)
    : AttentionTimer(device, compile_probes(device, compiler), problem, longest_kv_len) {}

AttentionTimer::AttentionTimer(Device& device, const Binary& probes, const Problem& problem,
                               int longest_kv_len)
    : state_(std::make_unique<State>(device, probes, problem,
                                     longest_kv_len == 0 ? problem.kv.max : longest_kv_len)) {}

AttentionTimer::~AttentionTimer() = default;

Timing AttentionTimer::measure(const AttentionKernels& kernels, const Candidate& candidate,
                               int kv_len, const TimerOptions& options) {
  const std::vector<int> kv_lens(static_cast<std::size_t>(state_->problem.batch), kv_len);
  return measure(kernels, candidate, kv_lens, options);
}

Timing AttentionTimer::measure(const AttentionKernels& kernels, const Candidate& candidate,
                               std::span<const int> asked, const TimerOptions& options) {
  State& s = *state_;
  require_lengths(s.problem, asked);
  std::vector<int> kv_lens;
  for (const int kv_len : asked) kv_lens.push_back(equivalent_kv_len(s.problem, kv_len));
  const LaunchPlan plan = plan_launch(s.problem, candidate);
  const KvSet set = kv_set(s.problem, kv_lens);
  s.prepare(plan, set, kv_lens);
  const std::size_t num_sets = s.pool.bytes() / set.bytes;
  const auto launch = [&](std::size_t i) {
    const AttentionParams params = s.params(plan, set, i % num_sets);
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
                fmt::format("candidate={} kv_len={} samples={}", candidate.text(),
                            fmt::join(asked, ","), options.max_samples),
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

double attention_bytes(const Problem& problem, std::span<const int> kv_lens) {
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

double attention_bytes(const Problem& problem, int kv_len) {
  return attention_bytes(problem, {&kv_len, 1}) * problem.batch;
}

double attention_flops(const Problem& problem, std::span<const int> kv_lens) {
  double pairs = 0;
  for (const int kv_len : kv_lens) {
    for (int token = 0; token < problem.seqlen_q; ++token) {
      const KeyRange keys = visible(problem, kv_len, token, token);
      pairs += keys.end - keys.begin;
    }
  }
  return 4.0 * pairs * problem.num_q_heads * problem.head_dim;
}

double attention_flops(const Problem& problem, int kv_len) {
  return attention_flops(problem, {&kv_len, 1}) * problem.batch;
}

}  // namespace attune
