// Tells the address sanitizer where the dynamic shared memory of a CTA ends; nothing without it.
#pragma once

#include <cstdint>

#include "templates/host/abi.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace attune::host {

// Closes what is behind the first `bytes` of dynamic shared memory for a scope.
class SmemWindow {
 public:
  SmemWindow(unsigned char* dynamic, std::uint32_t bytes) : dynamic_(dynamic) {
    close(dynamic, bytes);
  }
  SmemWindow(const SmemWindow&) = delete;
  SmemWindow& operator=(const SmemWindow&) = delete;
  ~SmemWindow() { open(dynamic_); }

  static void close([[maybe_unused]] unsigned char* dynamic, [[maybe_unused]] std::uint32_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(dynamic + bytes, kMaxSmemBytes - bytes);
#endif
  }
  static void open([[maybe_unused]] unsigned char* dynamic) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(dynamic, kMaxSmemBytes);
#endif
  }

 private:
  unsigned char* dynamic_;
};

}  // namespace attune::host
