// The race checker against the definition: random traces, every pair of accesses compared.
#include <array>
#include <bitset>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "jit/host/race_check.h"

namespace attune::host {
namespace {

constexpr int kMaxThreads = 24;
constexpr std::uint32_t kBytes = 48;
constexpr std::size_t kMaxNodes = 256;

enum class EventKind {
  kRead,
  kWrite,
  kAtomic,
  kBegin,
  kEnd,
  kEndOn,
  kBarrier,
  kRelease,
  kAcquire,
  kFence
};

struct Event {
  EventKind kind = EventKind::kRead;
  int thread = 0;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  Operation operation = Operation::kLoad;
  bool is_write = false;  // of a begin
  std::size_t begin = 0;  // of an end: the place of its begin among all begins
  std::uint64_t sync_id = 0;
  std::vector<int> threads;  // of a barrier
};

bool is_access(EventKind kind) { return kind <= EventKind::kBegin; }

// All events as nodes of a graph, each with the set of its ancestors.
class Oracle {
 public:
  using Nodes = std::bitset<kMaxNodes>;
  struct Conflict {
    std::size_t event;
    RaceKind kind;
  };

  // The earlier events that `event` races with, were it the next.
  std::vector<Conflict> conflicts(const Event& event) const {
    std::vector<Conflict> found;
    const Nodes before = past(event.thread);
    const Access later = access_of(event);
    for (const Access& earlier : accesses_) {
      if (earlier.offset + earlier.bytes <= later.offset) continue;
      if (later.offset + later.bytes <= earlier.offset) continue;
      if (!earlier.is_write && !later.is_write) continue;
      if (earlier.is_atomic && later.is_atomic) continue;
      if (!before[earlier.node]) {
        const bool is_running = earlier.is_async && !has_ended_[earlier.begin];
        found.push_back({earlier.event, is_running ? RaceKind::kInFlight : RaceKind::kUnordered});
      } else if (earlier.is_write && !earlier.is_async_proxy && later.is_async_proxy &&
                 !is_fenced(earlier.node, before)) {
        found.push_back({earlier.event, RaceKind::kMissingFence});
      }
    }
    return found;
  }

  void append(const Event& event, std::size_t event_idx) {
    if (event.kind == EventKind::kEndOn) {  // happens beside the threads
      has_ended_[event.begin] = true;
      releases_[event.sync_id].push_back(operations_[event.begin]);
      return;
    }
    Nodes before = past(event.thread);
    for (const int thread : event.threads) before |= past(thread);
    if (event.kind == EventKind::kAcquire) {
      for (const std::size_t node : releases_[event.sync_id]) before |= with(node);
    }
    if (event.kind == EventKind::kEnd) {
      has_ended_[event.begin] = true;
      before |= with(operations_[event.begin]);
    }
    const std::size_t node = add(before);
    last_[static_cast<std::size_t>(event.thread)] = node;
    for (const int thread : event.threads) last_[static_cast<std::size_t>(thread)] = node;
    if (event.kind == EventKind::kRelease) releases_[event.sync_id].push_back(node);
    if (event.kind == EventKind::kFence) fences_.push_back(node);
    if (!is_access(event.kind)) return;
    Access access = access_of(event);
    access.event = event_idx;
    access.node = node;
    if (event.kind == EventKind::kBegin) {
      access.node = add(with(node));
      access.begin = operations_.size();
      operations_.push_back(access.node);
      has_ended_.push_back(false);
    }
    accesses_.push_back(access);
  }

  bool is_full() const { return ancestors_.size() + 4 > kMaxNodes; }
  std::size_t num_begun() const { return operations_.size(); }
  bool has_ended(std::size_t begin) const { return has_ended_[begin]; }

 private:
  struct Access {
    std::size_t event = 0;
    std::size_t node = 0;
    std::uint32_t offset, bytes;
    bool is_write, is_atomic, is_async, is_async_proxy;
    std::size_t begin = 0;
  };

