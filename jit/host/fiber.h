// Fibers: the threads of a CTA, all on one OS thread. Built on Boost.Context's switch of a few
// nanoseconds; leaving a fiber unfinished releases nothing of what its frames hold, so only kernels
// run on them.
#pragma once

#include <cstddef>
#include <memory>

// Of functions that a fiber enters and never leaves, or leaves on another turn. The thread
// sanitizer keeps one call stack for an OS thread, and what is entered only would fill it after
// some 10,000 fibers.
#if defined(__SANITIZE_THREAD__)
#define ATTUNE_LEFT_BY_SWITCH __attribute__((no_sanitize("thread")))
#else
#define ATTUNE_LEFT_BY_SWITCH
#endif

namespace attune::host {

// Memory for a stack.
class FiberStack {
 public:
  // `guarded`: an inaccessible page is below it. That takes two memory maps, of which Linux gives a
  // process 65530. Throws Error.
  FiberStack(std::size_t bytes, bool guarded);
  FiberStack(FiberStack&& other) noexcept;
  FiberStack& operator=(FiberStack&&) = delete;
  ~FiberStack();

  void* top() const;
  const void* bottom() const;
  std::size_t bytes() const { return bytes_; }

 private:
  unsigned char* memory_ = nullptr;  // the guard page first, or one that is not used
  std::size_t bytes_ = 0;            // of the stack, without the guard page
};

// One suspended line of execution: a fiber, or the OS thread that started them.
class Fiber {
 public:
  using Entry = void (*)(void* argument);

  // The line of execution that is running already.
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes it start with `entry`, which never returns, when it is switched to. Whatever it ran
  // before is forgotten.
  void arm(const FiberStack& stack, Entry entry, void* argument);

  // Suspends `from`, which has to be the running one, and goes on with `to`.
  ATTUNE_LEFT_BY_SWITCH static void switch_to(Fiber* from, Fiber* to);

 private:
  struct Start;
  void* context_ = nullptr;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  // What the address sanitizer is told at a switch; the OS thread's are learned from it.
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
};

}  // namespace attune::host
