#include "tuner/linear_verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/expert_plan.h"
#include "templates/model_plan.h"
#include "templates/probe_params.h"
#include "tuner/compare.h"
#include "tuner/parallel.h"
#include "tuner/timer.h"
#include "tuner/timestamp.h"

namespace attune {
namespace {

constexpr std::size_t kUploadBytes = std::size_t{64} << 20;
constexpr std::size_t kNanBytes = 4096;  // behind W and x
constexpr float kSoftcap = 1.5f;         // of logits: bends sums of about 1
// Tens of microseconds of loads from L2; a kernel behind begins after a few.
constexpr int kLateWaits = 256;
constexpr unsigned kLateThreads = 256;

}  // namespace

LinearVerifier::LinearVerifier(Device& device, const Problem& problem, std::uint64_t seed,
                               const Binary* probes)
    : device_(device),
      problem_(problem),
      inputs_(linear_inputs(problem, seed)),
      reference_(inputs_),
      element_bytes_(problem.linear.epilogue == LinearEpilogue::kLogits ? sizeof(float)
                                                                        : kBytesPerElement),
      stream_(device.create_stream()),
      out_(device, element_bytes_ * static_cast<std::size_t>(problem.linear_tokens) *
                       typical_entries(problem.linear, problem.linear_tokens).size() *
                       static_cast<std::size_t>(problem.linear.out_features)) {
  if (probes != nullptr) {
    probes_ = device.load(*probes);
    copy_late_ = device.kernel(probes_, "copy_late", 0);
  }
  upload_weights(inputs_);
  const int all = problem.linear_tokens;
  for (const int num_tokens : {all, all / 2 + 1, 1}) {
    const bool caps = problem.linear.epilogue == LinearEpilogue::kLogits && !cases_.empty();
    cases_.push_back(make_case(num_tokens, caps ? kSoftcap : 0.0f));
  }
  device.synchronize(stream_.get());
}

LinearVerifier::Case LinearVerifier::make_case(int num_tokens, float softcap) {
  const LinearShape& shape = problem_.linear;
  Case one{num_tokens, softcap, typical_entries(shape, num_tokens), {}, {}, {}};
  one.list = expert_list(device_, one.entries, stream_.get());
  const std::size_t row = static_cast<std::size_t>(shape.in_features);
  std::vector<std::uint16_t> rows(row_bytes(one) / kBytesPerElement);
  for (std::size_t at = 0; at < rows.size(); at += row) {
    std::copy_n(inputs_.input.begin() + static_cast<std::ptrdiff_t>(at % inputs_.input.size()), row,
                rows.begin() + static_cast<std::ptrdiff_t>(at));
  }
  one.input = device_.allocate(row_bytes(one) + kNanBytes);
  device_.fill_bytes(one.input.ptr(), kPoison, one.input.bytes(), stream_.get());
  device_.copy_to_device(one.input.ptr(), std::as_bytes(std::span(rows)), stream_.get());
  if (copy_late_) {
    one.rows = device_.allocate(row_bytes(one));
    device_.copy_to_device(one.rows.ptr(), std::as_bytes(std::span(rows)), stream_.get());
  }
  device_.synchronize(stream_.get());
  return one;
}

std::size_t LinearVerifier::row_bytes(const Case& one) const {
  const int rows = problem_.linear.has_input_per_expert() ? one.num_rows() : one.num_tokens;
  return std::size_t{kBytesPerElement} * static_cast<std::size_t>(rows) *
         static_cast<std::size_t>(problem_.linear.in_features);
}

void LinearVerifier::upload_weights(const LinearInputs& inputs) {
  const std::size_t bytes = linear_weight_bytes(problem_.linear);
  weights_ = device_.allocate(bytes + kNanBytes);
  device_.fill_bytes(weights_.ptr() + bytes, kPoison, kNanBytes, stream_.get());
  for (std::size_t begin = 0; begin < bytes; begin += kUploadBytes) {
    std::vector<std::byte> part(std::min(kUploadBytes, bytes - begin));
    fill_weights(inputs, begin, &part);
    device_.copy_to_device(weights_.ptr() + begin, part, stream_.get());
    device_.synchronize(stream_.get());
  }
}

double LinearVerifier::flops() const {
  return problem_flops(problem_, 1) * static_cast<double>(cases_.size());
}

double LinearVerifier::Errors::relative_l2() const {
  return norm == 0 ? (difference == 0 ? 0 : std::numeric_limits<double>::infinity())
                   : std::sqrt(difference / norm);
}

double LinearVerifier::value_at(const Bytes& out, std::size_t idx) const {
  if (element_bytes_ == sizeof(float)) {
    float value = 0;
    std::memcpy(&value, &out[idx * sizeof value], sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, &out[idx * sizeof bits], sizeof bits);
  return bf16_to_float(bits);
}

// NaNs, then a kernel that replaces them by x when the next one has long begun.
void LinearVerifier::write_input_late(const Case& one) {
  device_.fill_bytes(one.input.ptr(), kPoison, row_bytes(one), stream_.get());
  const LateCopyParams p{reinterpret_cast<const void*>(one.rows.ptr()),
                         reinterpret_cast<void*>(one.input.ptr()), row_bytes(one), kLateWaits};
  KernelLaunch late;
  late.block = {kLateThreads, 1, 1};
  device_.launch(copy_late_, late, &p, stream_.get());
}

// One launch into poisoned memory; what it wrote for its tokens.
std::variant<LinearVerifier::Bytes, Rejection> LinearVerifier::launch(const LinearKernel& linear,
                                                                      const Case& one,
                                                                      bool late_input) {
  out_.poison(device_, stream_.get());
  if (late_input) write_input_late(one);
  launch_linear(device_, linear,
                {.weights = weights_.ptr(),
                 .input = one.input.ptr(),
                 .out = out_.ptr(),
                 .num_tokens = one.num_tokens,
                 .softcap = one.softcap,
                 .chosen = one.list.ptr(),
                 .most_entries = static_cast<int>(one.entries.size())},
                stream_.get());
  Bytes out = out_.read(device_, stream_.get());
  if (const auto at = out_.broken_guard(device_, stream_.get())) {
    return Rejection{RejectReason::kOutOfBounds,
                     fmt::format("tokens={} wrote byte {} of out", one.num_tokens, *at)};
  }
  const std::size_t written =
      element_bytes_ * static_cast<std::size_t>(one.num_rows()) * problem_.linear.out_features;
  const auto is_written = [](std::byte byte) { return byte != std::byte{kPoison}; };
  if (std::any_of(out.begin() + static_cast<std::ptrdiff_t>(written), out.end(), is_written)) {
    return Rejection{RejectReason::kOutOfBounds,
                     fmt::format("tokens={} wrote rows of other tokens", one.num_tokens)};
  }
  out.resize(written);
  return out;
}

std::variant<LinearVerifier::Errors, Rejection> LinearVerifier::compare(const Case& one,
                                                                        const Bytes& out) const {
  const int outputs = problem_.linear.out_features;
  std::mutex mutex;  // of the next two
  Errors all;
  std::optional<std::pair<int, std::string>> wrong;  // of the first row
  const bool is_experts = problem_.linear.is_experts();
  parallel_for(static_cast<std::size_t>(one.num_rows()), 0, [&](std::size_t idx) {
    const int row = static_cast<int>(idx);
    const int token = row % one.num_tokens;
    const int expert = one.entries[idx / static_cast<std::size_t>(one.num_tokens)];
    const int input = problem_.linear.has_input_per_expert() ? row : token;
    Errors errors;
    std::string failure;
    for (int i = 0; i < outputs && failure.empty(); ++i) {
      const LinearOutput expected = reference_.output(input, i, one.softcap, expert);
      const double value = value_at(out, idx * static_cast<std::size_t>(outputs) + i);
      const double error = std::abs(value - expected.value);
      if (!(error <= expected.tolerance)) {
        failure = fmt::format("tokens={} {}token={} output={}: {:.6g} expected={:.6g} limit={:.1e}",
                              one.num_tokens,
                              is_experts ? fmt::format("expert={} ", expert) : std::string(), token,
                              i, value, expected.value, expected.tolerance);
      }
      errors.difference += error * error;
      errors.norm += expected.value * expected.value;
      errors.max_abs = std::max(errors.max_abs, error);
    }
    const std::lock_guard lock(mutex);
    all.difference += errors.difference;
    all.norm += errors.norm;
    all.max_abs = std::max(all.max_abs, errors.max_abs);
    if (!failure.empty() && (!wrong || row < wrong->first)) wrong = {row, failure};
  });
  if (wrong) return Rejection{RejectReason::kWrongResult, wrong->second};
  if (all.relative_l2() > kMaxRelativeL2) {
    return Rejection{RejectReason::kWrongResult,
                     fmt::format("tokens={} relative_l2={:.2e} limit={:.2e}", one.num_tokens,
                                 all.relative_l2(), kMaxRelativeL2)};
  }
  return all;
}

// The launches of a case.
std::variant<LinearVerifier::Result, Rejection> LinearVerifier::run(const LinearKernel& linear,
                                                                    const Case& one) {
  auto first = launch(linear, one);
  if (auto* rejection = std::get_if<Rejection>(&first)) return std::move(*rejection);
  Bytes& out = std::get<Bytes>(first);
  auto errors = compare(one, out);
  if (auto* rejection = std::get_if<Rejection>(&errors)) return std::move(*rejection);
  auto second = launch(linear, one);
  if (auto* rejection = std::get_if<Rejection>(&second)) return std::move(*rejection);
  if (std::get<Bytes>(second) != out) {
    return Rejection{RejectReason::kWrongResult,
                     fmt::format("tokens={} a second run gave other bits", one.num_tokens)};
  }
  if (copy_late_) {
    auto late = launch(linear, one, true);
    if (auto* rejection = std::get_if<Rejection>(&late)) return std::move(*rejection);
    if (std::get<Bytes>(late) != out) {
      return Rejection{RejectReason::kWrongResult,
                       fmt::format("tokens={} x that the kernel in front writes at its end gave "
                                   "other bits: it is read before griddepcontrol.wait",
                                   one.num_tokens)};
    }
  }
  out.resize(element_bytes_ * problem_.linear.out_features);  // the first token's
  return Result{std::get<Errors>(errors), std::move(out)};
}

std::variant<Admission, Rejection> LinearVerifier::verify(const AttentionKernels& kernels,
                                                          const Candidate& candidate) {
  Admission admission;
  admission.reference = kLinearReferenceName;
  const LinearKernel linear{kernels.split, candidate.config, problem_.linear,
                            plan_linear(problem_.linear, candidate.config, device_.info().num_sms)};
  std::map<float, Bytes> first_tokens;  // by softcap
  try {
    for (const Case& one : cases_) {
      auto outcome = run(linear, one);
      if (auto* rejection = std::get_if<Rejection>(&outcome)) return std::move(*rejection);
      auto& [errors, first_token] = std::get<Result>(outcome);
      ++admission.num_cases;
      admission.max_abs_error = std::max(admission.max_abs_error, errors.max_abs);
      double& relative_l2 = one.num_tokens == problem_.linear_tokens
                                ? admission.relative_l2
                                : admission.worst_case_relative_l2;
      relative_l2 = std::max(relative_l2, errors.relative_l2());
      const auto known = first_tokens.find(one.softcap);
      if (known != first_tokens.end() && known->second != first_token) {
        return Rejection{RejectReason::kWrongResult,
                         fmt::format("tokens={} the first token has other bits than among more",
                                     one.num_tokens)};
      }
      first_tokens[one.softcap] = std::move(first_token);
    }
  } catch (const CudaError& error) {
    return Rejection{RejectReason::kLaunch, error.what()};
  }
  admission.created_at = utc_timestamp();
  return admission;
}

}  // namespace attune
