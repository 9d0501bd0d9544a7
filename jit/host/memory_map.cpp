#include "jit/host/memory_map.h"

#include <algorithm>
#include <cassert>

#include <fmt/format.h>

namespace attune::host {
namespace {

// Of freed allocations, so that a use after free is called one.
constexpr std::size_t kMaxFreed = 1024;
// Farther away an allocation has nothing to do with the access.
constexpr std::uintptr_t kNear = std::uintptr_t{1} << 30;
constexpr std::uintptr_t kNullPage = 4096;

// The first allocation behind `at`; the one in front of it may hold it.
MemoryMap::Table::const_iterator behind(const MemoryMap::Table& table, std::uintptr_t at) {
  return std::upper_bound(
      table.begin(), table.end(), at,
      [](std::uintptr_t value, const Allocation& one) { return value < one.address; });
}

const Allocation* find_in(const MemoryMap::Table& table, std::uintptr_t at) {
  const auto next = behind(table, at);
  if (next == table.begin() || !std::prev(next)->holds(at)) return nullptr;
  return &*std::prev(next);
}

// Where `at`, which no live allocation holds, is to its neighbours.
std::string neighbour_text(const MemoryMap::Table& table, std::uintptr_t at) {
  const auto next = behind(table, at);
  const Allocation* const before = next == table.begin() ? nullptr : &*std::prev(next);
  const Allocation* const after = next == table.end() ? nullptr : &*next;
  const std::uintptr_t past = before == nullptr ? kNear : at - before->address - before->bytes;
  const std::uintptr_t ahead = after == nullptr ? kNear : after->address - at;
  if (past >= kNear && ahead >= kNear) {
    return fmt::format("address {:#x}, which is near no allocation", at);
  }
  if (past <= ahead) return fmt::format("{} bytes past the end of {}", past, to_text(*before));
  return fmt::format("{} bytes in front of {}", ahead, to_text(*after));
}

}  // namespace

std::string to_text(const Allocation& allocation) {
  return fmt::format("allocation {} ({} bytes)", allocation.number, allocation.bytes);
}

Allocation MemoryMap::add(const void* address, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  auto table = std::make_shared<Table>();
  table->reserve(table_->size() + 1);
  const auto next = behind(*table_, at);
  const Allocation added{at, bytes, ++last_number_};
  table->assign(table_->begin(), next);
  table->push_back(added);
  table->insert(table->end(), next, table_->end());
  table_ = std::move(table);
  version_.fetch_add(1, std::memory_order_release);
  return added;
}

bool MemoryMap::remove(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  const Allocation* const found = find_in(*table_, at);
  if (found == nullptr || found->address != at) return false;
  freed_.push_back(*found);
  if (freed_.size() > kMaxFreed) freed_.pop_front();
  auto table = std::make_shared<Table>(*table_);
  table->erase(table->begin() + (found - table_->data()));
  table_ = std::move(table);
  version_.fetch_add(1, std::memory_order_release);
  return true;
}

std::shared_ptr<const MemoryMap::Table> MemoryMap::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

std::optional<Allocation> MemoryMap::find(const void* address) const {
  const auto table = this->table();
  const Allocation* const found = find_in(*table, reinterpret_cast<std::uintptr_t>(address));
  if (found == nullptr) return std::nullopt;
  return *found;
}

std::string MemoryMap::describe(const void* address, std::size_t bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at < kNullPage) return fmt::format("null pointer plus {} bytes", at);
  const std::lock_guard lock(mutex_);
  if (const Allocation* holder = find_in(*table_, at)) {
    const std::size_t left = holder->bytes - (at - holder->address);
    return fmt::format("byte {} of {}, {} bytes too many", at - holder->address, to_text(*holder),
                       bytes - std::min(bytes, left));
  }
  for (auto freed = freed_.rbegin(); freed != freed_.rend(); ++freed) {
    if (!freed->holds(at)) continue;
    return fmt::format("byte {} of {}, which is freed", at - freed->address, to_text(*freed));
  }
  return neighbour_text(*table_, at);
}

const Allocation* MemoryView::search(std::uintptr_t at) {
  const std::uint64_t version = map_->version();
  if (table_ == nullptr || version_ != version) {
    table_ = map_->table();  // of this version or a later one, which the next call notices
    version_ = version;
    last_ = nullptr;
  }
  const Allocation* const found = find_in(*table_, at);
  if (found != nullptr) last_ = found;
  return found;
}

}  // namespace attune::host
