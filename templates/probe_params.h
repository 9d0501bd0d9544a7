// Arguments of probe.cuh's copy_late, passed by value. Compiled by the host compiler and by NVRTC.
#pragma once

#include "templates/int_types.h"

namespace attune {

struct LateCopyParams {
  const void* from;  // 16-byte aligned, as `to`
  void* to;
  uint64 num_bytes;  // a multiple of 16, above 0
  int num_waits;     // loads one after the other before the first store
};

}  // namespace attune
