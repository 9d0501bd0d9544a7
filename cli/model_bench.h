// Times the steps of a whole model against what reading its weights and caches takes.
#pragma once

#include <string>
#include <vector>

#include "cli/report.h"
#include "jit/device_info.h"
#include "runtime/gemma4_model.h"
#include "tuner/timer.h"

namespace attune {

struct ModelBenchPoint {
  int context = 0;     // tokens in the caches before the step
  int num_tokens = 1;  // of the step
  double step_us = 0;  // median
  double iqr_us = 0;
  double floor_us = 0;
};

struct ModelBenchOutcome {
  DeviceInfo gpu;
  Ceilings ceilings;
  std::size_t weight_bytes = 0;  // of a step of one token
  std::vector<ModelBenchPoint> points;
};

// Bytes that a step reads: every weight, of which the few rows of embeddings are left out, and the keys
// and values that its last token sees. Of experts those that so many tokens choose on average where each
// chooses any of them alike.
double step_weight_bytes(const ModelConfig& config, LinearWeights weights, int num_tokens = 1);
double step_cache_bytes(const ModelConfig& config, KvLayout global_layout, int context);

// Throws InvalidArgument for steps that no model of this config can take. Both ascend.
void require_steps(const ModelConfig& config, const std::vector<int>& contexts,
                   const std::vector<int>& num_tokens);

// Captured steps of `num_tokens` random tokens behind `contexts` tokens. Both ascend. One chunk of
// random tokens is prefilled; the rows of a longer context are what the memory held. Lengths alone
// decide which rows a step reads; values decide how often softmax rescales its sums, and what power
// a GPU draws.
ModelBenchOutcome bench_steps(Gemma4Model& model, const Compiler& compiler,
                              const std::vector<int>& contexts, const std::vector<int>& num_tokens);

Json model_bench_json(const ModelBenchOutcome& outcome);
std::string model_bench_text(const ModelBenchOutcome& outcome);

}  // namespace attune
