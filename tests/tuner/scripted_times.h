// Times that a test knows: candidates run and are timed by another service, then the numbers are
// replaced, so that noise decides nothing.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "tuner/measure_service.h"

namespace attune {

class ScriptedTimes : public MeasureService {
 public:
  ScriptedTimes(MeasureService& real, std::function<double(const Candidate&)> time_us)
      : real_(real), time_us_(std::move(time_us)) {}

  const DeviceInfo& device() const override { return real_.device(); }
  void open(const MeasureUnit& unit) override { real_.open(unit); }
  void close() override { real_.close(); }
  VerifyOutcome verify(const Candidate& candidate, const Binary& binary,
                       const Stop& stop) override {
    return real_.verify(candidate, binary, stop);
  }
  TimeOutcome time(const Candidate& candidate, const Binary& binary, int kv_len,
                   const TimerOptions& options, const Stop& stop) override {
    auto outcome = real_.time(candidate, binary, kv_len, options, stop);
    auto* timing = std::get_if<Timing>(&outcome);
    if (timing == nullptr) return outcome;
    return summarize(std::vector<double>(timing->samples_us.size(), time_us_(candidate)));
  }

 private:
  MeasureService& real_;
  std::function<double(const Candidate&)> time_us_;
};

}  // namespace attune
