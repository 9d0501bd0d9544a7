#include "tuner/timer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "jit/source.h"
#include "tuner/kv_set.h"
#include "tuner/linear_timer.h"
#include "tuner/replay_timer.h"

namespace attune {
namespace {

constexpr std::uint64_t kPageSeed = 0x5eed;
constexpr double kTensorProbeUs = 2000;

Binary compile_probes(const Device& device, const Compiler& compiler) {
  const std::string& arch = device.info().arch;
  return compiler.compile(probe_source(arch), arch);
}

}  // namespace

struct AttentionTimer::State {
  using Mixes = std::vector<std::vector<int>>;  // lengths of the batch, in turn
  State(Device& on, const Binary& binary, const Problem& asked, int longest_kv_len)
      : device(on),
        problem(asked),
        replays(on, binary),
        q(on.allocate(q_elements() * kBytesPerElement)),
        out(on.allocate(q_elements() * kBytesPerElement)),
        kv_len(on.allocate(kMostMixes * mix_bytes())),
        block_table(on.allocate(block_table_bytes())) {
    const std::vector<int> longest(static_cast<std::size_t>(asked.batch),
                                   equivalent_kv_len(asked, longest_kv_len));
    reserve(kv_set(problem, longest), replays.rotation_bytes());
    replays.probes().fill_noise(q, replays.stream());
    device.synchronize(replays.stream());
  }

  static constexpr std::size_t kMostMixes = 2;
  std::size_t mix_bytes() const { return static_cast<std::size_t>(problem.batch) * sizeof(int); }

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
    replays.probes().fill_noise(pool, replays.stream());
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
    reserve(set,
            set.bytes * sets_in_turn(set, replays.rotation_bytes(), replays.sizes().max_launches));
    if (workspace.ptr() != old_workspace || pool.ptr() != old_pool || mixes != captured_for) {
      replays.forget();
      captured_for = mixes;
    }
    for (std::size_t i = 0; i < mixes.size(); ++i) {
      device.copy_to_device(kv_len.ptr() + i * mix_bytes(), std::as_bytes(std::span(mixes[i])),
                            replays.stream());
    }
    if (!is_paged(problem.kv_layout)) return;
    const std::vector<int> table = page_ids(problem, set, kPageSeed);
    device.copy_to_device(block_table.ptr(), std::as_bytes(std::span(table)), replays.stream());
  }

  Timing measure(const AttentionKernels& kernels, const Candidate& candidate, Mixes mixes,
                 const TimerOptions& options);

  Device& device;
  Problem problem;
  ReplayTimer replays;
  Mixes captured_for;
  DeviceMem pool, q, out, kv_len, block_table, workspace;
};

AttentionTimer::AttentionTimer(Device& device, const Compiler& compiler, const Problem& problem,
                               int longest_kv_len)
    : AttentionTimer(device, compile_probes(device, compiler), problem, longest_kv_len) {}

AttentionTimer::AttentionTimer(Device& device, const Binary& probes, const Problem& problem,
                               int longest_kv_len)
    : state_(std::make_unique<State>(device, probes, problem,
                                     longest_kv_len == 0 ? problem.kv.max : longest_kv_len)) {}

AttentionTimer::~AttentionTimer() = default;

void AttentionTimer::watch(DeviceMonitor& monitor) { state_->replays.watch(monitor); }

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
  const std::size_t num_sets = pool.bytes() / set.bytes;
  const auto launch = [&](std::size_t i) {
    launch_attention(device, kernels, plan, params(plan, set, i % num_sets, i % mixes.size()),
                     replays.stream());
  };
  return replays.measure(kernels, candidate, static_cast<int>(mixes.size()), launch, options,
                         fmt::format("kv_len={}", fmt::join(mixes.front(), ",")));
}

std::unique_ptr<CandidateTimer> make_timer(Device& device, const Binary& probes,
                                           const Problem& problem) {
  if (problem.is_linear()) return std::make_unique<LinearTimer>(device, probes, problem);
  return std::make_unique<AttentionTimer>(device, probes, problem);
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
