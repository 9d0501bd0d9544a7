// Who waits for what, when no thread of a cluster can go on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "jit/host/cta.h"

namespace attune::host {

// "no thread can go on: block (0,0,0) threads 0-31 wait at bar.sync 1 (32 of 64 threads have
// arrived) at kernel.cuh:12 (f); threads 32-63 have ended". `dynamic_begin`: the offset of dynamic
// shared memory in a window.
std::string deadlock_report(std::span<const std::unique_ptr<Cta>> ctas,
                            std::uint32_t dynamic_begin);

}  // namespace attune::host
