#include "tuner/timer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "jit/source.h"
#include "tuner/kv_set.h"

namespace attune {
namespace {

// K/V of launches in turn, in units of the L2.
constexpr std::size_t kPoolOverL2 = 4;
// A single launch this far above the limit is not worth a graph; the constant is launch latency.
constexpr double kHopelessFactor = 2;
constexpr double kHopelessUs = 20;
// Windows in which a clock jumped before the samples are taken as they come.
constexpr int kMostWindows = 3;
// Graphs that are kept for the next round: finalists take turns at one length.
constexpr std::size_t kMostGraphs = 8;
constexpr std::uint64_t kNoiseSeed = 0x5eed;

constexpr unsigned kFillThreads = 256;
constexpr unsigned kReadThreads = 512;
constexpr unsigned kCtasPerSm = 4;
constexpr double kTensorProbeUs = 2000;

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
  using Mixes = std::vector<std::vector<int>>;  // lengths of the batch, in turn
  struct Captured {
    const void* function;  // of the split kernel
    Graph graph;
    int num_launches;
  };

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
        kv_len(on.allocate(kMostMixes * mix_bytes())),
        block_table(on.allocate(block_table_bytes())) {
    const std::vector<int> longest(static_cast<std::size_t>(asked.batch),
                                   equivalent_kv_len(asked, longest_kv_len));
    reserve(kv_set(problem, longest), rotation_bytes());
    probes.fill_noise(q, stream.get());
    device.fill_bytes(evict.ptr(), 0, evict.bytes(), stream.get());
    device.synchronize(stream.get());
  }

  static constexpr std::size_t kMostMixes = 2;
  std::size_t mix_bytes() const { return static_cast<std::size_t>(problem.batch) * sizeof(int); }

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

