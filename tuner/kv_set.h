// Where the K/V rows of a batch lie while it is timed: pure arithmetic on its lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "templates/problem.h"

namespace attune {

// The buffers of one launch. Sequences lie as a server's do: `capacity` rows each, however short
// they are; of the paged layouts each has the pages that its length needs, in one pool.
struct KvSet {
  std::int64_t capacity = 0;  // rows of the longest sequence
  std::vector<std::int64_t>
      rows;                    // of each sequence: those there is something in; a ring's are all
  std::size_t bytes = 0;       // K and V, from a set to the next one
  std::size_t used_bytes = 0;  // of them those of `rows`
};

// `kv_lens` has one length for each sequence of the batch.
KvSet kv_set(const Problem& problem, std::span<const int> kv_lens);

// How many sets launches have to take in turn, so that those which hold `least_bytes` of rows lie
// between two launches on the same one: 2 to `most`. Bytes that nobody reads push nothing out of a
// cache.
std::size_t sets_in_turn(const KvSet& set, std::size_t least_bytes, std::size_t most);

// Page ids [batch, capacity / page_size] of a set in an order without locality, as a cache has them
// after a while. What follows the pages of a short sequence is its last one again.
std::vector<int> page_ids(const Problem& problem, const KvSet& set, std::uint64_t seed);

}  // namespace attune
