// The host device: the same kernels on the CPU, exact and slow, for machines without a GPU and for
// finding bugs. docs/host-device.md says how to debug a kernel on it.
#pragma once

#include <memory>

#include "jit/device.h"
#include "jit/host/host_target.h"

namespace attune {

struct HostDeviceOptions {
  HostTarget target = {};  // what is checked; part of info().arch, so kernels are compiled for it
  int num_workers =
      0;  // OS threads, each running one CTA or cluster at a time; 0: as many as cores
  // When cp.async, bulk copies and wgmma happen: at the wait for them, or when they are issued.
  bool early_copies = false;
};

// Work is done when the call that asks for it returns; device pointers are pointers of this
// process. A kernel that breaks a rule ends with CudaError, which says which rule, where and by
// which thread; the device stays usable.
std::unique_ptr<Device> open_host_device(const HostDeviceOptions& options = {});

}  // namespace attune
