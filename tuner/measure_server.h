// Answers the requests of an IsolatedMeasure: the whole of attune-measure-worker but its pipes.
#pragma once

#include <map>
#include <memory>

#include "jit/device.h"
#include "tuner/local_measure.h"
#include "tuner/measure_protocol.h"

namespace attune {

class MeasureServer {
 public:
  // Throws Error for a request that makes no sense where it comes.
  MeasureAnswer answer(MeasureRequest request);

 private:
  MeasureAnswer start(const MeasureRequest& request);
  void open(MeasureRequest request);
  const Binary& binary_of(MeasureRequest& request, const Candidate& candidate);
  MeasureAnswer verify(MeasureRequest& request);
  MeasureAnswer time(MeasureRequest& request);

  std::unique_ptr<Device> device_;
  std::unique_ptr<LocalMeasure> measure_;
  // Of the unit.
  Problem problem_;
  Binary probes_;
  std::map<Variant, Binary> binaries_;
};

}  // namespace attune
