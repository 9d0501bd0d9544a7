#include "tuner/verify.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "common/error.h"
#include "tuner/compare.h"
#include "tuner/parallel.h"
#include "tuner/timestamp.h"

namespace attune {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::uint16_t kPaddingBf16 = 0x7fff;  // NaN between the rows of K, V and q
// Padding in elements behind a head, a token and a sequence: multiples of 8, all different, so that
// strides which are swapped, taken from another tensor or assumed to be dense show.
struct Padding {
  int head, token, batch;
};
constexpr Padding kQPadding{8, 24, 72};
constexpr Padding kKPadding{16, 40, 88};
constexpr Padding kVPadding{32, 56, 104};
constexpr Padding kOutPadding{48, 64, 120};

// In so few splits the accuracy case fills every pipeline stage many times.
constexpr int kFewSplits = 2;

// Memory with guard bytes before and after it.
class GuardedMem {
 public:
  GuardedMem() = default;
  GuardedMem(Device& device, std::size_t bytes)
      : mem_(device.allocate(bytes + 2 * kGuardBytes)), bytes_(bytes) {}

  DevicePtr ptr() const { return mem_.ptr() + kGuardBytes; }
  void poison(Device& device, StreamHandle stream) const {
    device.fill_bytes(mem_.ptr(), kPoison, mem_.bytes(), stream);
  }
  // Waits for the stream.
  std::vector<std::byte> read(Device& device, StreamHandle stream) const {
    std::vector<std::byte> bytes(bytes_);
    device.copy_to_host(bytes, ptr(), stream);
    return bytes;
  }
  // Index of the first overwritten guard byte, counted from the start of the payload.
  std::optional<std::int64_t> broken_guard(Device& device, StreamHandle stream) const {
    std::vector<std::byte> guard(kGuardBytes);
    const std::int64_t size = static_cast<std::int64_t>(bytes_);
    for (const std::int64_t at : {-static_cast<std::int64_t>(kGuardBytes), size}) {
      device.copy_to_host(guard, ptr() + static_cast<DevicePtr>(at), stream);
      const auto broken = std::find_if(guard.begin(), guard.end(),
                                       [](std::byte one) { return one != std::byte{kPoison}; });
      if (broken != guard.end()) return at + (broken - guard.begin());
    }
    return std::nullopt;
  }

 private:
  DeviceMem mem_;
  std::size_t bytes_ = 0;
};

// One case in device memory, with the parameters of its launch.
struct DeviceCase {
  const VerifyCase* host;
  DeviceMem q, k, v, kv_len;
  GuardedMem out, lse;
  AttentionParams params{};
};

template <typename T>
DeviceMem upload(Device& device, const std::vector<T>& data, StreamHandle stream) {
  DeviceMem mem = device.allocate(data.size() * sizeof(T));
  device.copy_to_device(mem.ptr(), std::as_bytes(std::span(data)), stream);
  return mem;
}

// A [batch, tokens, heads, head_dim] tensor with padding.
struct Shape {
  std::int64_t tokens, heads, head_dim;
  Padding padding;

  std::int64_t head_stride() const { return head_dim + padding.head; }
  std::int64_t token_stride() const { return heads * head_stride() + padding.token; }
  std::int64_t batch_stride() const { return tokens * token_stride() + padding.batch; }
};

std::vector<std::uint16_t> with_padding(const std::vector<std::uint16_t>& dense, std::size_t batch,
                                        const Shape& shape) {
  std::vector<std::uint16_t> padded(batch * shape.batch_stride(), kPaddingBf16);
  parallel_for(batch, 0, [&](std::size_t b) {
    const std::uint16_t* from = &dense[b * shape.tokens * shape.heads * shape.head_dim];
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      std::uint16_t* to = &padded[b * shape.batch_stride() + t * shape.token_stride()];
      for (std::int64_t h = 0; h < shape.heads; ++h, from += shape.head_dim) {
        std::copy_n(from, shape.head_dim, to + h * shape.head_stride());
      }
    }
  });
  return padded;
}