  // The launch on the K/V buffers number `set_idx`, of the lengths number `mix_idx`.
  AttentionParams params(const LaunchPlan& plan, const KvSet& set, std::size_t set_idx,
                         std::size_t mix_idx) const {
    AttentionParams p{};
    const DevicePtr k = pool.ptr() + set_idx * set.bytes;
    const std::int64_t row_elements = std::int64_t{1} * problem.num_kv_heads *
                                      kv_row_columns(problem.kv_layout, problem.head_dim);
    const bool paged = is_paged(problem.kv_layout);
    p.q = reinterpret_cast<const void*>(q.ptr());
    p.k = reinterpret_cast<const void*>(k);
    p.v = reinterpret_cast<const void*>(k + set.bytes / 2);  // unless rows are unified
    p.out = reinterpret_cast<void*>(out.ptr());
    p.kv_len = reinterpret_cast<const int*>(kv_len.ptr() + mix_idx * mix_bytes());
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
  void prepare(const LaunchPlan& plan, const KvSet& set, const Mixes& mixes) {
    const DevicePtr old_workspace = workspace.ptr(), old_pool = pool.ptr();
    if (workspace.bytes() < plan.workspace_bytes()) {
      workspace = DeviceMem();
      workspace = device.allocate(plan.workspace_bytes());
    }
    reserve(set, set.bytes * sets_in_turn(set, rotation_bytes(), sizes.max_launches));
    if (workspace.ptr() != old_workspace || pool.ptr() != old_pool || mixes != captured_for) {
      captured.clear();
      captured_for = mixes;
    }
    for (std::size_t i = 0; i < mixes.size(); ++i) {
      device.copy_to_device(kv_len.ptr() + i * mix_bytes(), std::as_bytes(std::span(mixes[i])),
                            stream.get());
    }
    if (!is_paged(problem.kv_layout)) return;
    const std::vector<int> table = page_ids(problem, set, kNoiseSeed);
    device.copy_to_device(block_table.ptr(), std::as_bytes(std::span(table)), stream.get());
  }

  // The samples of a window in which no clock jumps, as far as there is one.
  Timing sample(const Captured& work, const TimerOptions& options) {
    int num_dropped = 0;
    for (int window = 1;; ++window) {
      for (int i = 0; i < sizes.warm_ups; ++i) replay_us(work);
      const DeviceState before = onlooker ? onlooker->look() : DeviceState{};
      Timing timing = take_samples(work, options);
      if (onlooker) timing.conditions = onlooker->since(before);
      if (timing.conditions.steady || window == kMostWindows) {
        timing.num_dropped += num_dropped;
        return timing;
      }
      num_dropped += timing.num_samples + timing.num_dropped;
    }
  }

  Timing measure(const AttentionKernels& kernels, const Candidate& candidate, Mixes mixes,
                 const TimerOptions& options);

  double replay_us(const Captured& work) {
    if (sizes.evict_over_l2 > 0) probes.read(evict, stream.get());
    return watch.time_us(stream.get(), [&] { device.launch(work.graph, stream.get()); }) /
           work.num_launches;
  }

  Timing take_samples(const Captured& work, const TimerOptions& options) {
    const int max_samples = std::min(options.max_samples, sizes.max_samples);
    const int min_samples = std::min(options.min_samples, max_samples);
    Timing timing;
    std::vector<double> samples;
    int num_above = 0;
    for (int i = 0; i < max_samples; ++i) {
      samples.push_back(replay_us(work));
      if (options.abandon_above_us > 0 && samples.back() > options.abandon_above_us) ++num_above;
      if (num_above > 0 && num_above >= std::min(2, max_samples)) break;
      if (i + 1 < min_samples) continue;
      timing = summarize(samples);
      if (timing.num_samples >= min_samples &&
          timing.spread_us <= options.relative_spread * timing.median_us) {
        break;
      }
    }
    return summarize(samples);
  }

  Device& device;
  const TimingSizes sizes;
  Problem problem;
  Stream stream;
  Probes probes;
  StopWatch watch;
  std::optional<Watch> onlooker;
  std::map<Candidate, Captured> captured;  // for these lengths and the buffers that are there
  Mixes captured_for;
  DeviceMem pool, evict, q, out, kv_len, block_table, workspace;
};

AttentionTimer::AttentionTimer(Device& device, const Compiler& compiler, const Problem& problem,
                               int longest_kv_len)
    : AttentionTimer(device, compile_probes(device, compiler), problem, longest_kv_len) {}

AttentionTimer::AttentionTimer(Device& device, const Binary& probes, const Problem& problem,
                               int longest_kv_len)
    : state_(std::make_unique<State>(device, probes, problem,
                                     longest_kv_len == 0 ? problem.kv.max : longest_kv_len)) {}

AttentionTimer::~AttentionTimer() = default;

void AttentionTimer::watch(DeviceMonitor& monitor) { state_->onlooker.emplace(monitor); }

Timing AttentionTimer::measure(const AttentionKernels& kernels, const Candidate& candidate,
                               int kv_len, const TimerOptions& options) {
  const std::vector<int> kv_lens(static_cast<std::size_t>(state_->problem.batch), kv_len);
  return measure(kernels, candidate, kv_lens, options);
}

Timing AttentionTimer::measure(const AttentionKernels& kernels, const Candidate& candidate,
                               std::span<const int> asked, const TimerOptions& options) {
  return state_->measure(kernels, candidate, {{asked.begin(), asked.end()}}, options);
}

Timing AttentionTimer::judge(const AttentionKernels& kernels, const Candidate& candidate,
                             int kv_len, const TimerOptions& options) {
  return state_->measure(kernels, candidate, judged_lengths(state_->problem, kv_len), options);
}

Timing AttentionTimer::State::measure(const AttentionKernels& kernels, const Candidate& candidate,
                                      Mixes mixes, const TimerOptions& options) {
  for (std::vector<int>& kv_lens : mixes) {
    require_lengths(problem, kv_lens);
    for (int& length : kv_lens) length = equivalent_kv_len(problem, length);
  }
  const LaunchPlan plan = plan_launch(problem, candidate);
  const KvSet set = kv_set(problem, mixes.front());  // the longest lengths
  prepare(plan, set, mixes);
  auto known = captured.find(candidate);
  if (known == captured.end() || known->second.function != kernels.split.function) {
    const std::size_t num_sets = pool.bytes() / set.bytes;
    const auto launch = [&](std::size_t i) {
      launch_attention(device, kernels, plan, params(plan, set, i % num_sets, i % mixes.size()),
                       stream.get());
    };
    launch(0);  // the first launch of a kernel may load it
    const auto once_us = [&] { return watch.time_us(stream.get(), [&] { launch(1); }); };
    double launch_us = once_us();
    const double limit_us = options.abandon_above_us;
    if (limit_us > 0 && launch_us > kHopelessFactor * limit_us + kHopelessUs) {
      launch_us = std::min(launch_us, once_us());  // something may have held the first one up
      if (launch_us > kHopelessFactor * limit_us + kHopelessUs) return summarize({launch_us});
    }
    const auto num_mixes = static_cast<int>(mixes.size());
    const int wanted = launches_per_graph(launch_us, sizes);
    const int num_launches = (wanted + num_mixes - 1) / num_mixes * num_mixes;
    if (captured.size() >= kMostGraphs) captured.clear();
    Graph graph = device.capture(stream.get(), [&] {
      for (int i = 0; i < num_launches; ++i) launch(static_cast<std::size_t>(i));
    });
    known = captured
                .insert_or_assign(candidate,
                                  Captured{kernels.split.function, std::move(graph), num_launches})
                .first;
  }
  Timing timing = sample(known->second, options);
  if (timing.num_samples == 0) {
    throw Error("no usable time sample",
                fmt::format("candidate={} kv_len={} samples={}", candidate.text(),
                            fmt::join(mixes.front(), ","), options.max_samples),
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
    std::erase_if(samples, [](double us) { return !std::isfinite(us) || us <= 0; });
    if (samples.empty()) throw Error("no usable time sample of a probe kernel");
    return *std::min_element(samples.begin(), samples.end());
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

}  // namespace attune
