#include "tuner/measure_server.h"

#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/device_choice.h"

namespace attune {
namespace {

[[noreturn]] void out_of_order(const char* what) {
  throw Error("cannot answer a request to measure", what, "use the worker programs of this attune");
}

}  // namespace

MeasureAnswer MeasureServer::answer(MeasureRequest request) {
  if (request.ask == MeasureAsk::kStart) return start(request);
  if (measure_ == nullptr) out_of_order("no device is open");
  try {
    switch (request.ask) {
      case MeasureAsk::kOpen:
        open(std::move(request));
        return {Ready{}};
      case MeasureAsk::kPrepareVerify:
        measure_->prepare_verify();
        return {Ready{measure_->verification_flops()}};
      case MeasureAsk::kPrepareTime:
        measure_->prepare_time();
        return {Ready{}};
      case MeasureAsk::kVerify:
        return verify(request);
      case MeasureAsk::kTime:
        return time(request);
      default:
        measure_->close();
        binaries_.clear();
        return {Ready{}};
    }
  } catch (const UnitError& error) {
    return {UnitFailure{error.what()}, is_usable(*device_)};
  } catch (const std::bad_alloc&) {
    return {Rejection{RejectReason::kLaunch, "out of memory on the host"}, false};
  }
}

// Another GPU's times would be stored as this one's.
MeasureAnswer MeasureServer::start(const MeasureRequest& request) {
  try {
    device_ = open_device(DeviceChoice::parse(request.device));
    const std::string identity = device_->info().identity();
    if (identity != request.gpu) {
      throw DeviceUnavailable(
          "the measure worker sees another device than the tuner",
          fmt::format("device={} worker={} tuner={}", request.device, identity, request.gpu));
    }
    measure_ = std::make_unique<LocalMeasure>(*device_);
    return {Ready{}};
  } catch (const Error& error) {
    return {NoDevice{error.what()}, false};
  }
}

void MeasureServer::open(MeasureRequest request) {
  if (!request.binary) out_of_order("a unit has no measuring kernels");
  measure_->close();
  binaries_.clear();
  problem_ = Problem::parse(request.problem);
  probes_ = std::move(*request.binary);
  measure_->open({problem_, request.seed, &probes_});
}

const Binary& MeasureServer::binary_of(MeasureRequest& request, const Candidate& candidate) {
  const Variant variant = candidate.variant(problem_);
  if (request.binary) binaries_[variant] = std::move(*request.binary);
  const auto found = binaries_.find(variant);
  if (found == binaries_.end()) out_of_order("a candidate has no binary");
  return found->second;
}

// Memory that an answer may have damaged is not good for the next candidate.
MeasureAnswer MeasureServer::verify(MeasureRequest& request) {
  const Candidate candidate = Candidate::parse(request.candidate);
  auto outcome = measure_->verify(candidate, binary_of(request, candidate), {});
  auto* rejection = std::get_if<Rejection>(&outcome);
  if (rejection == nullptr) return {std::get<Admission>(std::move(outcome))};
  const bool is_clean = rejection->reason == RejectReason::kLaunch && is_usable(*device_);
  return {std::move(*rejection), is_clean};
}

MeasureAnswer MeasureServer::time(MeasureRequest& request) {
  const Candidate candidate = Candidate::parse(request.candidate);
  auto outcome =
      measure_->time(candidate, binary_of(request, candidate), request.kv_len, request.options, {});
  auto* rejection = std::get_if<Rejection>(&outcome);
  if (rejection == nullptr) return {std::get<Timing>(std::move(outcome))};
  return {std::move(*rejection), is_usable(*device_)};
}

}  // namespace attune
