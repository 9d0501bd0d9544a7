// The ids of a step's tokens: in device memory, from host memory of any kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "jit/device.h"

namespace attune {

class TokenIds {
 public:
  TokenIds() = default;
  TokenIds(Device& device, std::size_t most) : mem_(device.allocate(most * sizeof(std::int32_t))) {
    staged_.reserve(most);
  }

  // At most as many as it was made for. Enqueues, and has read `ids` when it returns: the driver reads
  // page-locked memory only when the stream gets there, so what it is given is our own copy, which is
  // pageable. Allocates nothing.
  void set(Device& device, std::span<const std::int32_t> ids, StreamHandle stream) {
    staged_.assign(ids.begin(), ids.end());
    device.copy_to_device(mem_.ptr(), std::as_bytes(std::span(staged_)), stream);
  }

  DevicePtr ptr() const { return mem_.ptr(); }
  std::size_t bytes() const { return mem_.bytes(); }

 private:
  DeviceMem mem_;
  std::vector<std::int32_t> staged_;
};

}  // namespace attune
