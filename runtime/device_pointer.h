// Addresses of device memory as kernels' parameters take them.
#pragma once

#include "jit/device.h"

namespace attune {

template <typename T>
T* pointer(DevicePtr address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace attune
