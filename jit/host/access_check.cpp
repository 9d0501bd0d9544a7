#include "jit/host/access_check.h"

#include <algorithm>

#include <fmt/format.h>

namespace attune::host {
namespace {

bool holds(std::span<const AddressRange> ranges, std::uintptr_t at, std::size_t bytes) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const AddressRange& range) { return range.holds(at, bytes); });
}

std::string place_text(FaultKind kind, const MemoryMap& memory, const void* address,
                       std::size_t bytes) {
  if (kind == FaultKind::kOutOfRange) return memory.describe(address, bytes);
  const std::optional<Allocation> holder = memory.find(address);
  if (!holder) return fmt::format("address {}", address);
  return fmt::format("byte {} of {}", reinterpret_cast<std::uintptr_t>(address) - holder->address,
                     to_text(*holder));
}

}  // namespace

// Instructions access 1, 2, 4, 8 or 16 bytes.
bool is_aligned(std::uintptr_t address, std::size_t bytes) {
  const bool is_instruction = bytes <= 16 && (bytes & (bytes - 1)) == 0;
  return !is_instruction || (address & (bytes - 1)) == 0;
}

std::optional<FaultKind> check_access(const AccessScope& scope, MemoryView& memory,
                                      const void* address, std::size_t bytes, bool is_write) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  // How the host's compiler lays out and joins a thread's own variables is its business: on a GPU
  // they are registers.
  if (scope.stack.holds(at, bytes)) return std::nullopt;
  if (const Allocation* holder = memory.find(address)) {
    if (!holder->holds(at, bytes)) return FaultKind::kOutOfRange;
  } else if (!holds(scope.read_only, at, bytes)) {
    return FaultKind::kOutOfRange;
  } else if (is_write) {
    return FaultKind::kReadOnly;
  }
  if (!is_aligned(at, bytes)) return FaultKind::kMisaligned;
  return std::nullopt;
}

Fault access_fault(FaultKind kind, const MemoryMap& memory, const void* address, std::size_t bytes,
                   bool is_write, const void* code) {
  Fault fault;
  fault.kind = kind;
  fault.code = code;
  fault.details = fmt::format("{} of {} bytes at {}", is_write ? "write" : "read", bytes,
                              place_text(kind, memory, address, bytes));
  return fault;
}

}  // namespace attune::host