  static Access access_of(const Event& event) {
    const bool is_async = event.kind == EventKind::kBegin;
    const bool is_atomic = event.kind == EventKind::kAtomic;
    const bool is_write = is_async ? event.is_write : event.kind != EventKind::kRead;
    return {0,        0,         event.offset, event.bytes,
            is_write, is_atomic, is_async,     is_async_proxy(event.operation),
            0};
  }
  Nodes with(std::size_t node) const {
    Nodes all = ancestors_[node];
    all.set(node);
    return all;
  }
  Nodes past(int thread) const {
    const std::optional<std::size_t>& last = last_[static_cast<std::size_t>(thread)];
    return last ? with(*last) : Nodes();
  }
  std::size_t add(const Nodes& before) {
    ancestors_.push_back(before);
    return ancestors_.size() - 1;
  }
  bool is_fenced(std::size_t node, const Nodes& before) const {
    for (const std::size_t fence : fences_) {
      if (before[fence] && ancestors_[fence][node]) return true;
    }
    return false;
  }

  std::vector<Nodes> ancestors_;
  std::array<std::optional<std::size_t>, kMaxThreads> last_;
  std::map<std::uint64_t, std::vector<std::size_t>> releases_;
  std::vector<std::size_t> fences_;
  std::vector<std::size_t> operations_;  // by begin
  std::vector<bool> has_ended_;
  std::vector<Access> accesses_;
};

// What the checker says of one event. Code addresses are the numbers of events, from 1.
class Fed {
 public:
  Fed(RaceChecker* checker, int num_threads) : checker_(*checker) { checker_.reset(num_threads); }

