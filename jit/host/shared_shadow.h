// What the race checker remembers of every byte of shared memory: the latest accesses to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace attune::host {

// What kind of instruction made an access.
enum class Operation : std::uint8_t {
  kLoad,
  kStore,
  kAtomic,
  kLdmatrix,
  kStmatrix,
  kCpAsync,
  kBulkLoad,   // cp.async.bulk into shared memory
  kBulkStore,  // cp.async.bulk out of shared memory
  kWgmma,      // an operand
};

// The instruction's name in PTX.
const char* to_text(Operation operation);

// The other operations, cp.async among them, are of the generic proxy.
constexpr bool is_async_proxy(Operation operation) {
  return operation == Operation::kBulkLoad || operation == Operation::kBulkStore ||
         operation == Operation::kWgmma;
}

// One access to a granule, or what later ones have left of it. Two words that are built and
// compared whole: this is what a checked access spends its time on.
class AccessRecord {
 public:
  static constexpr std::uint32_t kInFlight = 0xffff;  // in place of a thread

  AccessRecord() = default;
  // `thread` is a thread or an engine with its clock, or kInFlight with the number of a running
  // operation. Code addresses are those of user space, below 2^48.
  AccessRecord(const void* code, Operation operation, std::uint32_t thread, std::uint32_t clock)
      : origin_(reinterpret_cast<std::uintptr_t>(code) << 16 >> 16 |
                std::uint64_t{static_cast<std::uint8_t>(operation)} << 48),
        stretch_(clock | std::uint64_t{thread} << 32) {}

  // The same access, of these bytes.
  AccessRecord of_bytes(std::uint32_t mask) const {
    AccessRecord record = *this;
    record.stretch_ = stretch() | std::uint64_t{mask} << 48;
    return record;
  }
  // The same access, of another stretch.
  AccessRecord of_stretch(std::uint32_t thread, std::uint32_t clock) const {
    AccessRecord record = *this;
    record.stretch_ = stretch_ >> 48 << 48 | clock | std::uint64_t{thread} << 32;
    return record;
  }
  void drop_bytes(std::uint32_t mask) { stretch_ &= ~(std::uint64_t{mask} << 48); }

  std::uint32_t mask() const { return static_cast<std::uint32_t>(stretch_ >> 48); }
  std::uint32_t clock() const { return static_cast<std::uint32_t>(stretch_); }
  std::uint32_t thread() const { return static_cast<std::uint32_t>(stretch_ >> 32) & 0xffff; }
  std::uint64_t stretch() const { return stretch_ << 16 >> 16; }  // thread and clock
  bool is_in_flight() const { return thread() == kInFlight; }
  Operation operation() const { return static_cast<Operation>(origin_ >> 48); }
  bool is_atomic() const { return operation() == Operation::kAtomic; }
  const void* code() const {
    return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(origin_ << 16 >> 16));
  }

 private:
  std::uint64_t origin_ = 0;   // operation, code
  std::uint64_t stretch_ = 0;  // mask of the granule's bytes, thread, clock
};

// A vector of records with the first few in place.
class RecordList {
 public:
  AccessRecord* begin() { return more_ == nullptr ? few_ : more_.get(); }
  AccessRecord* end() { return begin() + size_; }
  AccessRecord& back() { return begin()[size_ - 1]; }
  bool empty() const { return size_ == 0; }
  bool is_full() const { return size_ == capacity_; }
  bool is_half_full() const { return size_ * 2 > capacity_; }
  void clear() { size_ = 0; }
  void push_back(const AccessRecord& record) {
    if (is_full()) grow();
    begin()[size_++] = record;
  }
  void grow();

  // Calls visit(record) for every record, in order, and drops those that it leaves without bytes.
  template <typename Visit>
  void filter(const Visit& visit) {
    AccessRecord* const all = begin();
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < size_; ++i) {
      visit(all[i]);
      if (all[i].mask() == 0) continue;
      if (kept != i) all[kept] = all[i];
      ++kept;
    }
    size_ = kept;
  }

 private:
  static constexpr std::uint32_t kFew = 2;

  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = kFew;
  AccessRecord few_[kFew];
  std::unique_ptr<AccessRecord[]> more_;  // instead of few_
};

constexpr std::uint32_t kGranuleBytes = 16;  // the widest access of a thread

struct Granule {
  std::uint32_t generation = 0;
  bool has_atomics = false;  // among `shared`
  RecordList writes;         // of disjoint bytes
  RecordList shared;         // reads and atomics since those; of one thread the later ones last
};

// The granules of a window, made when they are first touched.
class SharedShadow {
 public:
  explicit SharedShadow(std::uint32_t window_bytes);

  // Forgets every access.
  void reset() { ++generation_; }

  Granule& at(std::uint32_t granule) {
    const std::unique_ptr<Granule[]>& page = pages_[granule / kPageGranules];
    if (page == nullptr) add_page(granule / kPageGranules);
    Granule& found = page[granule % kPageGranules];
    if (found.generation != generation_) renew(&found);
    return found;
  }

 private:
  static constexpr std::uint32_t kPageGranules = 64;

  void add_page(std::size_t page);
  void renew(Granule* granule) const;

  std::uint32_t generation_ = 1;
  std::vector<std::unique_ptr<Granule[]>> pages_;
};

// Calls visit(granule, mask of its bytes) for every granule of [offset, offset + bytes).
template <typename Visit>
void for_each_granule(std::uint32_t offset, std::uint32_t bytes, const Visit& visit) {
  for (const std::uint32_t end = offset + bytes; offset < end;) {
    const std::uint32_t first = offset % kGranuleBytes;
    const std::uint32_t left = end - offset;
    const std::uint32_t count = left < kGranuleBytes - first ? left : kGranuleBytes - first;
    visit(offset / kGranuleBytes, ((1u << count) - 1) << first);
    offset += count;
  }
}

}  // namespace attune::host
