#include "runtime/ngram_drafter.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/error.h"

namespace attune {
namespace {

constexpr int kMaxN = 16;

// The finalizer of SplitMix64 (Steele et al., 2014).
std::uint64_t mix(std::uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

}  // namespace

NgramDrafter::NgramDrafter(const NgramOptions& options) : options_(options) {
  if (1 <= options.min_n && options.min_n <= options.max_n && options.max_n <= kMaxN) return;
  throw InvalidArgument("the n-gram drafter cannot be made",
                        fmt::format("min_n={} max_n={}", options.min_n, options.max_n),
                        fmt::format("1 <= min_n <= max_n <= {}", kMaxN));
}

template <typename Visit>
void NgramDrafter::visit_suffixes(Visit visit) const {
  const int longest = std::min(options_.max_n, static_cast<int>(tokens_.size()));
  std::uint64_t hash = 0;
  for (int n = 1; n <= longest; ++n) {
    hash = mix(hash + 0x9e3779b97f4a7c15 + static_cast<std::uint32_t>(tokens_[tokens_.size() - n]));
    if (n >= options_.min_n) visit(hash);
  }
}

void NgramDrafter::begin(std::int32_t first_token) {
  followers_.clear();
  tokens_ = {first_token};
}

void NgramDrafter::append(std::span<const std::int32_t> tokens, const TargetFeatures&) {
  for (const std::int32_t token : tokens) add(token);
}

void NgramDrafter::add(std::int32_t token) {
  visit_suffixes(
      [&](std::uint64_t hash) { followers_[hash] = static_cast<std::int32_t>(tokens_.size()); });
  tokens_.push_back(token);
}

Proposal NgramDrafter::propose(int max_tokens, const SamplingOptions&) {
  std::int32_t source = 0;
  // The longest comes last.
  visit_suffixes([&](std::uint64_t hash) {
    if (const auto found = followers_.find(hash); found != followers_.end()) source = found->second;
  });
  Proposal proposal;
  if (source == 0) return proposal;
  const auto length = static_cast<int>(tokens_.size());
  for (int i = source; proposal.size() < max_tokens; ++i) {
    proposal.tokens.push_back(i < length ? tokens_[i] : proposal.tokens[i - length]);
  }
  return proposal;
}

}  // namespace attune
