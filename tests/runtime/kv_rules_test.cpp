// The rules of ring caches, against a ring that is simulated slot by slot.
#include "runtime/kv_rules.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace attune {
namespace {

// Every write has an id of its own, so that a row of a rejected token is none of a committed one.
class SimulatedRing {
 public:
  SimulatedRing(int rows, int window)
      : slots_(static_cast<std::size_t>(rows), -1), rows_(rows), window_(window) {}

  int length() const { return static_cast<int>(tokens_.size()); }
  // As a session keeps it.
  int written() const { return written_; }

  // Writes a step's tokens; they are in the sequence until it is cut. Returns whether each of them
  // sees all the keys of its window.
  bool write(int num_tokens) {
    const int first = length();
    for (int i = 0; i < num_tokens; ++i) {
      tokens_.push_back(++last_id_);
      slot(first + i) = last_id_;
    }
    written_ = std::max(written_, length());
    for (int query = first; query < length(); ++query) {
      if (!has(std::max(0, query - window_ + 1), query + 1)) return false;
    }
    return true;
  }
  // Whether a token at `length` would see its whole window.
  bool would_survive(int length) const { return has(std::max(0, length - window_ + 1), length); }
  void cut(int length) {
    tokens_.resize(static_cast<std::size_t>(length));
    if (length == 0) written_ = 0;
  }

 private:
  int& slot(int position) { return slots_[static_cast<std::size_t>(position % rows_)]; }
  bool has(int begin, int end) const {
    for (int position = begin; position < end; ++position) {
      if (slots_[static_cast<std::size_t>(position % rows_)] !=
          tokens_[static_cast<std::size_t>(position)]) {
        return false;
      }
    }
    return true;
  }

  std::vector<int> slots_, tokens_;
  int rows_, window_, written_ = 0, last_id_ = 0;
};

TEST(KvRules, ARingHasTheFewestWholeTilesThatTheLargestStepAllows) {
  for (int window = 1; window <= 300; ++window) {
    for (int step = 1; step <= 300; ++step) {
      const int rows = ring_rows(window, step);
      ASSERT_EQ(rows % kRingRounding, 0);
      ASSERT_GE(rows, kMinRingCapacity);
      ASSERT_GE(largest_ring_step(rows, window), step);
      const int fewer = rows - kRingRounding;
      ASSERT_TRUE(fewer < kMinRingCapacity || largest_ring_step(fewer, window) < step);
    }
  }
  EXPECT_EQ(ring_rows(1024, 1025), 2048);
}

TEST(KvRules, AStepOfTheLargestSizeKeepsEveryWindowAndOneMoreTokenDoesNot) {
  for (int rows = 1; rows <= 14; ++rows) {
    for (int window = 1; window <= rows; ++window) {
      const int largest = largest_ring_step(rows, window);
      for (int length = 0; length <= 3 * rows; ++length) {
        for (int step = 1; step <= largest + 1; ++step) {
          SimulatedRing ring(rows, window);
          for (int i = 0; i < length; ++i) ASSERT_TRUE(ring.write(1));
          const bool is_whole = ring.write(step);
          if (step <= largest) {
            ASSERT_TRUE(is_whole) << rows << " " << window << " " << length << " " << step;
          }
          // With fewer tokens in the ring the step may take free rows.
          if (step > largest && length >= rows) {
            ASSERT_FALSE(is_whole) << rows << " " << window << " " << length;
          }
        }
      }
    }
  }
}

// All ways to write and commit and cut: random ones, many.
TEST(KvRules, ASequenceCanBeCutExactlyWhereTheRingHoldsTheWindow) {
  std::mt19937 random(5);
  const auto any = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  int num_cuts = 0, num_refused = 0;
  for (int rows = 1; rows <= 14; ++rows) {
    for (int window = 1; window <= rows; ++window) {
      const int largest = largest_ring_step(rows, window);
      for (int run = 0; run < 20; ++run) {
        SimulatedRing ring(rows, window);
        for (int act = 0; act < 40; ++act) {
          const int first = ring.length();
          const int step = any(1, largest);
          ASSERT_TRUE(ring.write(step)) << rows << " " << window << " " << first << " " << step;
          ring.cut(first + any(0, step));
          std::vector<int> allowed;
          for (int length = 0; length <= ring.length(); ++length) {
            const bool can = can_cut(length, ring.written(), rows, window);
            ASSERT_EQ(can, ring.would_survive(length))
                << "rows " << rows << " window " << window << " written " << ring.written()
                << " length " << ring.length() << " to " << length;
            if (can) allowed.push_back(length);
            num_refused += can ? 0 : 1;
          }
          const auto shortest = std::upper_bound(allowed.begin(), allowed.end(), 0);
          if (shortest != allowed.end()) {
            ASSERT_EQ(shortest_cut(ring.written(), rows, window), *shortest)
                << "rows " << rows << " window " << window << " written " << ring.written();
          }
          if (any(0, 3) > 0) continue;
          ring.cut(allowed[static_cast<std::size_t>(any(0, static_cast<int>(allowed.size()) - 1))]);
          ++num_cuts;
        }
      }
    }
  }
  EXPECT_GT(num_cuts, 1000);
  EXPECT_GT(num_refused, 1000);
}

}  // namespace
}  // namespace attune