DeviceCase make_case(Device& device, const VerifyCase& host, StreamHandle stream) {
  const AttentionInputs& in = host.inputs;
  const Problem& problem = in.problem;
  const std::size_t batch = in.kv_len.size();
  const Shape q{problem.seqlen_q, problem.num_q_heads, problem.head_dim, kQPadding};
  const Shape k{in.capacity, problem.num_kv_heads, problem.head_dim, kKPadding};
  const Shape v{in.capacity, problem.num_kv_heads, problem.head_dim, kVPadding};
  const Shape out{problem.seqlen_q, problem.num_q_heads, problem.head_dim, kOutPadding};
  DeviceCase one{&host, {}, {}, {}, {}, {}, {}, {}};
  AttentionParams& params = one.params;
  const auto set = [](const Shape& shape, int64* batch_stride, int64* token_stride,
                      int64* head_stride) {
    *batch_stride = shape.batch_stride();
    *token_stride = shape.token_stride();
    *head_stride = shape.head_stride();
  };
  set(q, &params.q_batch_stride, &params.q_token_stride, &params.q_head_stride);
  set(k, &params.k_batch_stride, &params.k_token_stride, &params.k_head_stride);
  set(v, &params.v_batch_stride, &params.v_token_stride, &params.v_head_stride);
  set(out, &params.out_batch_stride, &params.out_token_stride, &params.out_head_stride);

  one.q = upload(device, with_padding(in.q, batch, q), stream);
  one.k = upload(device, with_padding(in.k, batch, k), stream);
  one.v = upload(device, with_padding(in.v, batch, v), stream);
  one.kv_len = upload(device, in.kv_len, stream);
  one.out = GuardedMem(device, batch * out.batch_stride() * kBytesPerElement);
  one.lse = GuardedMem(device, host.expected.lse.size() * sizeof(float));
  device.synchronize(stream);

  params.q = reinterpret_cast<const void*>(one.q.ptr());
  params.k = reinterpret_cast<const void*>(one.k.ptr());
  params.v = reinterpret_cast<const void*>(one.v.ptr());
  params.out = reinterpret_cast<void*>(one.out.ptr());
  params.kv_len = reinterpret_cast<const int*>(one.kv_len.ptr());
  params.ring_capacity = problem.kv_layout == KvLayout::kRing ? in.capacity : 0;
  params.sm_scale = in.sm_scale;
  params.softcap = in.softcap;
  return one;
}

// What a launch wrote.
struct RunResult {
  std::vector<std::byte> out, lse;
  std::optional<Rejection> rejection;  // a broken guard
};

}  // namespace

struct Verifier::State {
  State(Device& on, const std::vector<VerifyCase>& cases) : device(on), stream(on.create_stream()) {
    for (const VerifyCase& one : cases) device_cases.push_back(make_case(on, one, stream.get()));
  }

  // One launch into poisoned memory.
  RunResult launch(const DeviceCase& one, const AttentionKernels& kernels, const LaunchPlan& plan,
                   bool with_lse) {
    if (workspace_bytes != plan.workspace_bytes()) {
      workspace = GuardedMem(device, plan.workspace_bytes());
      workspace_bytes = plan.workspace_bytes();
    }
    AttentionParams params = one.params;
    set_plan_params(one.host->inputs.problem, plan, workspace.ptr(), &params);
    params.lse = with_lse ? reinterpret_cast<float*>(one.lse.ptr()) : nullptr;
    one.out.poison(device, stream.get());
    one.lse.poison(device, stream.get());
    workspace.poison(device, stream.get());
    launch_attention(device, kernels, plan, params, stream.get());
    RunResult result{one.out.read(device, stream.get()), one.lse.read(device, stream.get()), {}};
    const std::pair<const char*, const GuardedMem*> guarded[] = {
        {"out", &one.out}, {"lse", &one.lse}, {"workspace", &workspace}};
    for (const auto& [name, mem] : guarded) {
      if (const auto at = mem->broken_guard(device, stream.get())) {
        result.rejection =
            Rejection{RejectReason::kOutOfBounds,
                      fmt::format("case='{}' wrote byte {} of {}", one.host->name, *at, name)};
        break;
      }
    }
    return result;
  }

