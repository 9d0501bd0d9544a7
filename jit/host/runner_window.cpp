// The shared window of a runner: where the shared memory of its CTAs is, and what an address of it
// means.
#include <cstring>

#include <fmt/format.h>

#include "jit/host/runner.h"
#include "jit/host/window.h"

namespace attune::host {

// Finds the shared window of this OS thread. Offsets below kSmemAlignment stay free: 0 is no
// address.
void Runner::locate_window() {
  unsigned char* const dynamic = launch_->module->smem();
  const Region block = launch_->module->thread_local_block();
  const auto begin =
      reinterpret_cast<std::uintptr_t>(block.begin) / kSmemAlignment * kSmemAlignment -
      kSmemAlignment;
  window_ = reinterpret_cast<unsigned char*>(begin);
  static_begin_ = static_cast<std::uint32_t>(block.begin - window_);
  window_bytes_ = static_begin_ + static_cast<std::uint32_t>(block.bytes);
  dynamic_begin_ = static_cast<std::uint32_t>(dynamic - window_);
}

void Runner::make_current(Cta* cta) {
  const std::size_t bytes = window_bytes_ - static_begin_;
  unsigned char* const window = window_ + static_begin_;
  SmemWindow::open(window_ + dynamic_begin_);
  current_cta_->saved_window.assign(window, window + bytes);
  std::memcpy(window, cta->saved_window.data(), bytes);
  SmemWindow::close(window_ + dynamic_begin_, launch_->smem_bytes);
  current_cta_ = cta;
}

std::optional<std::uint32_t> Runner::find_shared(const void* pointer) const {
  const auto* const at = static_cast<const unsigned char*>(pointer);
  if (at >= window_ + static_begin_ && at < window_ + window_bytes_) {
    return cluster_address(static_cast<std::uint32_t>(at - window_), current_cta_->cluster_rank);
  }
  for (unsigned rank = 0; num_ctas_ > 1 && rank < num_ctas_; ++rank) {
    const std::vector<unsigned char>& saved = ctas_[rank]->saved_window;
    if (ctas_[rank].get() == current_cta_ || at < saved.data() || at >= saved.data() + saved.size())
      continue;
    return cluster_address(static_cast<std::uint32_t>(at - saved.data()) + static_begin_, rank);
  }
  return std::nullopt;
}

Cta& Runner::cta_of_rank(unsigned rank) {
  if (rank >= num_ctas_) {
    fail(FaultKind::kOutOfRange, fmt::format("CTA {} of a cluster of {}", rank, num_ctas_));
  }
  return *ctas_[rank];
}

Cta& Runner::cta_of(std::uint32_t address) {
  const unsigned rank = address >> kClusterRankShift;
  return rank == 0 ? cta() : cta_of_rank(rank - 1);
}

std::uint32_t Runner::cluster_address(std::uint32_t address, unsigned rank) {
  return offset_of(address) | (rank + 1) << kClusterRankShift;
}

std::uint32_t Runner::cluster_address(std::uint32_t address) {
  return cluster_address(address, cta_of(address).cluster_rank);
}

unsigned char* Runner::window_of(std::uint32_t address) {
  Cta& owner = cta_of(address);
  return &owner == current_cta_ ? window_ : owner.saved_window.data() - static_begin_;
}

unsigned char* Runner::shared(std::uint32_t address, std::uint32_t bytes, const char* what,
                              const void* code) {
  const std::uint32_t offset = offset_of(address);
  const std::uint64_t end = std::uint64_t{offset} + bytes;
  const bool in_dynamic = offset >= dynamic_begin_ && offset < dynamic_begin_ + kMaxSmemBytes;
  const std::uint64_t limit = in_dynamic ? dynamic_begin_ + launch_->smem_bytes : window_bytes_;
  if (offset < static_begin_ || end > limit) {
    fail(FaultKind::kOutOfRange,
         fmt::format("{} of {} bytes at shared memory offset {}, {} bytes of dynamic shared memory",
                     what, bytes, static_cast<std::int64_t>(offset) - dynamic_begin_,
                     launch_->smem_bytes),
         code);
  }
  return window_of(address) + offset;
}

}  // namespace attune::host
