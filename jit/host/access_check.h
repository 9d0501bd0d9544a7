// Decides whether a load or store of a kernel outside of shared memory may touch what it touches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "jit/host/fault.h"
#include "jit/host/memory_map.h"

namespace attune::host {

// [begin, end)
struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  bool holds(std::uintptr_t at) const { return at - begin < end - begin; }
  bool holds(std::uintptr_t at, std::size_t bytes) const { return holds(at) && bytes <= end - at; }
};

// What one thread may touch besides global memory. Borrowed: lives as long as the CTA runs.
struct AccessScope {
  AddressRange stack;                       // of the thread
  std::span<const AddressRange> read_only;  // parameters, constants of the module
};

// `bytes` is 1, 2, 4, 8 or 16 for an instruction, which aligns it to its size; any other size is
// that of a block and is not aligned. Fast: makes no text.
std::optional<FaultKind> check_access(const AccessScope& scope, MemoryView& memory,
                                      const void* address, std::size_t bytes, bool is_write);

// Whether an access of an instruction is at a multiple of its size.
bool is_aligned(std::uintptr_t address, std::size_t bytes);

// The fault of an access that check_access() refused, without kernel, block and thread.
Fault access_fault(FaultKind kind, const MemoryMap& memory, const void* address, std::size_t bytes,
                   bool is_write, const void* code);

}  // namespace attune::host
