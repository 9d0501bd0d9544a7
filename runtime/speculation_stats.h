// What speculation gained: counts of verify rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attune {

class SpeculationStats {
 public:
  // A round of num_proposed proposals, the first num_accepted of them accepted; num_emitted of its
  // tokens were emitted, which are fewer than num_accepted + 1 where the sequence ended.
  void add_round(int num_proposed, int num_accepted, int num_emitted) {
    ++num_rounds_;
    num_accepted_ += num_accepted;
    num_emitted_ += num_emitted;
    if (by_position_.size() < static_cast<std::size_t>(num_proposed)) {
      by_position_.resize(static_cast<std::size_t>(num_proposed));
    }
    for (int i = 0; i < num_proposed && i <= num_accepted; ++i) {
      Position& position = by_position_[static_cast<std::size_t>(i)];
      ++position.num_judged;
      if (i < num_accepted) ++position.num_accepted;
    }
  }

  std::int64_t num_rounds() const { return num_rounds_; }
  std::int64_t num_emitted() const { return num_emitted_; }
  std::int64_t num_accepted() const { return num_accepted_; }

  // Tokens a verify round emits, the prefill's own token not counted; 0 without rounds.
  double mean_emitted() const { return ratio(num_emitted_, num_rounds_); }
  // Accepted proposals and the target's own token, emitted or not.
  double mean_accepted_length() const { return ratio(num_accepted_ + num_rounds_, num_rounds_); }

  // Of the proposals at each position of the chain that were judged, those in front of it being
  // accepted, the part that was accepted.
  std::vector<double> acceptance_by_position() const {
    std::vector<double> rates;
    for (const Position& position : by_position_) {
      rates.push_back(ratio(position.num_accepted, position.num_judged));
    }
    return rates;
  }

 private:
  struct Position {
    std::int64_t num_judged = 0;
    std::int64_t num_accepted = 0;
  };
  static double ratio(std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }

  std::int64_t num_rounds_ = 0;
  std::int64_t num_accepted_ = 0;
  std::int64_t num_emitted_ = 0;
  std::vector<Position> by_position_;
};

}  // namespace attune
