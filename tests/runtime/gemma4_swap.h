// Engine::swap under a model and its captured graphs: a graph keeps the kernels that it was
// captured with, calls and captures after the swap have the winners', and the replaced ones go once
// no graph has them.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cache/tune_store.h"
#include "jit/compiler.h"
#include "jit/source.h"
#include "templates/launch_plan.h"
#include "tests/runtime/background_fixture.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_served.h"
#include "tests/support/naming_device.h"
#include "tuner/compile_stage.h"
#include "tuner/space.h"
#include "tuner/timer.h"

namespace attune {

class SwapUnderModel {
 public:
  // `options` say where the compiler is. The cache is one of this object's own.
  SwapUnderModel(Options options, std::unique_ptr<Device> device, const Compiler& compiler,
                 KvLayout global_layout)
      : compiler_(compiler),
        cache_path_((folder_.path() / "tune.db").string()),
        model_(small_geometry(global_layout)) {
    options.on_miss = OnMiss::kBackground;
    options.cache_path = cache_path_;
    options.tune_worker_path = worker_.path();
    auto named = std::make_unique<NamingDevice>(std::move(device));
    device_ = named.get();
    bench_ = std::make_unique<Gemma4Bench>(options, std::move(named));
    Gemma4Options limits = small_options(global_layout);
    limits.max_verify = kNumTokens;
    attention_ = std::make_unique<Gemma4Attention>(engine(), model_.geometry, limits);
    model_.set_norm_weights(*attention_);
    engine().seal();
    stream_ = device_->create_stream();
    buffers_ = std::make_unique<StepBuffers>(*device_, model_, 1, kMaxPrefill, Projections::kDense);
    served_ = std::make_unique<ServedSequence>(*attention_, model_, 1);
    grow_to(*served_, 75, model_, *buffers_, kMaxPrefill, stream_.get());
  }

  void run() {
    std::optional<Graph> old_graph;
    const std::set<std::string> old_kernels = kernels_of([&] { old_graph = capture(); });
    const auto before = replayed(*old_graph);

    const std::size_t num_winners = store_winners();
    worker_.go();
    ASSERT_TRUE(eventually([&] { return is_idle(engine().poll()); }));
    ASSERT_EQ(engine().swap(stream_.get()).size(), num_winners);

    // The step once more.
    EXPECT_TRUE(replayed(*old_graph) == before);
    const std::set<std::string> new_kernels = kernels_of([&] { launched(); });
    EXPECT_EQ(common(new_kernels, old_kernels), std::set<std::string>());
    const auto after = launched();
    Graph new_graph;
    EXPECT_EQ(kernels_of([&] { new_graph = capture(); }), new_kernels);
    EXPECT_TRUE(replayed(new_graph) == after);

    for (int commit : {2, 1, 2, 0, 2, 1}) {
      replayed(*old_graph, commit);
      replayed(new_graph, commit);
      launched(commit);
    }
    EXPECT_EQ(common(device_->loaded(), old_kernels), old_kernels);
    device_->synchronize(stream_.get());
    old_graph.reset();
    EXPECT_EQ(engine().release_replaced(), num_winners);
    EXPECT_EQ(common(device_->loaded(), old_kernels), std::set<std::string>());
    for (int i = 0; i < 4; ++i) {
      const auto replay = replayed(new_graph);
      EXPECT_TRUE(launched(kNumTokens) == replay);
    }
  }

 private:
  using Outputs = std::vector<std::vector<std::uint16_t>>;
  static constexpr int kNumTokens = 2;
  static constexpr int kMaxPrefill = 40;

  Engine& engine() { return bench_->engine; }

