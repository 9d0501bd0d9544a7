#include "jit/host/access_check.h"

#include <algorithm>

#include <fmt/format.h>

namespace attune::host {
namespace {

bool is_inside(std::uint32_t begin, std::uint32_t end, std::uint64_t offset, std::uint64_t bytes) {
  return offset >= begin && offset < end && bytes <= end - offset;
}

bool holds(std::span<const AddressRange> ranges, std::uintptr_t at, std::size_t bytes) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const AddressRange& range) { return range.holds(at, bytes); });
}

// Instructions access 1, 2, 4, 8 or 16 bytes, at a multiple of that.
bool is_aligned(std::uintptr_t at, std::size_t bytes) {
  const bool is_instruction = bytes <= 16 && (bytes & (bytes - 1)) == 0;
  return !is_instruction || (at & (bytes - 1)) == 0;
}

// Where an offset is that is neither in the static nor in the dynamic part.
std::string offset_text(const SharedWindow& window, std::uint32_t offset, std::size_t bytes) {
  if (offset >= window.dynamic_begin) {
    const std::uint32_t size = window.dynamic_end - window.dynamic_begin;
    const std::uint32_t at = offset - window.dynamic_begin;
    if (at < size) {
      return fmt::format("dynamic shared memory offset {}, {} bytes past its end ({} bytes)", at,
                         at + bytes - size, size);
    }
    return fmt::format("{} bytes past the end of dynamic shared memory ({} bytes)", at - size,
                       size);
  }
  if (offset < window.static_end) {
    return fmt::format("shared memory window offset {}, partly outside static shared memory",
                       offset);
  }
  return fmt::format("shared memory window offset {}, {} bytes in front of dynamic shared memory",
                     offset, window.dynamic_begin - offset);
}

std::string place_text(const AccessScope& scope, const MemoryMap& memory, const AccessCheck& check,
                       const void* address, std::size_t bytes) {
  if (check.space == MemorySpace::kShared) {
    const SharedWindow& window = scope.shared[check.cluster_rank];
    if (check.fault == FaultKind::kOutOfRange) return offset_text(window, check.offset, bytes);
    const bool is_dynamic = check.offset >= window.dynamic_begin;
    return fmt::format("{} shared memory offset {}", is_dynamic ? "dynamic" : "static",
                       check.offset - (is_dynamic ? window.dynamic_begin : 0));
  }
  if (check.space == MemorySpace::kGlobal) {
    if (check.fault == FaultKind::kOutOfRange) return memory.describe(address, bytes);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const std::optional<Allocation> holder = memory.find(address);
    if (holder) return fmt::format("byte {} of {}", at - holder->address, to_text(*holder));
  }
  return fmt::format("address {}", address);
}

}  // namespace

AccessCheck check_access(const AccessScope& scope, MemoryView& memory, const void* address,
                         std::size_t bytes, bool is_write) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  AccessCheck check;
  const auto refuse = [&](FaultKind kind) {
    check.fault = kind;
    return check;
  };
  const auto accept = [&] {
    return is_aligned(at, bytes) ? check : refuse(FaultKind::kMisaligned);
  };
  for (const SharedWindow& window : scope.shared) {
    if (at - window.base >= window.bytes) continue;
    check.space = MemorySpace::kShared;
    check.cluster_rank = static_cast<std::uint32_t>(&window - scope.shared.data());
    check.offset = static_cast<std::uint32_t>(at - window.base);
    if (is_inside(window.dynamic_begin, window.dynamic_end, check.offset, bytes) ||
        is_inside(window.static_begin, window.static_end, check.offset, bytes)) {
      return accept();
    }
    return refuse(FaultKind::kOutOfRange);
  }
  // How the host's compiler lays out and joins a thread's own variables is its business: on a GPU
  // they are registers.
  if (scope.stack.holds(at, bytes)) {
    check.space = MemorySpace::kStack;
    return check;
  }
  if (const Allocation* holder = memory.find(address)) {
    return holder->holds(at, bytes) ? accept() : refuse(FaultKind::kOutOfRange);
  }
  check.space = MemorySpace::kModule;
  if (holds(scope.read_write, at, bytes)) return accept();
  if (holds(scope.read_only, at, bytes)) return is_write ? refuse(FaultKind::kReadOnly) : accept();
  check.space = MemorySpace::kGlobal;
  return refuse(FaultKind::kOutOfRange);
}

Fault access_fault(const AccessScope& scope, const MemoryMap& memory, const AccessCheck& check,
                   const void* address, std::size_t bytes, bool is_write, const void* code) {
  Fault fault;
  fault.kind = check.fault.value_or(FaultKind::kOutOfRange);
  fault.code = code;
  fault.details = fmt::format("{} of {} bytes at {}", is_write ? "write" : "read", bytes,
                              place_text(scope, memory, check, address, bytes));
  return fault;
}

}  // namespace attune::host
