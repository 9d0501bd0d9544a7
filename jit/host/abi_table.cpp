// The table of functions that kernels call, and those of it that need no file of their own.
#include <atomic>
#include <bit>
#include <chrono>

#include <fmt/format.h>

#include "jit/host/checks.h"
#include "jit/host/operations.h"

namespace attune::host {
namespace {

const Place* place() { return &Runner::current().thread().place; }

std::uint32_t smem_address(const void* pointer) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  const auto address = runner.find_shared(pointer);
  if (!address) {
    runner.fail(FaultKind::kInvalidOperand,
                fmt::format("{} is no pointer into shared memory", pointer));
  }
  return offset_of(*address);
}

std::uint32_t map_shared_rank(std::uint32_t smem, std::uint32_t rank) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  runner.cta_of_rank(rank);
  return Runner::cluster_address(smem, rank);
}

void* cluster_pointer(std::uint32_t address) {
  return Runner::enter(__builtin_return_address(0)).shared(address, 1, "shared::cluster access");
}

void fence_proxy_async() {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  if (runner.checks() != nullptr) runner.checks()->fence_proxy(runner.thread());
}

template <typename T>
T combine(Atomic kind, T old, T operand) {
  switch (kind) {
    case Atomic::kAdd:
      if constexpr (std::is_same_v<T, std::int32_t>) {  // wraps
        return static_cast<T>(static_cast<std::uint32_t>(old) +
                              static_cast<std::uint32_t>(operand));
      }
      return static_cast<T>(old + operand);
    case Atomic::kMin:
      return operand < old ? operand : old;
    case Atomic::kMax:
      return old < operand ? operand : old;
    case Atomic::kExchange:
      return operand;
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (kind == Atomic::kAnd) return old & operand;
    if (kind == Atomic::kOr) return old | operand;
    if (kind == Atomic::kXor) return old ^ operand;
  }
  Runner::current().fail(FaultKind::kInvalidOperand, "a bitwise atomic on a floating-point number");
}

// CTAs run on several OS threads, so these are atomics of the host.
template <typename T, typename Bits>
uint64 update(Atomic kind, void* pointer, uint64 operand) {
  std::atomic_ref<Bits> target(*static_cast<Bits*>(pointer));
  Bits old = target.load();
  while (!target.compare_exchange_weak(
      old, std::bit_cast<Bits>(combine(kind, std::bit_cast<T>(old),
                                       std::bit_cast<T>(static_cast<Bits>(operand)))))) {
  }
  return old;
}

// Sums of floats in global memory flush subnormals, those in shared memory keep them: as the
// instructions red and atom do (PTX ISA 9.0, atom.add.f32).
std::uint32_t flushed(std::uint32_t bits) {
  return (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits;
}

uint64 add_to_global(void* pointer, uint64 operand) {
  std::atomic_ref<std::uint32_t> target(*static_cast<std::uint32_t*>(pointer));
  const auto addend = std::bit_cast<float>(flushed(static_cast<std::uint32_t>(operand)));
  std::uint32_t old = target.load();
  while (!target.compare_exchange_weak(
      old, flushed(std::bit_cast<std::uint32_t>(std::bit_cast<float>(flushed(old)) + addend)))) {
  }
  return old;
}

int bytes_of(Number number) { return number == Number::kUint64 ? 8 : 4; }

void* atomic_target(Number number, void* pointer) {
  Runner& runner = Runner::current();
  const int bytes = bytes_of(number);
  if (reinterpret_cast<std::uintptr_t>(pointer) % static_cast<unsigned>(bytes) != 0) {
    runner.fail(FaultKind::kMisaligned, fmt::format("an atomic of {} bytes at {}", bytes, pointer));
  }
  if (runner.checks() != nullptr) {
    runner.checks()->atomic_access(runner.thread(), pointer, static_cast<std::uint32_t>(bytes));
  }
  return pointer;
}

// Others get a turn behind it: a thread may be waiting for what they write.
uint64 atomic(Atomic kind, Number number, void* pointer, uint64 operand) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  void* const target = atomic_target(number, pointer);
  uint64 old = 0;
  switch (number) {
    case Number::kUint32:
      old = update<std::uint32_t, std::uint32_t>(kind, target, operand);
      break;
    case Number::kInt32:
      old = update<std::int32_t, std::uint32_t>(kind, target, operand);
      break;
    case Number::kUint64:
      old = update<uint64, uint64>(kind, target, operand);
      break;
    case Number::kFloat:
      old = kind == Atomic::kAdd && !runner.find_shared(target)
                ? add_to_global(target, operand)
                : update<float, std::uint32_t>(kind, target, operand);
      break;
  }
  runner.yield(false);
  return old;
}

uint64 atomic_cas(Number number, void* pointer, uint64 expected, uint64 desired) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  void* const target = atomic_target(number, pointer);
  uint64 old = expected;
  if (bytes_of(number) == 8) {
    std::atomic_ref<uint64>(*static_cast<uint64*>(target)).compare_exchange_strong(old, desired);
  } else {
    auto narrow = static_cast<std::uint32_t>(expected);
    std::atomic_ref<std::uint32_t>(*static_cast<std::uint32_t*>(target))
        .compare_exchange_strong(narrow, static_cast<std::uint32_t>(desired));
    old = narrow;
  }
  runner.yield(false);
  return old;
}

void access(const void* pointer, uint64 bytes, int is_write, const void* code) {
  Runner& runner = Runner::current();
  if (runner.checks() != nullptr)
    runner.checks()->access(runner.thread(), pointer, bytes, is_write != 0, code);
}

void trap(const char* what) {
  Runner::enter(__builtin_return_address(0)).fail(FaultKind::kTrap, what);
}

uint64 clock() {
  return static_cast<uint64>(std::chrono::steady_clock::now().time_since_epoch().count());
}

Abi make_abi() {
  Abi abi{};
  abi.place = place;
  abi.smem_address = smem_address;
  abi.map_shared_rank = map_shared_rank;
  abi.cluster_pointer = cluster_pointer;
  abi.fence_proxy_async = fence_proxy_async;
  abi.atomic = atomic;
  abi.atomic_cas = atomic_cas;
  abi.access = access;
  abi.trap = trap;
  abi.clock = clock;
  add_barrier_operations(&abi);
  add_warp_operations(&abi);
  add_copy_operations(&abi);
  add_mbarrier_operations(&abi);
  add_wgmma_operations(&abi);
  return abi;
}

}  // namespace

const Abi& host_abi() {
  static const Abi abi = make_abi();
  return abi;
}

}  // namespace attune::host
