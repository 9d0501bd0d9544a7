// The attention of a sliding and a global layer of the tiny checkpoint, from attn_in to attn_out,
// against golden tensors: what a public implementation computed in fp32 from position 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/checkpoint.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/support/tensor_values.h"
#include "tests/support/test_data.h"
#include "tuner/reference.h"

namespace attune {

// Layers 0 and 5, with their projections of the golden inputs: token i is the one at position i.
class GoldenLayers {
 public:
  static constexpr int kNumTokens = 96;
  static constexpr int kLayers[] = {0, 5};  // of the checkpoint

  GoldenLayers() : model_(two_layers()) {
    const Checkpoint checkpoint = Checkpoint::open(test_data("gemma4-tiny"));
    const Safetensors golden(test_data("gemma4-tiny") / "golden.safetensors");
    for (int idx = 0; idx < 2; ++idx) {
      const auto& tensors = checkpoint.weights.layers[static_cast<std::size_t>(kLayers[idx])];
      const std::string name = "layer" + std::to_string(kLayers[idx]);
      const oracle::Rows in = oracle::widen(floats_of(golden.at(name + ".attn_in")));
      const auto projected = [&](const TensorView& weight) {
        return to_bf16(oracle::project(in, floats_of(weight), model_.geometry.hidden_size));
      };
      raw_.push_back(
          {projected(tensors.q_proj), projected(tensors.k_proj),
           model_.layer(idx).k_eq_v ? std::vector<std::uint16_t>() : projected(tensors.v_proj)});
      o_proj_.push_back(floats_of(tensors.o_proj));
      attn_out_.push_back(oracle::widen(floats_of(golden.at(name + ".attn_out"))));
      const auto at = static_cast<std::size_t>(idx);
      model_.q_norm[at] = elements<std::uint16_t>(tensors.q_norm);
      model_.k_norm[at] = elements<std::uint16_t>(tensors.k_norm);
    }
    model_.given = [this](int layer, Projection projection, Token token) {
      const auto& all = raw_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(projection)];
      const std::size_t size = all.size() / kNumTokens;
      return std::vector<std::uint16_t>(all.begin() + token.id * size,
                                        all.begin() + (token.id + 1) * size);
    };
  }
  GoldenLayers(const GoldenLayers&) = delete;
  GoldenLayers& operator=(const GoldenLayers&) = delete;

  const AppModel& model() const { return model_; }

  // Relative L2 error of attn_out, from the inputs of o_proj of all tokens.
  double error(int idx, const std::vector<std::uint16_t>& out) const {
    const auto at = static_cast<std::size_t>(idx);
    oracle::Rows wide;
    for (const std::uint16_t bits : out) wide.push_back(bf16_to_float(bits));
    const int width = static_cast<int>(out.size() / kNumTokens);
    return relative_l2(oracle::project(wide, o_proj_[at], width), attn_out_[at]);
  }

 private:
  static AppModel two_layers() {
    Gemma4Geometry geometry = Gemma4Geometry::from_file(test_data("gemma4-tiny"));
    geometry.layers = {geometry.layers[0], geometry.layers[5]};
    geometry.layers[1].kv_layer = 1;
    return AppModel(geometry);
  }
  static std::vector<std::uint16_t> to_bf16(const oracle::Rows& rows) {
    std::vector<std::uint16_t> bits;
    for (const double value : rows) bits.push_back(float_to_bf16(static_cast<float>(value)));
    return bits;
  }

  AppModel model_;
  std::vector<std::vector<std::vector<std::uint16_t>>> raw_;  // by layer and projection
  std::vector<std::vector<float>> o_proj_;
  std::vector<oracle::Rows> attn_out_;
};

constexpr double kMaxGoldenError = 1e-2;

struct GoldenStep {
  Way way;
  int num_tokens;
};
using GoldenSteps = std::vector<GoldenStep>;

// Steps of one kind and size that end with the last token.
inline GoldenSteps equal_steps(Way way, int size) {
  GoldenSteps steps;
  for (int first = 0; first < GoldenLayers::kNumTokens; first += size) {
    const int num_tokens = std::min(size, GoldenLayers::kNumTokens - first);
    steps.push_back({way == Way::kVerify && num_tokens == 1 ? Way::kDecode : way, num_tokens});
  }
  return steps;
}

