// Linear layers served by an engine on the host device: winners, misses, and swaps.
#include "runtime/linear_layers.h"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cache/tune_store.h"
#include "jit/host_device.h"
#include "jit/model_source.h"
#include "tests/runtime/background_fixture.h"
#include "tests/support/naming_device.h"
#include "tests/support/require_cxx.h"
#include "tuner/compile_stage.h"
#include "tuner/reference.h"
#include "tuner/space.h"
#include "tuner/timer.h"

namespace attune {
namespace {

using Symbols = std::set<std::string>;
constexpr LinearShape kWide{40, 72}, kGated{24, 40, LinearEpilogue::kGeglu};

class LinearLayersHostTest : public HostCompilerTest {
 protected:
  void SetUp() override {
    HostCompilerTest::SetUp();
    options.device = "host";
    options.cache_path = (folder_.path() / "tune.db").string();
    options.cxx_path = test_host_search().cxx;
    options.tune_budget_s = 200;  // of a busy machine
    if (const char* path = std::getenv("ATTUNE_WORKER")) options.worker_path = path;
    if (const char* path = std::getenv("ATTUNE_TUNE_WORKER")) options.tune_worker_path = path;
    if (const char* path = std::getenv("ATTUNE_MEASURE_WORKER")) {
      options.measure_worker_path = path;
    }
    options.log = [this](const std::string& message) { warnings.push_back(message); };
  }

  // An engine on a device that knows its kernels by name.
  Engine& open() {
    auto named = std::make_unique<NamingDevice>(open_host_device({}));
    device_ = named.get();
    engine_ = std::make_unique<Engine>(options, std::move(named));
    return *engine_;
  }
  // A winner that nobody measured.
  void store_winner(const Problem& problem, const Candidate& candidate) const {
    const DeviceInfo info = open_host_device({})->info();
    Winner winner;
    winner.problem = problem;
    winner.candidate = candidate;
    winner.toolchain =
        toolchain_of(known_family(candidate.family), info.arch, compiler().version());
    winner.binary = compiler().compile(variant_source(candidate.variant(problem)), info.arch);
    winner.admission.reference = "none";
    winner.method = kTimingMethod;
    TuneStore::open(options.cache_path)->put_winner(info, winner);
  }

  // What `layers` give for the first tokens of a seeded input; its kernels go to `symbols`.
  std::vector<std::uint16_t> run(const LinearLayers& layers, const LinearShape& shape,
                                 int num_tokens, Symbols* symbols = nullptr) {
    const DeviceMem weights = noise(std::size_t{1} * shape.weight_rows() * shape.in_features);
    const DeviceMem input = noise(std::size_t{1} * num_tokens * shape.in_features);
    std::vector<std::uint16_t> out(std::size_t{1} * num_tokens * shape.out_features);
    const DeviceMem out_memory = device_->allocate(out.size() * kBytesPerElement);
    const Symbols launched = device_->launched_by([&] {
      layers.run(shape,
                 {.weights = weights.ptr(),
                  .input = input.ptr(),
                  .out = out_memory.ptr(),
                  .num_tokens = num_tokens},
                 nullptr);
    });
    device_->copy_to_host(std::as_writable_bytes(std::span(out)), out_memory.ptr(), nullptr);
    if (symbols != nullptr) *symbols = launched;
    return out;
  }
  // Of any size the first numbers are the same.
  DeviceMem noise(std::size_t count) {
    std::mt19937 bits(3);
    std::vector<std::uint16_t> values(count);
    for (std::uint16_t& one : values) {
      one = float_to_bf16(static_cast<float>(bits() % 4096) / 1024.0f - 2.0f);
    }
    DeviceMem memory = device_->allocate(count * kBytesPerElement);
    device_->copy_to_device(memory.ptr(), std::as_bytes(std::span(values)), nullptr);
    return memory;
  }

  Options options;
  std::vector<std::string> warnings;
  NamingDevice* device_ = nullptr;

