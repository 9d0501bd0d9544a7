// The functions that a compiler calls before every load and store under -fsanitize=thread. A kernel
// with checks is compiled that way but never linked with the sanitizer's library: the calls end
// here and go to the host device.
#pragma once

#include "templates/host/abi.h"

#define ATTUNE_HOOK \
  extern "C" __attribute__((visibility("hidden"), no_sanitize("thread"), used)) void
#define ATTUNE_ACCESS(name, size, is_write)                                        \
  ATTUNE_HOOK name(void* pointer) {                                                \
    attune_host_abi->access(pointer, size, is_write, __builtin_return_address(0)); \
  }
#define ATTUNE_ACCESSES(size)                          \
  ATTUNE_ACCESS(__tsan_read##size, size, 0)            \
  ATTUNE_ACCESS(__tsan_write##size, size, 1)           \
  ATTUNE_ACCESS(__tsan_unaligned_read##size, size, 0)  \
  ATTUNE_ACCESS(__tsan_unaligned_write##size, size, 1) \
  ATTUNE_ACCESS(__tsan_volatile_read##size, size, 0)   \
  ATTUNE_ACCESS(__tsan_volatile_write##size, size, 1)

ATTUNE_ACCESSES(1)
ATTUNE_ACCESSES(2)
ATTUNE_ACCESSES(4)
ATTUNE_ACCESSES(8)
ATTUNE_ACCESSES(16)

ATTUNE_HOOK __tsan_read_range(void* pointer, unsigned long bytes) {
  attune_host_abi->access(pointer, bytes, 0, __builtin_return_address(0));
}
ATTUNE_HOOK __tsan_write_range(void* pointer, unsigned long bytes) {
  attune_host_abi->access(pointer, bytes, 1, __builtin_return_address(0));
}
ATTUNE_HOOK __tsan_init() {}
ATTUNE_HOOK __tsan_func_entry(void*) {}
ATTUNE_HOOK __tsan_func_exit() {}

#undef ATTUNE_ACCESSES
#undef ATTUNE_ACCESS
#undef ATTUNE_HOOK
