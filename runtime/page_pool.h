// Which pages of a paged cache are free: bookkeeping on the host.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/error.h"

#include <fmt/format.h>

namespace attune {

class PagePool {
 public:
  explicit PagePool(int num_pages) : free_(static_cast<std::size_t>(num_pages)) {
    // Low ids first.
    std::iota(free_.rbegin(), free_.rend(), 0);
  }
  int num_free() const { return static_cast<int>(free_.size()); }

  // Appends pages to `pages` until they are `count`; all or none. Throws InvalidArgument with the
  // numbers when too few are free.
  void grow(std::vector<int>* pages, int count) {
    const int missing = count - static_cast<int>(pages->size());
    if (missing > num_free()) {
      throw InvalidArgument(
          "the cache has no free pages left",
          fmt::format("needed={} free={} held={}", missing, num_free(), pages->size()),
          "close or roll back sessions, or raise num_pages");
    }
    pages->reserve(static_cast<std::size_t>(std::max(count, 0)));  // from here on nothing throws
    for (int i = 0; i < missing; ++i) {
      pages->push_back(free_.back());
      free_.pop_back();
    }
  }
  // Takes the pages behind the first `count` back.
  void shrink(std::vector<int>* pages, int count) {
    while (static_cast<int>(pages->size()) > count) {
      free_.push_back(pages->back());
      pages->pop_back();
    }
  }

 private:
  std::vector<int> free_;
};

}  // namespace attune
