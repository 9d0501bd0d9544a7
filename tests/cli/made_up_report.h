// A cache with everything that attune report shows: two GPUs, stale and missing winners, rejections.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/made_up_results.h"

namespace attune {

// Markup where a device, a compiler and an attacker can put text.
constexpr const char* kHostileGpu = "NVIDIA <i>\"H100\"</i> & co";
constexpr const char* kHostileDetail =
    "error: </td><script>window.injected=1</script><img src=\"http://192.0.2.1/x\" "
    "onerror='window.injected=2'> & more";

constexpr const char* kStaleDriver = "verify/b1/q4/kv1-4096/h8x2/d128/contiguous/bf16";
constexpr const char* kOlderTemplate = "verify/b1/q8/kv1-4096/h8x2/d128/contiguous/bf16";
constexpr const char* kOtherNvrtc = "decode/b2/q1/kv1-4096/h8x2/d128/contiguous/bf16";
constexpr const char* kProvisional = "verify/b1/q2/kv1-4096/h8x2/d128/contiguous/bf16";
constexpr const char* kAllRejected = "decode/b3/q1/kv1-4096/h8x2/d128/contiguous/bf16";

// Changes a stored winner and stores it in place of the one before.
template <typename Change>
void restore(TuneStore& store, const DeviceInfo& gpu, Winner winner, Change&& change) {
  change(winner);
  store.put_winner(gpu, winner);
}

inline void fill_report_cache(TuneStore& store) {
  const DeviceInfo gpu = made_up_gpu();
  double factor = 1;  // no two winners take equally long
  const auto scale = [&](Winner& winner) {
    factor += 0.5;
    for (Measurement& point : winner.measurements) point.median_us *= factor;
    winner.created_at = "2025-02-03T04:05:06Z";
    winner.margin_default_low = 0.18;
  };
  for (const char* text :
       {kTuned, kProvisional, "decode/b4/q1/kv1-1024/h8x2/d64/contiguous/bf16"}) {
    restore(store, gpu, store_made_up_winner(store, text), [&](Winner& winner) {
      scale(winner);
      winner.measurements[2].provisional = text == std::string(kProvisional);
    });
  }
  restore(store, gpu, store_made_up_winner(store, kStaleDriver), [&](Winner& winner) {
    scale(winner);
    winner.driver_version = "12.8";
    winner.created_at = "2024-12-01T00:00:00Z";
  });
  // Without a winner of today beside them, which would be served.
  const auto store_elsewhere = [&](const char* text, auto change) {
    const auto elsewhere = TuneStore::open_in_memory();
    restore(store, gpu, store_made_up_winner(*elsewhere, text), [&](Winner& winner) {
      scale(winner);
      winner.created_at = "2024-12-01T00:00:00Z";
      change(winner);
    });
  };
  store_elsewhere(kOlderTemplate, [](Winner& winner) {
    winner.toolchain.template_digest = digest_of("an older template");
  });
  store_elsewhere(kOtherNvrtc, [](Winner& winner) { winner.toolchain.compiler_version = "88.8"; });

  const DeviceInfo hostile = made_up_gpu(kHostileGpu);
  restore(store, hostile, store_made_up_winner(store, kTuned, hostile), scale);

  const Problem rejected = Problem::parse(kAllRejected);
  const auto space = candidate_space(rejected, gpu);
  const Candidate& candidate = space.kept.front();
  std::vector<RejectionRecord> records = {
      {candidate, Stage::kCompile, {RejectReason::kCompile, kHostileDetail}}};
  for (const Candidate& other : space.kept) {
    if (other.family == candidate.family && other != candidate) {
      records.push_back({other, Stage::kTime, {RejectReason::kTimeout, "no end within 10 s"}});
    }
  }
  for (const PrunedCandidate& pruned : space.pruned) {
    if (pruned.candidate.family == candidate.family) {
      records.push_back({pruned.candidate, Stage::kPrune, pruned.rejection});
    }
  }
  store.put_rejections(gpu, rejected,
                       toolchain_of(*find_family(candidate.family), gpu.arch, kNvrtc), records);
}

}  // namespace attune