// Prefill, decode and verify in turn, of other sizes each time.
inline GoldenSteps mixed_steps(int max_prefill, int max_verify) {
  GoldenSteps steps;
  int left = GoldenLayers::kNumTokens;
  for (int i = 0; left > 0; ++i) {
    const int size = i % 3 == 0   ? 1 + 7 * i % max_prefill
                     : i % 3 == 1 ? 1
                                  : 2 + i % (max_verify - 1);
    const Way way = i % 3 == 0 ? Way::kPrefill : Way::kVerify;
    const int num_tokens = std::min(left, size);
    steps.push_back({way == Way::kVerify && num_tokens == 1 ? Way::kDecode : way, num_tokens});
    left -= num_tokens;
  }
  return steps;
}

struct GoldenReport {
  int num_ways = 0;
  double errors[2] = {0, 0};  // the largest of the sliding and of the global layer
};

// Runs the steps as a sequence of their own and adds to the report.
inline void run_golden_steps(Device& device, const GoldenLayers& golden, Gemma4Attention& attention,
                             StepBuffers& buffers, const std::vector<int>& layers,
                             const GoldenSteps& steps, GoldenReport* report) {
  Gemma4Session session = attention.open_session();
  const Stream stream = device.create_stream();
  std::vector<std::vector<std::uint16_t>> outputs(2);
  for (const GoldenStep& step : steps) {
    std::vector<Token> tokens;
    for (int i = 0; i < step.num_tokens; ++i) {
      tokens.push_back({static_cast<std::uint32_t>(session.length() + i), false});
    }
    buffers.upload({tokens}, stream.get());
    for (const int layer : layers) {
      run_layer(session, step.way, layer, step.num_tokens, buffers.args(layer), stream.get());
      const auto rows = buffers.output(layer, stream.get());
      auto& all = outputs[static_cast<std::size_t>(layer)];
      all.insert(all.end(), rows.begin(), rows.end());
    }
    session.commit(step.num_tokens, stream.get());
  }
  for (const int layer : layers) {
    const double error = golden.error(layer, outputs[static_cast<std::size_t>(layer)]);
    report->errors[layer] = std::max(report->errors[layer], error);
  }
  ++report->num_ways;
}

// What to run: token by token and mixed always, then prefills and verifies of these sizes.
struct GoldenRun {
  KvLayout layout;
  int max_prefill;
  std::vector<int> layers = {0, 1};  // 0 is sliding and the same in all layouts
  std::vector<int> prefills, verifies;
};

// The sizes from `first` to `last`.
inline std::vector<int> all_sizes(int first, int last) {
  std::vector<int> sizes;
  for (int size = first; size <= last; ++size) sizes.push_back(size);
  return sizes;
}

inline void expect_golden(Gemma4Bench& bench, const GoldenLayers& golden, const GoldenRun& run) {
  Gemma4Options options;
  options.max_tokens = GoldenLayers::kNumTokens;
  options.max_prefill = run.max_prefill;
  options.max_verify = 8;
  options.global_layout = run.layout;
  options.page_size = run.layout == KvLayout::kUnifiedPaged ? 32 : 16;
  Gemma4Attention attention(bench.engine, golden.model().geometry, options);
  golden.model().set_norm_weights(attention);
  StepBuffers buffers(bench.device(), golden.model(), 1, run.max_prefill, Projections::kFused);
  std::vector<GoldenSteps> ways = {equal_steps(Way::kDecode, 1), mixed_steps(run.max_prefill, 8)};
  for (const int size : run.prefills) ways.push_back(equal_steps(Way::kPrefill, size));
  for (const int size : run.verifies) ways.push_back(equal_steps(Way::kVerify, size));
  GoldenReport report;
  for (const GoldenSteps& steps : ways) {
    run_golden_steps(bench.device(), golden, attention, buffers, run.layers, steps, &report);
  }
  std::printf("max_prefill %d, %d ways: relative L2 of the sliding layer %.2e, global %.2e\n",
              run.max_prefill, report.num_ways, report.errors[0], report.errors[1]);
  for (const int layer : run.layers) {
    EXPECT_GT(report.errors[layer], 0) << layer;
    EXPECT_LT(report.errors[layer], kMaxGoldenError) << layer;
  }
}

}  // namespace attune
