// What a prepared problem holds: the choice that was made for it and the loaded kernels.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cache/records.h"
#include "jit/device.h"
#include "runtime/attune.h"
#include "templates/launch_plan.h"

namespace attune {

// Which candidate serves a problem, and why.
struct Choice {
  Problem problem;
  Candidate candidate;
  LaunchPlan plan;
  Served served = Served::kDefault;
  std::optional<Winner> winner;  // the row that was served, without its cubin; empty for a default
  Freshness freshness = Freshness::kFresh;
};

// Some lines for a person; `device` is the one in use.
std::string explain(const Choice& choice, const DeviceInfo& device);

// A module of kernels that are not tuned.
struct LoadedModule {
  std::shared_ptr<Device> device;  // declared first: goes after the module
  Module module;
};

struct Attention::Prepared {
  std::shared_ptr<Device> device;  // declared first: goes after the module
  std::shared_ptr<const AttentionKernels> kernels;
  Choice choice;
};

// What all copies of an Attention share. A launch reads `current` and nothing else, without a lock:
// what it points to lives on in `owner` or `replaced` until the caller releases it.
struct Attention::Slot {
  Slot(std::shared_ptr<const Prepared> prepared, std::size_t workspace)
      : current(prepared.get()), workspace_bytes(workspace), owner(std::move(prepared)) {}

  const Prepared& prepared() const { return *current.load(std::memory_order_acquire); }

  std::atomic<const Prepared*> current;
  const std::size_t workspace_bytes;
  std::shared_ptr<const Prepared> owner;  // this and the next are guarded by the engine
  std::vector<std::shared_ptr<const Prepared>> replaced;
};

}  // namespace attune
