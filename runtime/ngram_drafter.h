// Prompt look-up: proposes what followed when the last tokens stood in the sequence before.
// Source: Saxena, "Prompt Lookup Decoding", 2023.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/drafter.h"

namespace attune {

struct NgramOptions {
  int max_n = 4;  // the longest run of last tokens that is looked for, up to 16
  int min_n = 2;  // the shortest, 1 or more
};

// Of the matches it takes the longest, of equally long ones the most recent. A match that reaches
// the end of the sequence goes on in what it proposes. A step costs O(max_n), whatever the length.
class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(const NgramOptions& options = {});  // throws InvalidArgument

  void begin(std::int32_t first_token) override;
  void append(std::span<const std::int32_t> tokens, const TargetFeatures& features) override;
  Proposal propose(int max_tokens, const SamplingOptions& options) override;

 private:
  void add(std::int32_t token);
  // Calls visit with the hash of the last n tokens, n from min_n up to max_n or to all there are.
  template <typename Visit>
  void visit_suffixes(Visit visit) const;

  NgramOptions options_;
  std::vector<std::int32_t> tokens_;
  // Hash of a run of tokens to the position behind its last occurrence that has a token there. Two
  // runs of one hash would cost a proposal that is not accepted.
  std::unordered_map<std::uint64_t, std::int32_t> followers_;
};

}  // namespace attune
