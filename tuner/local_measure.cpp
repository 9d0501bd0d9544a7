#include "tuner/local_measure.h"

#include "common/error.h"

namespace attune {
namespace {

// Runs what a unit begins with; whatever fails there fails the unit.
template <typename Prepare>
void preparing(const Prepare& prepare) {
  try {
    prepare();
  } catch (const std::exception& error) {
    throw UnitError(error.what());
  }
}

}  // namespace

bool is_usable(Device& device) {
  try {
    device.synchronize(nullptr);
    const DeviceMem probe = device.allocate(sizeof(int));
    device.fill_bytes(probe.ptr(), 0, probe.bytes(), nullptr);
    device.synchronize(nullptr);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void LocalMeasure::open(const MeasureUnit& unit) {
  close();
  unit_ = unit;
}

void LocalMeasure::close() {
  loaded_.clear();
  timer_.reset();
  verifier_.reset();
  unit_.reset();
}

void LocalMeasure::prepare_verify() {
  if (verifier_ != nullptr) return;
  timer_.reset();
  preparing([&] {
    verifier_ = make_verifier(device_, unit_.value().problem, unit_->seed, unit_->probes);
  });
}

void LocalMeasure::prepare_time() {
  if (timer_ != nullptr) return;
  verifier_.reset();
  preparing([&] {
    timer_ = make_timer(device_, *unit_.value().probes, unit_->problem);
    if (monitor_ == nullptr) monitor_ = open_device_monitor(device_.info());
    timer_->watch(*monitor_);
  });
}

double LocalMeasure::verification_flops() const { return verifier_->flops(); }

const AttentionKernels& LocalMeasure::load(const Candidate& candidate, const Binary& binary) {
  const Problem& problem = unit_.value().problem;
  const Variant variant = candidate.variant(problem);
  auto loaded = loaded_.find(variant);
  if (loaded == loaded_.end()) {
    loaded = loaded_
                 .emplace(variant,
                          load_attention(device_, binary, variant, plan_launch(problem, candidate)))
                 .first;
  }
  return loaded->second;
}

VerifyOutcome LocalMeasure::verify(const Candidate& candidate, const Binary& binary, const Stop&) {
  prepare_verify();
  try {
    const auto outcome = verifier_->verify(load(candidate, binary), candidate);
    if (const auto* rejection = std::get_if<Rejection>(&outcome)) return *rejection;
    return std::get<Admission>(outcome);
  } catch (const Error& error) {
    return Rejection{RejectReason::kLaunch, error.what()};
  }
}

TimeOutcome LocalMeasure::time(const Candidate& candidate, const Binary& binary, int kv_len,
                               const TimerOptions& options, const Stop&) {
  prepare_time();
  try {
    return timer_->judge(load(candidate, binary), candidate, kv_len, options);
  } catch (const CudaError& error) {
    return Rejection{RejectReason::kLaunch, error.what()};
  } catch (const Error& error) {
    return Rejection{RejectReason::kTimeout, error.what()};
  }
}

}  // namespace attune
