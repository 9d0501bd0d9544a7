#include "runtime/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/error.h"
#include "runtime/utf8.h"

namespace attune {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

constexpr int kNone = -1;

// A token of the text so far; neighbours by index.
struct Symbol {
  std::int32_t id;  // kNone: merged into the one on its left
  int previous;
  int next;
};

struct Candidate {
  std::int32_t rank;
  int left;  // index of the pair's first symbol
  std::int32_t merged_id;
  // Of a heap, whose top is the largest.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

}  // namespace

std::optional<unsigned char> byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  if (error != std::errc() || end != text.data() + 5) return std::nullopt;
  return byte;
}

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<Merge>& merges)
    : vocabulary_(std::move(vocabulary)) {
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = id_of(fmt::format("<0x{:02X}>", byte), "byte");
  }
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const std::int32_t left_id = id_of(left, "merge");
    const std::int32_t right_id = id_of(right, "merge");
    merges_[pair_key(left_id, right_id)] = {static_cast<std::int32_t>(rank),
                                            id_of(left + right, "merge")};
  }
}

std::int32_t BpeModel::id_of(const std::string& text, std::string_view role) const {
  const auto found = vocabulary_.find(text);
  if (found != vocabulary_.end()) return found->second;
  throw InvalidArgument("the vocabulary lacks a token", fmt::format("{}='{}'", role, text),
                        "every byte and every merge needs its tokens");
}

const BpeModel::Merged* BpeModel::find(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<std::int32_t> BpeModel::characters(std::string_view text) const {
  std::vector<std::int32_t> ids;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, first_utf8_part(text).num_bytes);
    const auto found = vocabulary_.find(character);
    if (found != vocabulary_.end()) {
      ids.push_back(found->second);
    } else {
      for (const char byte : character) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    }
    text.remove_prefix(character.size());
  }
  return ids;
}

std::vector<std::int32_t> BpeModel::encode(std::string_view text) const {
  std::vector<Symbol> symbols;
  for (const std::int32_t id : characters(text)) {
    const int index = static_cast<int>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  }
  if (symbols.empty()) return {};
  symbols.back().next = kNone;
  std::vector<Candidate> candidates;  // a heap
  // Whether the pair that begins at `left` can be merged; then it is the last of the candidates.
  const auto add = [&](int left) {
    if (left == kNone || symbols[left].next == kNone) return false;
    const Merged* merged = find(symbols[left].id, symbols[symbols[left].next].id);
    if (merged != nullptr) candidates.push_back({merged->rank, left, merged->id});
    return merged != nullptr;
  };
  for (int i = 0; i < static_cast<int>(symbols.size()); ++i) add(i);
  std::make_heap(candidates.begin(), candidates.end());
  while (!candidates.empty()) {
    std::pop_heap(candidates.begin(), candidates.end());
    const Candidate best = candidates.back();
    candidates.pop_back();
    Symbol& left = symbols[best.left];
    // The pair may be gone, by a merge on either side.
    if (left.id == kNone || left.next == kNone) continue;
    Symbol& right = symbols[left.next];
    const Merged* merged = find(left.id, right.id);
    if (merged == nullptr || merged->id != best.merged_id) continue;
    left.id = best.merged_id;
    left.next = right.next;
    right.id = kNone;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    for (const int pair : {left.previous, best.left}) {
      if (add(pair)) std::push_heap(candidates.begin(), candidates.end());
    }
  }
  std::vector<std::int32_t> ids;
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kNone) ids.push_back(symbol.id);
  }
  return ids;
}

}  // namespace attune
