// The global memory of the host device: which addresses a kernel may touch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace attune::host {

struct Allocation {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::uint64_t number = 0;  // counts from 1, never used again
  friend bool operator==(const Allocation&, const Allocation&) = default;

  bool holds(std::uintptr_t at) const { return at - address < bytes; }
  bool holds(std::uintptr_t at, std::size_t size) const {
    return at - address < bytes && size <= bytes - (at - address);
  }
};

// "allocation 7 (4096 bytes)"
std::string to_text(const Allocation& allocation);

// Thread-safe.
class MemoryMap {
 public:
  // Live allocations by rising address.
  using Table = std::vector<Allocation>;

  MemoryMap() : table_(std::make_shared<const Table>()) {}

  // The range is not empty and overlaps no live one.
  Allocation add(const void* address, std::size_t bytes);
  // False when no live allocation begins there.
  bool remove(const void* address);

  // The live allocation that holds the byte. Threads that look up often use a MemoryView.
  std::optional<Allocation> find(const void* address) const;
  // Where an access that no live allocation holds is, for a report: "32 bytes past the end of
  // allocation 7 (4096 bytes)", "byte 16 of allocation 7 (4096 bytes), which is freed".
  std::string describe(const void* address, std::size_t bytes) const;

  std::shared_ptr<const Table> table() const;
  // Changes with every add and remove.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_;
  std::deque<Allocation> freed_;  // the latest last
  std::uint64_t last_number_ = 0;
  std::atomic<std::uint64_t> version_ = 0;
};

// One OS thread's look at a map: no lock and no shared cache line is written while the map stays
// as it is. The map outlives it.
class MemoryView {
 public:
  explicit MemoryView(const MemoryMap& map) : map_(&map) {}

  // Valid until the next call.
  const Allocation* find(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (version_ == map_->version() && last_ != nullptr && last_->holds(at)) return last_;
    return search(at);
  }
  const MemoryMap& map() const { return *map_; }

 private:
  const Allocation* search(std::uintptr_t at);

  const MemoryMap* map_;
  std::shared_ptr<const MemoryMap::Table> table_;
  std::uint64_t version_ = ~std::uint64_t{0};
  const Allocation* last_ = nullptr;  // in table_
};

}  // namespace attune::host
