#include "jit/host/shared_shadow.h"

#include <algorithm>

namespace attune::host {

const char* to_text(Operation operation) {
  switch (operation) {
    case Operation::kLoad:
      return "ld";
    case Operation::kStore:
      return "st";
    case Operation::kAtomic:
      return "atom";
    case Operation::kLdmatrix:
      return "ldmatrix";
    case Operation::kStmatrix:
      return "stmatrix";
    case Operation::kCpAsync:
      return "cp.async";
    case Operation::kBulkLoad:
    case Operation::kBulkStore:
      return "cp.async.bulk";
    case Operation::kWgmma:
      return "wgmma";
  }
  return "?";
}

void RecordList::grow() {
  auto larger = std::make_unique<AccessRecord[]>(std::size_t{capacity_} * 2);
  std::copy(begin(), end(), larger.get());
  more_ = std::move(larger);
  capacity_ *= 2;
}

SharedShadow::SharedShadow(std::uint32_t window_bytes) {
  constexpr std::uint32_t kPageBytes = kPageGranules * kGranuleBytes;
  pages_.resize((std::size_t{window_bytes} + kPageBytes - 1) / kPageBytes);
}

void SharedShadow::add_page(std::size_t page) {
  pages_[page] = std::make_unique<Granule[]>(kPageGranules);
}

void SharedShadow::renew(Granule* granule) const {
  granule->generation = generation_;
  granule->has_atomics = false;
  granule->writes.clear();
  granule->shared.clear();
}

}  // namespace attune::host