  // Of every problem of a step: of other candidates than the defaults, those that need most
  // workspace. Returns how many. Nothing says that they are faster.
  std::size_t store_winners() {
    const auto store = TuneStore::open(cache_path_);
    std::istringstream lines(attention_->explain());
    std::set<std::string> problems;  // layers that share another's cache have the same ones
    for (std::string line; std::getline(lines, line);) {
      problems.insert(line.substr(0, line.find(' ')));
    }
    std::erase_if(problems,
                  [](const auto& text) { return Problem::parse(text).op == Op::kPrefill; });
    for (const std::string& text : problems) {
      store->put_winner(device_->info(), winner_of(Problem::parse(text)));
    }
    return problems.size();
  }
  Winner winner_of(const Problem& problem) const {
    const DeviceInfo& info = device_->info();
    const Variant by_default = default_candidate(problem, info).variant(problem);
    std::vector<Candidate> others = candidate_space(problem, info).kept;
    std::erase_if(others, [&](const Candidate& one) { return one.variant(problem) == by_default; });
    const auto workspace_bytes = [&](const Candidate& one) {
      return plan_launch(problem, one).workspace_bytes();
    };
    Winner winner;
    winner.problem = problem;
    winner.candidate = *std::max_element(
        others.begin(), others.end(),
        [&](const auto& a, const auto& b) { return workspace_bytes(a) < workspace_bytes(b); });
    winner.toolchain =
        toolchain_of(known_family(winner.candidate.family), info.arch, compiler_.version());
    winner.binary =
        compiler_.compile(attention_source(winner.candidate.variant(problem)), info.arch);
    winner.admission.reference = "none";
    winner.method = kTimingMethod;
    return winner;
  }

  // The attention kernels that were launched: two, those of sliding and of global layers.
  template <typename Body>
  std::set<std::string> kernels_of(const Body& body) {
    std::set<std::string> names = device_->launched_by(body);
    std::erase_if(names, [](const std::string& name) {
      return name.starts_with("prologue_") || name.starts_with("combine_") || name == "write_state";
    });
    EXPECT_EQ(names.size(), 2u);
    return names;
  }
  static std::set<std::string> common(const std::set<std::string>& a,
                                      const std::set<std::string>& b) {
    std::set<std::string> both;
    for (const std::string& name : a) {
      if (b.contains(name)) both.insert(name);
    }
    return both;
  }

  Graph capture() {
    served_->session.begin_step(kNumTokens, stream_.get());
    Graph graph = device_->capture(stream_.get(), [&] {
      launch_layers(served_->session, Way::kVerify, model_, *buffers_, kNumTokens, stream_.get());
    });
    served_->session.commit(0, stream_.get());
    return graph;
  }
  // The outputs of the next step, which are right. Unless it is committed, it comes again.
  Outputs replayed(const Graph& graph, int commit = 0) {
    return step("replayed", commit, [&] { device_->launch(graph, stream_.get()); });
  }
  Outputs launched(int commit = 0) {
    return step("launched", commit, [&] {
      launch_layers(served_->session, Way::kVerify, model_, *buffers_, kNumTokens, stream_.get());
    });
  }
  template <typename Body>
  Outputs step(const std::string& text, int commit, const Body& launch) {
    const std::vector<Token> tokens = served_->next(kNumTokens, kNumTokens);
    buffers_->upload({tokens}, stream_.get());
    served_->session.begin_step(kNumTokens, stream_.get());
    launch();
    served_->push(tokens);
    expect_right_outputs(*buffers_, model_, {&served_->sequence}, kNumTokens, text, stream_.get());
    served_->session.commit(commit, stream_.get());
    served_->sequence.cut(served_->session.length());
    return outputs_of(*buffers_, model_, stream_.get());
  }

  const TemporaryFolder folder_;
  const ScriptedWorker worker_{"exit 0"};  // the winners are stored by store_winners
  const Compiler& compiler_;
  const std::string cache_path_;
  const AppModel model_;
  NamingDevice* device_ = nullptr;  // the engine's
  std::unique_ptr<Gemma4Bench> bench_;
  std::unique_ptr<Gemma4Attention> attention_;
  Stream stream_;
  std::unique_ptr<StepBuffers> buffers_;
  std::unique_ptr<ServedSequence> served_;
};

inline void expect_right_steps_after_a_swap(const Options& options, std::unique_ptr<Device> device,
                                            const Compiler& compiler, KvLayout global_layout) {
  SwapUnderModel(options, std::move(device), compiler, global_layout).run();
}

}  // namespace attune
