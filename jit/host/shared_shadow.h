// What the race checker remembers of every byte of shared memory: its latest accesses.
#pragma once

#include <cstdint>

namespace attune::host {

// What kind of instruction made an access.
enum class Operation : std::uint8_t {
  kLoad,
  kStore,
  kAtomic,
  kLdmatrix,
  kStmatrix,
  kCpAsync,
  kBulkLoad,   // cp.async.bulk into shared memory: async proxy
  kBulkStore,  // cp.async.bulk out of shared memory: async proxy
  kWgmma,      // async proxy
};

const char* to_text(Operation operation);

}  // namespace attune::host
