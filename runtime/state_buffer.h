// Integers in device memory that kernels read (lengths, places in a batch, page ids), changed by
// launches alone, so that they change in order with the work on the stream.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "jit/device.h"
#include "runtime/prepared.h"

namespace attune {

// The kernel that writes them (templates/state.cuh), loaded once.
struct StateWriter {
  std::shared_ptr<const LoadedModule> module;
  Kernel kernel;
};

class StateBuffer {
 public:
  // `count` integers, all -1. Waits.
  StateBuffer(Device& device, std::shared_ptr<const StateWriter> writer, std::size_t count);

  // What the integer shall be once flush's launch has run.
  void set(std::size_t at, int value);
  // Takes back what set wants at that place and no flush has launched.
  void forget(std::size_t at) noexcept;
  bool is_current() const { return num_changed_ == 0; }
  // Launches what set has changed; nothing when nothing has. Throws InvalidArgument on a stream
  // that is being captured: a graph would write the same values at every replay. What a failed
  // launch left out is launched by the next flush.
  void flush(StreamHandle stream);

  DevicePtr ptr(std::size_t at = 0) const { return mem_.ptr() + at * sizeof(int); }

 private:
  std::size_t launch_from(std::size_t begin, StreamHandle stream);

  Device& device_;
  std::shared_ptr<const StateWriter> writer_;
  DeviceMem mem_;
  std::vector<int> wanted_, written_;
  std::vector<std::size_t> changed_;  // places that may differ, some more than once
  std::size_t num_changed_ = 0;       // places that do
};

}  // namespace attune
