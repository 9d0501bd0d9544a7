// The measuring kernels on a device, and events around what is measured.
#pragma once

#include <algorithm>
#include <cstdint>

#include "jit/device.h"
#include "templates/params.h"

namespace attune {

// The measuring kernels on a device.
class Probes {
 public:
  Probes(Device& device, const Binary& binary)
      : device_(device),
        module_(device.load(binary)),
        fill_(device.kernel(module_, "fill_noise", 0)),
        read_(device.kernel(module_, "probe_read", 0)),
        tensor_(device.kernel(module_, "probe_tensor", 0)),
        sink_(device.allocate(sizeof(float))) {}

  // Random bf16.
  void fill_noise(const DeviceMem& mem, StreamHandle stream) {
    const FillParams params{reinterpret_cast<void*>(mem.ptr()), mem.bytes() / 16 * 16, kNoiseSeed};
    device_.launch(fill_, grid_of(kFillThreads), &params, stream);
  }
  void read(const DeviceMem& mem, StreamHandle stream) {
    const ProbeParams params{reinterpret_cast<const void*>(mem.ptr()), mem.bytes() / 16 * 16, 0,
                             sink()};
    device_.launch(read_, grid_of(kReadThreads), &params, stream);
  }
  // Returns the number of CTAs.
  unsigned tensor(int iterations, StreamHandle stream) {
    KernelLaunch shape{{1, 1, 1}, {kProbeTensorThreads, 1, 1}, 0};
    const int resident = std::max(1, device_.resident_blocks(tensor_, shape));
    shape.grid.x = static_cast<unsigned>(device_.info().num_sms * resident);
    const ProbeParams params{nullptr, 0, iterations, sink()};
    device_.launch(tensor_, shape, &params, stream);
    return shape.grid.x;
  }

 private:
  static constexpr std::uint64_t kNoiseSeed = 0x5eed;
  static constexpr unsigned kFillThreads = 256;
  static constexpr unsigned kReadThreads = 512;
  static constexpr unsigned kCtasPerSm = 4;

  float* sink() const { return reinterpret_cast<float*>(sink_.ptr()); }
  KernelLaunch grid_of(unsigned threads) const {
    const auto ctas = static_cast<unsigned>(device_.info().num_sms) * kCtasPerSm;
    return {{ctas, 1, 1}, {threads, 1, 1}, 0};
  }

  Device& device_;
  Module module_;
  Kernel fill_, read_, tensor_;
  DeviceMem sink_;
};

// Events around a piece of work.
class StopWatch {
 public:
  explicit StopWatch(Device& device)
      : device_(device), begin_(device.create_event()), end_(device.create_event()) {}

  template <typename Work>
  double time_us(StreamHandle stream, const Work& work) {
    device_.record(begin_, stream);
    work();
    device_.record(end_, stream);
    return device_.elapsed_us(begin_, end_);
  }

 private:
  Device& device_;
  Event begin_, end_;
};

}  // namespace attune
