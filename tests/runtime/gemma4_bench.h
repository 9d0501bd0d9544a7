// What tests of the Gemma 4 runtime on the host device and on a GPU share: engines whose fresh
// memory is NaN and whose calls can be watched, and small models.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/gemma4_attention.h"
#include "templates/problem.h"
#include "tests/support/gemma4_app.h"
#include "tests/support/poisoning_device.h"
#include "tests/support/temporary_folder.h"

namespace attune {

// A cache file that keeps the kernels for other tests: the target that uses it defines
// ATTUNE_TEST_CACHE, a file in the build folder. Elsewhere it is there for this program alone.
inline std::string gemma4_test_cache() {
  static const TemporaryFolder folder;
  const std::filesystem::path kept = ATTUNE_TEST_CACHE;
  std::error_code error;
  const bool has_build_folder = std::filesystem::exists(kept.parent_path(), error);
  return (has_build_folder ? kept : folder / "tune.db").string();
}

struct Gemma4Bench {
  Gemma4Bench(const Options& options, std::unique_ptr<Device> device)
      : Gemma4Bench(options, std::make_unique<PoisoningDevice>(std::move(device))) {}

  Device& device() { return engine.device(); }

  PoisoningDevice* watched;  // the engine's
  Engine engine;

 private:
  Gemma4Bench(const Options& options, std::unique_ptr<PoisoningDevice> device)
      : watched(device.get()), engine(options, std::move(device)) {}
};

constexpr KvLayout kGlobalLayouts[] = {KvLayout::kContiguous, KvLayout::kPaged, KvLayout::kUnified,
                                       KvLayout::kUnifiedPaged};

inline std::string name_of_layout(const ::testing::TestParamInfo<KvLayout>& info) {
  std::string name(name_of(info.param));
  std::erase(name, '-');
  return name;
}

// A sliding layer and a global one, then two layers that read their caches.
inline Gemma4Geometry small_geometry(KvLayout global_layout) {
  LayerGeometry sliding;
  sliding.num_q_heads = 2;
  sliding.head_dim = 64;
  sliding.window = 24;
  sliding.rope = {.theta = 1e4, .num_pairs = 32, .head_dim = 64, .factor = 1};
  LayerGeometry global = sliding;
  global.kind = LayerKind::kGlobal;
  global.window = 0;
  if (is_unified(global_layout)) {
    global.head_dim = 512;
    global.k_eq_v = true;
    global.rope = {.theta = 1e6, .num_pairs = 64, .head_dim = 512, .factor = 1};
  }
  global.kv_layer = 1;
  Gemma4Geometry geometry;
  geometry.hidden_size = 64;
  geometry.max_positions = 4096;
  geometry.layers = {sliding, global, sliding, global};
  return geometry;
}

// The runtime's limits that hold for every small model.
inline Gemma4Options small_options(KvLayout global_layout) {
  Gemma4Options options;
  options.max_tokens = 300;  // the ring has 128 rows
  options.max_prefill = 40;
  options.max_verify = 5;
  options.global_layout = global_layout;
  options.page_size = 16;
  return options;
}

}  // namespace attune
