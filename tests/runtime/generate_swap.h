// Engine::swap under a Generator: its captured steps are captured again with the winners, between runs and
// in the middle of one, and the replaced kernels of steps that it has captured stay loaded as long as it
// keeps those.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cache/tune_store.h"
#include "jit/compiler.h"
#include "jit/model_source.h"
#include "tests/runtime/background_fixture.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/generate_cases.h"
#include "tests/support/naming_device.h"
#include "tuner/compile_stage.h"
#include "tuner/space.h"
#include "tuner/timer.h"

namespace attune {

// Knows what captured steps launch, too.
class ReplayNamingDevice : public NamingDevice {
 public:
  using NamingDevice::NamingDevice;
  Graph capture(StreamHandle stream, const std::function<void()>& work) override {
    ++num_captures;
    Graph graph;
    of_graphs_[nullptr] = launched_by([&] { graph = NamingDevice::capture(stream, work); });
    of_graphs_[graph.get()] = std::move(of_graphs_[nullptr]);
    return graph;
  }
  void launch(const Graph& graph, StreamHandle stream) override {
    replayed.merge(std::set<std::string>(of_graphs_.at(graph.get())));
    NamingDevice::launch(graph, stream);
  }
  void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
              StreamHandle stream) override {
    NamingDevice::launch(kernel, shape, params, stream);
  }

  int num_captures = 0;
  std::set<std::string> replayed;

 private:
  std::map<const void*, std::set<std::string>> of_graphs_;
};

class SwapUnderGenerator {
 public:
  // `options` say where the compiler is. The cache is one of this object's own, with the kernels that other
  // tests have left in theirs.
  SwapUnderGenerator(Options options, std::unique_ptr<Device> device, const Compiler& compiler)
      : compiler_(compiler), cache_path_((folder_.path() / "tune.db").string()) {
    TuneStore::open(gemma4_test_cache())->export_to(cache_path_);
    options.on_miss = OnMiss::kBackground;
    options.cache_path = cache_path_;
    options.tune_worker_path = worker_.path();
    options.cublaslt_path = "off";
    auto named = std::make_unique<ReplayNamingDevice>(std::move(device));
    device_ = named.get();
    engine_ = std::make_unique<Engine>(options, std::move(named));
    Gemma4ModelOptions limits = TinyModel::options();
    limits.attention.max_tokens = 64;
    limits.attention.max_verify = 1;  // few problems
    model_ = std::make_unique<Gemma4Model>(TinyModel().on(*engine_, limits));
    stream_ = engine_->device().create_stream();
    engine_->seal();
  }

  void run(bool in_the_middle) {
    GenerateOptions asked;
    asked.max_new_tokens = 6;
    Generator generator(*model_, nullptr, stream_.get());
    const std::vector<int> prompt = tiny_prompt(5);
    const std::vector<int> expected = generator.run(prompt, asked).tokens;
    EXPECT_EQ(device_->num_captures, 1);
    const std::string by_default = symbol_of(default_candidate(problem(), device_->info()));
    ASSERT_TRUE(device_->replayed.contains(by_default)) << by_default;

    store_winner();
    worker_.go();
    ASSERT_TRUE(eventually([&] { return is_idle(engine_->poll()); }, 200));
    const auto swap = [&] {
      EXPECT_EQ(engine_->swap(stream_.get()).size(), 1u);
      // The captured step still has them.
      EXPECT_EQ(engine_->release_replaced(), 0u);
      EXPECT_TRUE(device_->loaded().contains(by_default));
    };
    if (!in_the_middle) swap();
    bool has_begun = false;
    asked.on_tokens = [&](std::span<const std::int32_t>) {
      if (std::exchange(has_begun, true)) return true;
      if (in_the_middle) swap();
      device_->replayed.clear();
      return true;
    };
    // Any config of a linear layer gives the same bits.
    EXPECT_EQ(generator.run(prompt, asked).tokens, expected);
    EXPECT_EQ(device_->num_captures, 2);
    EXPECT_EQ(engine_->generation(), engine_->counters().swaps);
    EXPECT_TRUE(device_->replayed.contains(symbol_of(winner())));
    EXPECT_FALSE(device_->replayed.contains(by_default));
    EXPECT_EQ(engine_->release_replaced(), 1u);
    EXPECT_FALSE(device_->loaded().contains(by_default));
    EXPECT_EQ(generator.run(prompt, asked).tokens, expected);
    EXPECT_EQ(device_->num_captures, 2);
  }

 private:
  // The only layers of the model whose kernels no other shape has.
  Problem problem() const {
    const ModelConfig& config = model_->config();
    return Problem::of_linear(kMmaTokens,
                              {config.mlp_width(0), config.hidden_size(), LinearEpilogue::kGeglu});
  }
  // Another config than the default's.
  Candidate winner() const {
    const DeviceInfo& info = device_->info();
    const Candidate by_default = default_candidate(problem(), info);
    Candidate other = by_default;
    other.config.num_stages = by_default.config.num_stages == 1 ? 2 : 1;
    return other;
  }
  std::string symbol_of(const Candidate& candidate) const {
    return variant_source(candidate.variant(problem())).symbols.front();
  }
  void store_winner() const {
    const DeviceInfo& info = device_->info();
    Winner stored;
    stored.problem = problem();
    stored.candidate = winner();
    stored.toolchain = toolchain_of(known_family("linear"), info.arch, compiler_.version());
    stored.binary = compiler_.compile(variant_source(winner().variant(problem())), info.arch);
    stored.admission.reference = "none";
    stored.method = kTimingMethod;
    TuneStore::open(cache_path_)->put_winner(info, stored);
  }

  const TemporaryFolder folder_;
  const ScriptedWorker worker_{"exit 0"};  // the winner is stored by store_winner
  const Compiler& compiler_;
  const std::string cache_path_;
  ReplayNamingDevice* device_ = nullptr;  // the engine's
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Gemma4Model> model_;
  Stream stream_;
};

}  // namespace attune
