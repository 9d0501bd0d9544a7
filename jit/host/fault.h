// What a kernel did wrong on the host device, as a value and as the line that a user reads.
#pragma once

#include <string>

#include "jit/host/symbolize.h"
#include "templates/host/abi.h"

namespace attune::host {

enum class FaultKind {
  kOutOfRange,  // of global memory: no live allocation holds it; of shared memory: past its end
  kMisaligned,
  kReadOnly,        // a write to parameters or constants
  kRace,            // two accesses to shared memory that nothing orders
  kMissingFence,    // ordered, but without fence.proxy.async between the two proxies
  kBarrier,         // a barrier or mbarrier that is not used as it has to be
  kDivergence,      // threads that have to execute one instruction together do not
  kInvalidOperand,  // what an instruction does not take: a descriptor, a size, a box
  kDeadlock,
  kTrap,  // a failed assertion or __trap()
};

struct Fault {
  FaultKind kind = FaultKind::kTrap;
  std::string details;         // "read of 16 bytes 32 bytes past the end of allocation 7 (...)"
  const void* code = nullptr;  // return address in the kernel; nullptr: unknown
  std::string kernel;          // symbol
  Index3 block_idx{};
  Index3 thread_idx{};
};

// "access out of range", "race on shared memory", ...
const char* to_text(FaultKind kind);

// "<kind>: kernel=splitkv_d512_m16n32s1w8 block=(3,0,1) thread=(37,0,0) <details> at
// templates/splitkv.cuh:214 (make_probabilities)". Symbolizes `code`.
std::string to_text(const Fault& fault);

}  // namespace attune::host
