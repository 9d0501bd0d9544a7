// Decides what one load or store of a kernel touches, and whether it may.
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

// Shared memory of one CTA of the cluster, in offsets from `base`: its static variables and the
// dynamic part, each with the exact size of the launch. What else is in the window belongs to
// nobody, but tells a wild access to shared memory from one to global memory.
struct SharedWindow {
  std::uintptr_t base = 0;
  std::uint32_t bytes = 0;
  std::uint32_t static_begin = 0;
  std::uint32_t static_end = 0;
  std::uint32_t dynamic_begin = 0;
  std::uint32_t dynamic_end = 0;
};

// What one thread may touch besides global memory. Borrowed: lives as long as the CTA runs.
struct AccessScope {
  std::span<const SharedWindow> shared;      // by cluster rank
  AddressRange stack;                        // of the thread
  std::span<const AddressRange> read_only;   // parameters, constants of the module
  std::span<const AddressRange> read_write;  // variables of the module
};

enum class MemorySpace { kShared, kGlobal, kStack, kModule };

struct AccessCheck {
  std::optional<FaultKind> fault;
  MemorySpace space = MemorySpace::kGlobal;
  std::uint32_t cluster_rank = 0;  // of the window; kShared
  std::uint32_t offset = 0;        // in the window; kShared
};

// `bytes` is 1, 2, 4, 8 or 16 for an instruction, which aligns it to its size; any other size is
// that of a block and is not aligned. Fast: makes no text.
AccessCheck check_access(const AccessScope& scope, MemoryView& memory, const void* address,
                         std::size_t bytes, bool is_write);

// The fault of an access that check_access() refused, without kernel, block and thread.
Fault access_fault(const AccessScope& scope, const MemoryMap& memory, const AccessCheck& check,
                   const void* address, std::size_t bytes, bool is_write, const void* code);

}  // namespace attune::host
