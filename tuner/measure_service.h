// What the stages need of a device: whether a candidate is right, and how long it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <variant>

#include "cache/records.h"
#include "common/error.h"
#include "jit/binary.h"
#include "jit/device_info.h"
#include "tuner/timer.h"

namespace attune {

// Nothing of a unit can be measured: its buffers do not fit, for instance.
class UnitError : public Error {
 public:
  using Error::Error;
};

// In the detail of a rejection for which the system or a person is to blame, perhaps.
constexpr const char* kEndedFromOutside = "was ended from outside";

// The call was stopped; nothing is known of the candidate.
struct Dropped {};
using VerifyOutcome = std::variant<Admission, Rejection, Dropped>;
using TimeOutcome = std::variant<Timing, Rejection, Dropped>;

// Polled while a candidate runs; true ends the call at once.
using Stop = std::function<bool()>;

// Candidates of one problem.
struct MeasureUnit {
  Problem problem;
  std::uint64_t seed = 1;          // of the verification's inputs
  const Binary* probes = nullptr;  // the measuring kernels; outlive the unit
};

class MeasureService {
 public:
  virtual ~MeasureService() = default;
  virtual const DeviceInfo& device() const = 0;

  // Candidates are of this unit from here on; what an earlier one took is given back.
  virtual void open(const MeasureUnit& unit) = 0;
  virtual void close() = 0;

  // Whatever a candidate does is its outcome. Throws UnitError, and DeviceUnavailable when there is
  // no device to go on with.
  virtual VerifyOutcome verify(const Candidate& candidate, const Binary& binary,
                               const Stop& stop) = 0;
  virtual TimeOutcome time(const Candidate& candidate, const Binary& binary, int kv_len,
                           const TimerOptions& options, const Stop& stop) = 0;
};

}  // namespace attune
