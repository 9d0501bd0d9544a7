#include "cache/tiers.h"

#include <algorithm>

#include "cache/nearest.h"

namespace attune {

std::optional<Winner> Tiers::read(const Place& place) {
  const auto read_row = [&](SQLite::Database& db) -> std::optional<Winner> {
    auto found = read_winner(db, place.id, state_.noter());
    if (!found) return std::nullopt;
    state_.use(db, found->binary_id);
    return std::move(found->winner);
  };
  if (place.base == nullptr) return read_row(file_);
  return state_.on_base(*place.base, read_row).value_or(std::nullopt);
}

std::optional<WinnerHit> Tiers::find_winner(const WinnerQuery& asked) {
  std::vector<Place> places;
  std::vector<Problem> tuned;
  const auto add = [&](DatabaseFile* base, const std::vector<TunedRow>& rows) {
    for (const TunedRow& row : rows) {
      places.push_back({base, row.id});
      tuned.push_back(row.problem);
    }
  };
  const auto rows_of = [&](SQLite::Database& db) { return tuned_rows(db, asked); };
  add(nullptr, rows_of(file_));
  for (DatabaseFile& base : state_.bases) {
    if (const auto rows = state_.on_base(base, rows_of)) add(&base, *rows);
  }
  std::optional<WinnerHit> best;
  for (const ProblemMatch& match : rank_matches(asked.problem, tuned)) {
    if (best && match.match != Match::kExact) break;
    auto winner = read(places[match.tuned_idx]);
    if (!winner) continue;
    const Freshness freshness = freshness_of(*winner, asked);
    const bool is_final = match.match != Match::kExact || freshness == Freshness::kFresh;
    if (!best || is_final) best = WinnerHit{std::move(*winner), match.match, freshness};
    if (is_final) break;
  }
  return best;
}

std::vector<std::string> Tiers::aliases(const DeviceInfo& gpu) {
  std::vector<std::string> all;
  const std::string& alias = state_.options.gpu_alias;
  if (alias.empty()) return all;
  for (const auto& some :
       each([&](SQLite::Database& db) { return find_gpus(db, alias, gpu.arch); })) {
    for (const std::string& identity : some) {
      const bool known = std::find(all.begin(), all.end(), identity) != all.end();
      if (!known && identity != gpu.identity()) all.push_back(identity);
    }
  }
  return all;
}

}  // namespace attune
