// The file and its bases as one cache.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/store_state.h"
#include "cache/winner_rows.h"

namespace attune {

// Valid inside one read of the store.
class Tiers {
 public:
  Tiers(TuneStore::State& state, SQLite::Database& file) : state_(state), file_(file) {}

  // What `work` returns for the file and for each base that answers.
  template <typename Work>
  auto each(Work&& work) {
    std::vector<decltype(work(file_))> all;
    all.push_back(work(file_));
    for (DatabaseFile& base : state_.bases) {
      if (auto of_base = state_.on_base(base, work)) all.push_back(*std::move(of_base));
    }
    return all;
  }

  // The best answer of all; of several exact ones the first that is fresh, else the first.
  std::optional<WinnerHit> find_winner(const WinnerQuery& asked);
  // Identities that StoreOptions::gpu_alias names for a GPU, its own left out.
  std::vector<std::string> aliases(const DeviceInfo& gpu);

 private:
  struct Place {
    DatabaseFile* base;  // nullptr: the file
    std::int64_t id;
  };
  std::optional<Winner> read(const Place& place);

  TuneStore::State& state_;
  SQLite::Database& file_;
};

}  // namespace attune