  std::optional<Race> feed(const Event& event, std::size_t event_idx) {
    const void* const code = reinterpret_cast<const void*>(event_idx + 1);
    switch (event.kind) {
      case EventKind::kRead:
        return checker_.read(event.thread, event.offset, event.bytes, code, event.operation);
      case EventKind::kWrite:
        return checker_.write(event.thread, event.offset, event.bytes, code, event.operation);
      case EventKind::kAtomic:
        return checker_.atomic(event.thread, event.offset, event.bytes, code);
      case EventKind::kBegin: {
        const auto begun = checker_.async_begin(
            event.thread, {event.offset, event.bytes, event.is_write, event.operation, code});
        ids_.push_back(begun.id);
        return begun.race;
      }
      case EventKind::kEnd:
        checker_.async_end(ids_[event.begin], event.thread);
        return std::nullopt;
      case EventKind::kEndOn:
        checker_.async_end_on(ids_[event.begin], event.sync_id);
        return std::nullopt;
      case EventKind::kBarrier:
        checker_.barrier(event.threads);
        return std::nullopt;
      case EventKind::kRelease:
        checker_.release(event.thread, event.sync_id);
        return std::nullopt;
      case EventKind::kAcquire:
        checker_.acquire(event.thread, event.sync_id);
        return std::nullopt;
      case EventKind::kFence:
        checker_.fence_proxy(event.thread);
        return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  RaceChecker& checker_;
  std::vector<RaceChecker::AsyncId> ids_;
};

class Generator {
 public:
  Generator(std::uint32_t seed, int num_threads) : num_threads_(num_threads), random_(seed) {
    read_percent_ = below(2) == 0 ? 50 : 85;
  }

  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }

  Event next(const Oracle& oracle) {
    Event event;
    event.thread = below(num_threads_);
    event.sync_id = static_cast<std::uint64_t>(below(3));
    const int kind = below(100);
    if (kind < 50) {
      make_access(&event);
    } else if (kind < 60) {
      make_begin(&event);
    } else if (kind < 72) {
      make_end(&event, oracle);
    } else if (kind < 80) {
      event.kind = EventKind::kBarrier;
      for (int thread = 0; thread < num_threads_; ++thread) {
        if (below(3) > 0) event.threads.push_back(thread);
      }
      if (!event.threads.empty()) event.thread = event.threads.front();
      if (event.threads.empty()) event.kind = EventKind::kFence;
    } else if (kind < 86) {
      event.kind = EventKind::kRelease;
    } else if (kind < 95) {
      event.kind = EventKind::kAcquire;
    } else {
      event.kind = EventKind::kFence;
    }
    return event;
  }

 private:
  void make_access(Event* event) {
    event->bytes = 1u << below(5);
    event->offset =
        static_cast<std::uint32_t>(below(static_cast<int>(kBytes / event->bytes))) * event->bytes;
    const int which = below(100);
    const bool is_read = which < read_percent_;
    const bool is_write = which < (read_percent_ + 100) / 2;
    event->kind = is_read ? EventKind::kRead : is_write ? EventKind::kWrite : EventKind::kAtomic;
    event->operation = is_read    ? Operation::kLoad
                       : is_write ? Operation::kStore
                                  : Operation::kAtomic;
  }
  void make_begin(Event* event) {
    constexpr std::array kOperations = {Operation::kCpAsync, Operation::kBulkLoad,
                                        Operation::kBulkStore, Operation::kWgmma};
    event->kind = EventKind::kBegin;
    event->operation = kOperations[static_cast<std::size_t>(below(4))];
    event->is_write =
        event->operation == Operation::kCpAsync || event->operation == Operation::kBulkLoad;
    event->offset = static_cast<std::uint32_t>(below(6)) * 8;
    event->bytes =
        4u + static_cast<std::uint32_t>(below(static_cast<int>(kBytes - event->offset) - 3));
  }
  // Of an operation that has not ended; an acquire when there is none.
  void make_end(Event* event, const Oracle& oracle) {
    std::vector<std::size_t> open;
    for (std::size_t begin = 0; begin < oracle.num_begun(); ++begin) {
      if (!oracle.has_ended(begin)) open.push_back(begin);
    }
    event->kind = EventKind::kAcquire;
    if (open.empty()) return;
    event->kind = below(2) == 0 ? EventKind::kEnd : EventKind::kEndOn;
    event->begin = open[static_cast<std::size_t>(below(static_cast<int>(open.size())))];
  }

  int num_threads_;
  int read_percent_;  // of the accesses
  std::mt19937 random_;
};

struct Totals {
  int accesses = 0;
  std::array<int, 3> races{};  // by kind
};

// Feeds one trace up to its first race; most of the events that would race are left out, so that
// traces get long. Returns what is wrong.
std::string compare(RaceChecker* checker, std::uint32_t seed, Totals* totals) {
  const int num_threads = std::array{2, 5, kMaxThreads}[seed % 3];
  Generator generator(seed, num_threads);
  Oracle oracle;
  Fed fed(checker, num_threads);
  for (std::size_t event_idx = 0; event_idx < 200 && !oracle.is_full(); ++event_idx) {
    const Event event = generator.next(oracle);
    const auto conflicts =
        is_access(event.kind) ? oracle.conflicts(event) : std::vector<Oracle::Conflict>();
    if (!conflicts.empty() && generator.below(16) > 0) continue;
    const std::optional<Race> race = fed.feed(event, event_idx);
    totals->accesses += is_access(event.kind);
    if (conflicts.empty()) {
      if (race) return fmt::format("false race at event {} with {}", event_idx, to_text(*race));
      oracle.append(event, event_idx);
      continue;
    }
    if (!race) return fmt::format("missed race at event {}", event_idx);
    for (const Oracle::Conflict& conflict : conflicts) {
      const bool is_it = race->kind == conflict.kind &&
                         race->earlier.code == reinterpret_cast<const void*>(conflict.event + 1);
      if (!is_it) continue;
      ++totals->races[static_cast<std::size_t>(race->kind)];
      return "";
    }
    return fmt::format("another race at event {}: {}", event_idx, to_text(*race));
  }
  return "";
}

TEST(RaceOracle, AgreesWithTheDefinitionOnRandomTraces) {
  std::optional<RaceChecker> checker;
  Totals totals;
  for (std::uint32_t seed = 1; seed <= 20000; ++seed) {
    // Lists of records that have not grown yet are pruned more often; a used checker is reset.
    if (seed % 4 != 0) checker.emplace(kMaxThreads, kBytes);
    const std::string problem = compare(&*checker, seed, &totals);
    ASSERT_EQ(problem, "") << "seed " << seed;
  }
  for (const int num_races : totals.races) EXPECT_GT(num_races, 500);
  std::cout << fmt::format("{} accesses; races: {} unordered, {} in flight, {} without a fence\n",
                           totals.accesses, totals.races[0], totals.races[1], totals.races[2]);
}

}  // namespace
}  // namespace attune::host