  std::variant<CaseErrors, Rejection> run(const DeviceCase& one, const AttentionKernels& kernels,
                                          const Candidate& candidate) {
    const LaunchPlan plan = plan_launch(one.host->inputs.problem, candidate);
    const RunResult first = launch(one, kernels, plan, true);
    if (first.rejection) return *first.rejection;
    auto errors = compare(*one.host, one.params, first.out, first.lse);
    if (std::holds_alternative<Rejection>(errors)) return errors;

    const RunResult second = launch(one, kernels, plan, true);
    const RunResult without_lse = launch(one, kernels, plan, false);
    for (const RunResult* again : {&second, &without_lse}) {
      if (again->rejection) return *again->rejection;
      if (again->out != first.out) {
        return Rejection{RejectReason::kWrongResult,
                         fmt::format("case='{}' {} gave other bits", one.host->name,
                                     again == &second ? "a second run" : "a run without lse")};
      }
    }
    if (second.lse != first.lse) {
      return Rejection{RejectReason::kWrongResult,
                       fmt::format("case='{}' a second run gave other lse bits", one.host->name)};
    }
    const auto is_poison = [](std::byte byte) { return byte == std::byte{kPoison}; };
    if (!std::all_of(without_lse.lse.begin(), without_lse.lse.end(), is_poison)) {
      return Rejection{RejectReason::kOutOfBounds,
                       fmt::format("case='{}' wrote lse when none was asked", one.host->name)};
    }
    return errors;
  }

  // As run. With many splits each has a tile or two here, while those of a long sequence have
  // hundreds: the accuracy case runs in few splits too. The cap is no part of the binary.
  std::variant<CaseErrors, Rejection> run_short_and_long(const DeviceCase& one,
                                                         const AttentionKernels& kernels,
                                                         const Candidate& candidate) {
    const auto errors = run(one, kernels, candidate);
    if (candidate.split_cap <= kFewSplits || one.host->name != kAccuracyCase) return errors;
    if (std::holds_alternative<Rejection>(errors)) return errors;
    Candidate few = candidate;
    few.split_cap = kFewSplits;
    const auto of_few = run(one, kernels, few);
    if (std::holds_alternative<Rejection>(of_few)) return of_few;
    const CaseErrors& a = std::get<CaseErrors>(errors);
    const CaseErrors& b = std::get<CaseErrors>(of_few);
    return CaseErrors{std::max(a.relative_l2, b.relative_l2),
                      std::max(a.worst_sequence, b.worst_sequence), std::max(a.max_abs, b.max_abs)};
  }

  Device& device;
  Stream stream;
  std::vector<DeviceCase> device_cases;
  GuardedMem workspace;
  std::size_t workspace_bytes = std::numeric_limits<std::size_t>::max();
};

Verifier::Verifier(Device& device, const std::vector<VerifyCase>& cases)
    : state_(std::make_unique<State>(device, cases)) {}

Verifier::~Verifier() = default;

std::variant<Admission, Rejection> Verifier::verify(const AttentionKernels& kernels,
                                                    const Candidate& candidate) {
  Admission admission;
  admission.reference = kReferenceName;
  try {
    for (const DeviceCase& one : state_->device_cases) {
      const auto outcome = state_->run_short_and_long(one, kernels, candidate);
      if (const auto* rejection = std::get_if<Rejection>(&outcome)) return *rejection;
      const CaseErrors& errors = std::get<CaseErrors>(outcome);
      admission.num_cases += static_cast<int>(one.host->inputs.kv_len.size());
      admission.max_abs_error = std::max(admission.max_abs_error, errors.max_abs);
      if (one.host->name == kAccuracyCase) {
        admission.relative_l2 = errors.relative_l2;
      } else {
        admission.worst_case_relative_l2 =
            std::max(admission.worst_case_relative_l2, errors.worst_sequence);
      }
    }
  } catch (const CudaError& error) {
    return Rejection{RejectReason::kLaunch, error.what()};
  }
  admission.created_at = utc_timestamp();
  return admission;
}

std::variant<Admission, Rejection> verify(Device& device, const AttentionKernels& kernels,
                                          const Candidate& candidate,
                                          const std::vector<VerifyCase>& cases) {
  return Verifier(device, cases).verify(kernels, candidate);
}

}  // namespace attune
