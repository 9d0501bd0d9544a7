#include "jit/host/deadlock.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "jit/host/operations.h"
#include "jit/host/symbolize.h"

namespace attune::host {
namespace {

constexpr int kShownRanges = 4;

// "3", "0-31" or "0-31, 40 and 5 more".
std::string thread_ranges(const std::vector<int>& threads) {
  std::string text;
  std::size_t at = 0;
  for (int shown = 0; at < threads.size() && shown < kShownRanges; ++shown) {
    std::size_t end = at + 1;
    while (end < threads.size() && threads[end] == threads[end - 1] + 1) ++end;
    text += text.empty() ? "" : ", ";
    text += end - at == 1 ? fmt::format("{}", threads[at])
                          : fmt::format("{}-{}", threads[at], threads[end - 1]);
    at = end;
  }
  if (at < threads.size()) text += fmt::format(" and {} more", threads.size() - at);
  return text;
}

std::string describe(const Wait& wait, const Cta& cta, std::uint32_t dynamic_begin) {
  if (wait.what.empty()) return "for its turn";
  if (wait.what == kWaitBarrier) {
    const Barrier& barrier = cta.barriers[wait.detail];
    return fmt::format("at bar.sync {} ({} of {} threads have arrived)", wait.detail,
                       barrier.num_arrived,
                       barrier.num_expected == 0 ? cta.num_alive : barrier.num_expected);
  }
  if (wait.what == kWaitMbarrier) {
    return fmt::format(
        "for the phase of parity {} of the mbarrier at dynamic shared memory offset {}", wait.more,
        static_cast<std::int64_t>(wait.detail) - dynamic_begin);
  }
  if (wait.what == kWaitCluster) return "at barrier.cluster.wait";
  if (std::string_view(wait.what).starts_with("wgmma.")) {
    return fmt::format("at {} for the other threads of warpgroup {}", wait.what, wait.detail);
  }
  return fmt::format("at {} for the other lanes of the mask {:#010x}", wait.what, wait.detail);
}

// Threads that wait for the same at the same place.
struct Waiting {
  Wait wait;
  const void* code;
  std::vector<int> threads;
};

std::vector<Waiting> waiting_of(const Cta& cta) {
  std::vector<Waiting> all;
  for (const Thread& thread : cta.threads) {
    if (thread.done) continue;
    const auto same = std::find_if(all.begin(), all.end(), [&](const Waiting& one) {
      return one.wait == thread.wait && one.code == thread.code;
    });
    if (same != all.end()) {
      same->threads.push_back(thread.index);
    } else {
      all.push_back({thread.wait, thread.code, {thread.index}});
    }
  }
  return all;
}

}  // namespace

std::string deadlock_report(std::span<const std::unique_ptr<Cta>> ctas,
                            std::uint32_t dynamic_begin) {
  std::string report = "no thread can go on:";
  for (const auto& cta : ctas) {
    const Index3& block = cta->block_idx;
    for (const Waiting& one : waiting_of(*cta)) {
      const std::string place = one.code == nullptr ? "" : to_text(symbolize(one.code));
      report += fmt::format(" block ({},{},{}) threads {} wait {}{}{};", block.x, block.y, block.z,
                            thread_ranges(one.threads), describe(one.wait, *cta, dynamic_begin),
                            place.empty() ? "" : " at ", place);
    }
    std::vector<int> ended;
    for (const Thread& thread : cta->threads) {
      if (thread.done) ended.push_back(thread.index);
    }
    if (!ended.empty()) report += fmt::format(" threads {} have ended;", thread_ranges(ended));
  }
  report.pop_back();
  return report;
}

}  // namespace attune::host
