// Writes   single integers of the device's state.
// Grid     one CTA. Threads: kMaxStateWrites, of which the first `count` write one integer each.
// Limits   no two writes to the same place.
#pragma once

#include "templates/params.h"

namespace attune {

__device__ __forceinline__ void write_state(const StateParams& p) {
  const int i = threadIdx.x;
  if (i < p.count) p.state[p.writes[i].at] = p.writes[i].value;
}

}  // namespace attune
