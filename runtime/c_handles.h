// What the opaque handles of the C ABI are.
#pragma once

#include <atomic>
#include <memory>

#include "runtime/attune.h"

struct attune_engine {
  attune::Engine engine;
  // The caller until it destroys the handle, and every object that needs the engine: they may be
  // destroyed in any order.
  std::atomic<int> num_owners{1};
};

struct attune_attention {
  attune::Attention attention;
};

namespace attune {

// What attune_engine_create opens an engine with. Throws InvalidArgument.
Options engine_options(const attune_options* given);

inline void release(attune_engine* engine) noexcept {
  if (engine != nullptr && engine->num_owners.fetch_sub(1) == 1) delete engine;
}

// One more owner.
inline std::shared_ptr<attune_engine> share(attune_engine* engine) {
  ++engine->num_owners;
  return {engine, release};
}

}  // namespace attune
