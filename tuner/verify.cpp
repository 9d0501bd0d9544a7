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
// Padding in elements, multiples of 8: different ones, so that swapped strides show.
constexpr std::int64_t kQTokenPadding = 8, kQBatchPadding = 24;
constexpr std::int64_t kOutTokenPadding = 16, kOutBatchPadding = 40;
constexpr std::int64_t kKvBatchPadding = 64;

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
  DeviceMem q, kv, kv_len;
  GuardedMem out, lse;
  AttentionParams params{};
};

template <typename T>
DeviceMem upload(Device& device, const std::vector<T>& data, StreamHandle stream) {
  DeviceMem mem = device.allocate(data.size() * sizeof(T));
  device.copy_to_device(mem.ptr(), std::as_bytes(std::span(data)), stream);
  return mem;
}

// Sets the strides of [batch, tokens, heads, head_dim] data with padding.
void set_strides(const Problem& problem, AttentionParams* params) {
  const std::int64_t row = std::int64_t{1} * problem.num_q_heads * problem.head_dim;
  params->q_head_stride = params->out_head_stride = problem.head_dim;
  params->q_token_stride = row + kQTokenPadding;
  params->q_batch_stride = problem.seqlen_q * params->q_token_stride + kQBatchPadding;
  params->out_token_stride = row + kOutTokenPadding;
  params->out_batch_stride = problem.seqlen_q * params->out_token_stride + kOutBatchPadding;
}

std::vector<std::uint16_t> padded_q(const AttentionInputs& in, const AttentionParams& params) {
  const std::size_t row = std::size_t{1} * in.problem.num_q_heads * in.problem.head_dim;
  std::vector<std::uint16_t> q(in.kv_len.size() * params.q_batch_stride, kPaddingBf16);
  for (std::size_t b = 0; b < in.kv_len.size(); ++b) {
    for (int t = 0; t < in.problem.seqlen_q; ++t) {
      const std::uint16_t* from = &in.q[(b * in.problem.seqlen_q + t) * row];
      std::copy_n(from, row, &q[b * params.q_batch_stride + t * params.q_token_stride]);
    }
  }
  return q;
}

// K and V rows of a token side by side: [batch, capacity, {K, V}, heads, head_dim].
std::vector<std::uint16_t> interleaved_kv(const AttentionInputs& in) {
  const std::size_t row = std::size_t{1} * in.problem.num_kv_heads * in.problem.head_dim;
  const std::size_t batch_stride = in.capacity * 2 * row + kKvBatchPadding;
  std::vector<std::uint16_t> kv(in.kv_len.size() * batch_stride, kPaddingBf16);
  parallel_for(in.kv_len.size(), 0, [&](std::size_t b) {
    for (int t = 0; t < in.capacity; ++t) {
      const std::size_t from = (b * in.capacity + t) * row;
      std::uint16_t* to = &kv[b * batch_stride + t * 2 * row];
      std::copy_n(&in.k[from], row, to);
      std::copy_n(&in.v[from], row, to + row);
    }
  });
  return kv;
}

DeviceCase make_case(Device& device, const VerifyCase& host, StreamHandle stream) {
  const AttentionInputs& in = host.inputs;
  DeviceCase one{&host, {}, {}, {}, {}, {}, {}};
  AttentionParams& params = one.params;
  set_strides(in.problem, &params);
  const std::int64_t kv_row = std::int64_t{1} * in.problem.num_kv_heads * in.problem.head_dim;
  params.k_head_stride = params.v_head_stride = in.problem.head_dim;
  params.k_token_stride = params.v_token_stride = 2 * kv_row;
  params.k_batch_stride = params.v_batch_stride = in.capacity * 2 * kv_row + kKvBatchPadding;

  one.q = upload(device, padded_q(in, params), stream);
  one.kv = upload(device, interleaved_kv(in), stream);
  one.kv_len = upload(device, in.kv_len, stream);
  one.out = GuardedMem(device, in.kv_len.size() * params.out_batch_stride * kBytesPerElement);
  one.lse = GuardedMem(device, host.expected.lse.size() * sizeof(float));
  device.synchronize(stream);

  params.q = reinterpret_cast<const void*>(one.q.ptr());
  params.k = reinterpret_cast<const void*>(one.kv.ptr());
  params.v = reinterpret_cast<const void*>(one.kv.ptr() + kv_row * kBytesPerElement);
  params.out = reinterpret_cast<void*>(one.out.ptr());
  params.kv_len = reinterpret_cast<const int*>(one.kv_len.ptr());
  params.ring_capacity = in.problem.kv_layout == KvLayout::kRing ? in.capacity : 0;
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
      const auto outcome = state_->run(one, kernels, candidate);
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
