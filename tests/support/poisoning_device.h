// A Device whose fresh memory is NaN, so that what is read before it was written shows.
#pragma once

#include "tests/support/forwarding_device.h"

namespace attune {

class PoisoningDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  DeviceMem allocate(std::size_t bytes) override {
    DeviceMem memory = ForwardingDevice::allocate(bytes);
    fill_bytes(memory.ptr(), 0xff, memory.bytes(), nullptr);
    synchronize(nullptr);
    return memory;
  }
};

}  // namespace attune
