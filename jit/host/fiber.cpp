#include "jit/host/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <boost/context/detail/fcontext.hpp>

#include "common/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ATTUNE_ASAN 1
#endif

namespace attune::host {
namespace {

namespace context = boost::context::detail;

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

FiberStack::FiberStack(std::size_t bytes, bool guarded) {
  const std::size_t page = page_bytes();
  bytes_ = (bytes + page - 1) / page * page;
  void* const memory = mmap(nullptr, page + bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error("cannot allocate a stack", fmt::format("bytes={} {}", bytes_, std::strerror(errno)),
                "raise the limit on memory maps (vm.max_map_count) or on address space");
  }
  memory_ = static_cast<unsigned char*>(memory);
  if (guarded) mprotect(memory_, page, PROT_NONE);
}

FiberStack::FiberStack(FiberStack&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}

FiberStack::~FiberStack() {
  if (memory_ == nullptr) return;
#ifdef ATTUNE_ASAN
  __asan_unpoison_memory_region(memory_ + page_bytes(), bytes_);
#endif
  munmap(memory_, page_bytes() + bytes_);
}

const void* FiberStack::bottom() const { return memory_ + page_bytes(); }
void* FiberStack::top() const { return memory_ + page_bytes() + bytes_; }

// What a switch hands to the line of execution that goes on.
struct Fiber::Start {
  Fiber* from;
  Fiber* to;

  static void arrive(const context::transfer_t& transfer) {
    const Start& start = *static_cast<const Start*>(transfer.data);
    start.from->context_ = transfer.fctx;
#ifdef ATTUNE_ASAN
    __sanitizer_finish_switch_fiber(start.to->fake_stack_, &start.from->stack_bottom_,
                                    &start.from->stack_bytes_);
#endif
  }
  [[noreturn]] ATTUNE_LEFT_BY_SWITCH static void enter(context::transfer_t transfer) {
    Fiber* const self = static_cast<const Start*>(transfer.data)->to;
    arrive(transfer);
    self->entry_(self->argument_);
    __builtin_unreachable();
  }
};

void Fiber::arm(const FiberStack& stack, Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
  stack_bottom_ = stack.bottom();
  stack_bytes_ = stack.bytes();
  fake_stack_ = nullptr;
#ifdef ATTUNE_ASAN
  // Frames that were left without returning have poisoned what is below them.
  __asan_unpoison_memory_region(stack.bottom(), stack.bytes());
#endif
  context_ = context::make_fcontext(stack.top(), stack.bytes(), &Start::enter);
}

void Fiber::switch_to(Fiber* from, Fiber* to) {
  Start start{from, to};
#ifdef ATTUNE_ASAN
  __sanitizer_start_switch_fiber(&from->fake_stack_, to->stack_bottom_, to->stack_bytes_);
#endif
  Start::arrive(context::jump_fcontext(to->context_, &start));
}

}  // namespace attune::host
