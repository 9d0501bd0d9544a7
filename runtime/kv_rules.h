// How many rows a cache needs and what may be written to it or taken back: arithmetic on positions.
#pragma once

#include <algorithm>

#include "templates/config.h"

namespace attune {

// A step writes its tokens before it reads. With `rows` rows of a ring, a step of num_tokens loses
// none of the `window` keys of its first token iff rows >= window + num_tokens - 1.
constexpr int kRingRounding = 64;  // rows; whole tiles

constexpr int ring_rows(int window, int max_tokens_per_step) {
  const int rows = std::max(window + max_tokens_per_step - 1, kMinRingCapacity);
  return (rows + kRingRounding - 1) / kRingRounding * kRingRounding;
}

// Most tokens of a step that keep every window whole.
constexpr int largest_ring_step(int rows, int window) { return rows - window + 1; }

// Whether the sequence may be cut to `length` tokens when positions up to `written` (exclusive)
// have ever been in the ring: the window of the next token has to be there still. No data moves:
// rows of cut tokens lie above the next positions, or have taken the place of keys outside the
// window.
constexpr bool can_cut(int length, int written, int rows, int window) {
  const int oldest_kept = std::max(written - rows, 0);
  const int oldest_needed = std::max(length - window + 1, 0);
  // An empty sequence needs none, and a window of one key is the next token's own.
  return oldest_needed == length || oldest_needed >= oldest_kept;
}

// The shortest length above 0 that the sequence may be cut to.
constexpr int shortest_cut(int written, int rows, int window) {
  return written <= rows || window == 1 ? 1 : written - rows + window - 1;
}

}  // namespace attune
