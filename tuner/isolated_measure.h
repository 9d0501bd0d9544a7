// Measures in attune-measure-worker processes, so that a candidate can harm nothing but one of
// them: what crashes, hangs or poisons its context is a rejection, and the next candidate gets a
// process that nothing ran in before. The calling process needs no context on the device.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "tuner/measure_protocol.h"
#include "tuner/measure_service.h"

namespace attune {

// Modules that a process loads before another one takes its place: drivers keep tables of them that
// never shrink.
constexpr int kLoadsPerWorker = 1000;
// Starts that may fail in a row.
constexpr int kStartAttempts = 2;

struct IsolatedMeasureOptions {
  std::string worker_path = {};    // attune-measure-worker; empty: beside this library or program
  std::string device = {};         // DeviceChoice's text
  double candidate_timeout_s = 0;  // of one request; 0: as long as deadlines.h says
  int loads_per_worker = kLoadsPerWorker;
};

// A process ends with the first failure in it, when it has loaded enough, and with this object.
class IsolatedMeasure : public MeasureService {
 public:
  // `device` is what options.device is. Throws DeviceUnavailable when the program is missing. The
  // first process starts with the first candidate.
  IsolatedMeasure(IsolatedMeasureOptions options, DeviceInfo device);
  ~IsolatedMeasure() override;

  const DeviceInfo& device() const override { return device_; }
  void open(const MeasureUnit& unit) override;
  // Frees what the unit took on the device.
  void close() override;
  // A candidate's first failure in a process where others ran, or that somebody else ended, may not
  // be its own: it is asked for once more in a new process.
  VerifyOutcome verify(const Candidate& candidate, const Binary& binary, const Stop& stop) override;
  TimeOutcome time(const Candidate& candidate, const Binary& binary, int kv_len,
                   const TimerOptions& options, const Stop& stop) override;

  int num_started() const { return num_started_; }

 private:
  // A process died, or was ended, before it answered.
  struct Lost {
    Rejection rejection;
    bool is_from_outside = false;  // somebody else ended it
  };
  using Reply = std::variant<MeasureAnswer, Lost, Dropped>;
  struct Worker;

  // One request to the process there is.
  Reply exchange(const MeasureRequest& request, double deadline_s, const Stop& stop);
  // False when stopped.
  bool start(const Stop& stop);
  bool prepare(MeasureAsk ask, const Stop& stop);
  Reply open_and_prepare(MeasureAsk ask, const Stop& stop);
  // A request for a candidate to a prepared process.
  Reply run(MeasureRequest request, const Candidate& candidate, const Binary& binary,
            const Stop& stop);
  Reply run_once(MeasureRequest* request, const Variant& variant, const Binary& binary,
                 const Stop& stop);
  double deadline_s(const MeasureRequest& request) const;

  const IsolatedMeasureOptions options_;
  const DeviceInfo device_;
  std::string program_;
  MeasureUnit unit_;
  // Those of the unit that had a second chance, for each kind of request.
  std::set<std::pair<MeasureAsk, Candidate>> doubtful_;
  std::unique_ptr<Worker> worker_;  // empty until something is asked for, and after a failure
  int num_started_ = 0;
};

}  // namespace attune