 private:
  TemporaryFolder folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(LinearLayersHostTest, ServesTheWinnerOfItsShapeWithTheBitsOfTheDefault) {
  const std::array shapes = {kWide, kGated};
  std::vector<std::vector<std::uint16_t>> expected;
  {
    const LinearLayers by_default(open(), shapes);
    for (const int tokens : {3, 8, 11}) expected.push_back(run(by_default, kWide, tokens));
  }
  const Problem problem = Problem::of_linear(8, kWide);
  const Candidate by_default = default_candidate(problem, device_->info());
  const Candidate other = Candidate::parse("linear/m8n16s3w8/x1");
  ASSERT_NE(other, by_default);
  store_winner(problem, other);
  warnings.clear();

  Engine& engine = open();
  const LinearLayers layers(engine, shapes);
  EXPECT_EQ(engine.counters().exact, 1u);
  EXPECT_EQ(engine.counters().defaults, 3u);
  ASSERT_EQ(warnings.size(), 3u);
  for (const std::string& warning : warnings) {
    EXPECT_NE(warning.find("tune it with attune tune --problem 'linear/m"), std::string::npos)
        << warning;
    EXPECT_TRUE(warning.ends_with("--device host")) << warning;
  }
  engine.seal();
  Symbols symbols;
  EXPECT_EQ(run(layers, kWide, 3, &symbols), expected[0]);
  EXPECT_EQ(symbols, Symbols{"linear_bf16_store_m8n16s3w8"});
  EXPECT_EQ(run(layers, kWide, 8, &symbols), expected[1]);
  EXPECT_EQ(symbols, Symbols{"linear_bf16_store_m8n16s3w8"});
  EXPECT_EQ(run(layers, kWide, 11, &symbols), expected[2]);
  EXPECT_EQ(symbols.size(), 1u);
  EXPECT_TRUE(symbols.begin()->starts_with("linear_bf16_store_m16")) << *symbols.begin();
  // More than a launch takes: 16 and 3.
  run(layers, kWide, 19, &symbols);
  EXPECT_EQ(symbols.size(), 2u);

  // Nobody prepared it: the kernel of another shape computes it too.
  const LinearShape unknown{33, 136};
  run(layers, unknown, 2, &symbols);
  EXPECT_TRUE(symbols.begin()->starts_with("linear_bf16_store_m8")) << *symbols.begin();
  EXPECT_THROW(run(layers, {8, 8, LinearEpilogue::kSwiglu}, 1), InvalidArgument);
  EXPECT_EQ(engine.counters().late_prepares, 0u);
}

// One token has a winner of its own, whatever the weights.
TEST_F(LinearLayersHostTest, ServesTheWinnersOfExperts) {
  const LinearShape shape{24, 40, LinearEpilogue::kGeglu, LinearWeights::kBf16, 4, 2};
  const Problem alone = Problem::of_linear(1, shape);
  open();
  const DeviceInfo info = device_->info();
  const Candidate other = Candidate::parse("experts/m8n16s3w8/x1");
  ASSERT_NE(other, default_candidate(alone, info));
  store_winner(alone, other);
  Engine& engine = open();
  const std::array shapes = {shape};
  const LinearLayers layers(engine, shapes);
  EXPECT_EQ(engine.counters().exact, 1u);
  EXPECT_EQ(engine.counters().defaults, 2u);
  const DeviceMem weights = noise(std::size_t{1} * shape.all_weight_rows() * shape.in_features);
  const DeviceMem input = noise(std::size_t{2} * shape.in_features);
  const std::vector<int> entries = {1, 3};
  const DeviceMem chosen = expert_list(*device_, entries, nullptr);
  const auto run_tokens = [&](int num_tokens, Symbols* symbols) {
    std::vector<std::uint16_t> out(entries.size() * num_tokens * shape.out_features);
    const DeviceMem out_memory = device_->allocate(out.size() * kBytesPerElement);
    *symbols = device_->launched_by([&] {
      layers.run(shape,
                 {.weights = weights.ptr(),
                  .input = input.ptr(),
                  .out = out_memory.ptr(),
                  .num_tokens = num_tokens,
                  .chosen = chosen.ptr(),
                  .most_entries = static_cast<int>(entries.size())},
                 nullptr);
    });
    device_->copy_to_host(std::as_writable_bytes(std::span(out)), out_memory.ptr(), nullptr);
    return out;
  };
  Symbols symbols;
  const auto one = run_tokens(1, &symbols);
  EXPECT_EQ(symbols, Symbols{"experts_bf16_geglu_m8n16s3w8"});
  const auto two = run_tokens(2, &symbols);
  EXPECT_NE(symbols, Symbols{"experts_bf16_geglu_m8n16s3w8"});
  const auto row_of = [&](const std::vector<std::uint16_t>& out, int row) {
    return std::vector(out.begin() + row * shape.out_features,
                       out.begin() + (row + 1) * shape.out_features);
  };
  EXPECT_EQ(row_of(one, 0), row_of(two, 0));  // of expert 1
  EXPECT_EQ(row_of(one, 1), row_of(two, 2));  // of expert 3
  EXPECT_NE(row_of(one, 0), row_of(one, 1));
  // Layers of another kind are not taken in their place.
  EXPECT_THROW(run(layers, {24, 40, LinearEpilogue::kGeglu}, 2), InvalidArgument);
}

TEST_F(LinearLayersHostTest, LoadsAKernelOnceForAllItsShapes) {
  const std::array shapes = {kWide, LinearShape{56, 200}, LinearShape{8, 8}};
  std::size_t num_loads = 0;
  Engine& engine = open();
  device_->on_call = [&](std::string_view call) { num_loads += call == "load" ? 1 : 0; };
  const LinearLayers layers(engine, shapes);
  EXPECT_EQ(num_loads, 2u);  // for 8 and for 16 tokens
  EXPECT_EQ(engine.counters().defaults, 6u);
  EXPECT_EQ(engine.counters().compiles, 2u);
}

// As a cache is shipped that has a model's defaults: what names the compiler's version is some winner.
TEST_F(LinearLayersHostTest, AStoredDefaultNeedsNoCompiler) {
  const std::array shapes = {kWide};
  LinearLayers(open(), shapes);
  store_winner(Problem::of_linear(8, kGated), Candidate::parse("linear/m8n16s2w8/x1"));
  options.cxx_path = "/nowhere/c++";
  Engine& without = open();
  EXPECT_NO_THROW(LinearLayers(without, shapes));
  EXPECT_EQ(without.counters().defaults, 2u);
  EXPECT_EQ(without.counters().compiles, 0u);
  const std::array others = {LinearShape{24, 40, LinearEpilogue::kSwiglu}};
  EXPECT_THROW(LinearLayers(without, others), DeviceUnavailable);
}

TEST_F(LinearLayersHostTest, RefusesWhatWasNotTunedWhereAskedTo) {
  options.on_miss = OnMiss::kError;
  Engine& engine = open();
  const std::array shapes = {kWide};
  EXPECT_THROW(LinearLayers(engine, shapes), NotPrepared);
}

TEST_F(LinearLayersHostTest, IsNoAttention) {
  Engine& engine = open();
  try {
    engine.prepare("linear/m8/n40/k72/store/bf16");
    ADD_FAILURE() << "prepared";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("as attention"), std::string::npos) << error.what();
  }
}

TEST_F(LinearLayersHostTest, WinnersOfTheBackgroundAreSwappedIn) {
  options.on_miss = OnMiss::kBackground;
  Engine& engine = open();
  const std::array shapes = {
      LinearShape{16, 264}};  // packed, it has few candidates, for 1, 8 and 16 tokens
  const LinearLayers layers(engine, shapes, LinearWeights::kInt4);
  EXPECT_EQ(engine.counters().defaults, 3u);
  engine.seal();
  ASSERT_TRUE(eventually([&] { return is_idle(engine.poll()); }, 280));
  const std::vector<Swap> swaps = engine.swap(nullptr);
  ASSERT_EQ(swaps.size(), 3u) << (warnings.empty() ? "" : warnings.back());
  for (const Swap& swap : swaps) {
    const Problem problem = Problem::parse(swap.problem);
    EXPECT_EQ(problem.linear.weights, LinearWeights::kInt4);
    const auto kept = candidate_space(problem, device_->info()).kept;
    EXPECT_EQ(std::count(kept.begin(), kept.end(), Candidate::parse(swap.to)), 1) << swap.to;
  }
  // As a later process does.
  options.on_miss = OnMiss::kError;
  Engine next(options);
  EXPECT_NO_THROW(LinearLayers(next, shapes, LinearWeights::kInt4));
  EXPECT_EQ(next.counters().exact, 3u);
}

}  // namespace
}  // namespace attune
