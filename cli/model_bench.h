// Times a whole model: steps against what reading its weights and caches takes, prefills against what
// their products take.
#pragma once

#include <optional>
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

struct ModelBenchPrefill {
  int num_tokens = 0;  // of the prompt
  int chunk = 0;       // tokens of its longest step
  double us = 0;       // median
  double iqr_us = 0;
  double floor_us = 0;  // of its products at the tensor rate
  std::string by;       // what multiplies the linear layers of such a step
};

struct ModelBenchOutcome {
  DeviceInfo gpu;
  Ceilings ceilings;
  std::size_t weight_bytes = 0;  // of a step of one token
  std::vector<ModelBenchPoint> points;
  std::optional<ModelBenchPrefill> prefill;
};

// What is timed. Lists ascend.
struct ModelBenchWish {
  std::vector<int> contexts, num_tokens;  // of steps
  int prefill = 0;                        // tokens of a prompt; 0: none
};

// Bytes that a step reads: every weight, of which the few rows of embeddings are left out, and the keys
// and values that its last token sees. Of experts those that so many tokens choose on average where each
// chooses any of them alike.
double step_weight_bytes(const ModelConfig& config, LinearWeights weights, int num_tokens = 1);
double step_cache_bytes(const ModelConfig& config, KvLayout global_layout, int context);

// Multiplications and additions of a prompt at least: of linear layers, of a token the experts that it
// takes, of the keys that each query sees, and of the last token's logits.
double prefill_flops(const ModelConfig& config, int num_tokens);

// Throws InvalidArgument for what no model of this config can take.
void require_possible(const ModelConfig& config, const ModelBenchWish& wish);

// A prompt of random tokens in chunks as the model takes them; then captured steps of `num_tokens` random
// tokens behind `contexts` tokens. One chunk of
// random tokens is prefilled; the rows of a longer context are what the memory held. Lengths alone
// decide which rows a step reads; values decide how often softmax rescales its sums, and what power
// a GPU draws.
ModelBenchOutcome bench_model(Gemma4Model& model, const Compiler& compiler,
                              const ModelBenchWish& wish);

Json model_bench_json(const ModelBenchOutcome& outcome);
std::string model_bench_text(const ModelBenchOutcome& outcome);

}  // namespace attune
