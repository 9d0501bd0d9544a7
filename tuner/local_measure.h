// Measures on a device of this process: what attune-measure-worker does. A candidate that harms the
// device harms the process, so nothing else uses it but tests.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "jit/device.h"
#include "jit/device_monitor.h"
#include "tuner/measure_service.h"
#include "tuner/verify.h"

namespace attune {

// True when calls to the device still succeed.
bool is_usable(Device& device);

class LocalMeasure : public MeasureService {
 public:
  explicit LocalMeasure(Device& device) : device_(device) {}
  const DeviceInfo& device() const override { return device_.info(); }

  void open(const MeasureUnit& unit) override;
  void close() override;
  // What verify and time begin with where nobody called them: the inputs, or the timer, which takes
  // their place. Throw UnitError.
  void prepare_verify();
  void prepare_time();
  // Of the prepared verification.
  double verification_flops() const;

  VerifyOutcome verify(const Candidate& candidate, const Binary& binary, const Stop& stop) override;
  TimeOutcome time(const Candidate& candidate, const Binary& binary, int kv_len,
                   const TimerOptions& options, const Stop& stop) override;

 private:
  // Candidates that differ in their split cap share the loaded kernels of a variant.
  const AttentionKernels& load(const Candidate& candidate, const Binary& binary);

  Device& device_;
  std::optional<MeasureUnit> unit_;
  std::unique_ptr<CandidateVerifier> verifier_;
  std::unique_ptr<DeviceMonitor> monitor_;
  std::unique_ptr<CandidateTimer> timer_;
  std::map<Variant, AttentionKernels> loaded_;
};

}  // namespace attune
