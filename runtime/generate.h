// The decode loop: prefill, then rounds of drafting and verifying. Without a drafter a round is one
// token: plain decoding is the same loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/acceptance.h"
#include "runtime/drafter.h"
#include "runtime/gemma4_model.h"
#include "runtime/sampling.h"
#include "runtime/speculation_stats.h"
#include "runtime/stop_rule.h"

namespace attune {

struct GenerateOptions {
  SamplingOptions sampling;
  int chain =
      4;  // proposals of a round, 1 to the model's max_verify - 1; no matter without a drafter
  int max_new_tokens = 128;
  std::vector<std::int32_t> stop_tokens;
  bool cuda_graph = true;  // replays a captured step for each number of tokens; needs a stream
  // What each round emits, as it does; false ends the run.
  std::function<bool(std::span<const std::int32_t>)> on_tokens;
};

enum class GenerateEnd { kStopToken, kMaxNewTokens, kContextEnd, kCancelled };
std::string_view name_of(GenerateEnd end);  // "stop_token", ...

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // without the prompt, a stop token included
  GenerateEnd end = GenerateEnd::kMaxNewTokens;
  SpeculationStats stats;
  // Wall clock of the host, which waits for each step.
  double prefill_s = 0;              // to the first token; steps are captured before
  double decode_s = 0;               // all rounds
  double verify_s = 0, draft_s = 0;  // of them
};

// Owns one sequence of a model. Runs follow each other and share its captured steps. The kernels of
// those stay loaded while it keeps them; behind an Engine::swap() the next step captures them again.
class Generator {
 public:
  // Both have to outlive it; `drafter` may be null. The model keeps the taps that the drafter asks
  // for. Throws InvalidArgument where it does not.
  Generator(Gemma4Model& model, Drafter* drafter, StreamHandle stream);

  // Throws InvalidArgument for an empty prompt, one that leaves no room in the model's max_tokens,
  // ids outside of the vocabulary, and options out of range; Error when logits are NaN. A run that
  // throws leaves the generator as good as new.
  GenerateResult run(std::span<const std::int32_t> prompt, const GenerateOptions& options);

 private:
  struct Prefilled {
    std::int32_t token;                // the first one behind the prompt
    std::vector<std::int32_t> behind;  // tokens behind the positions of the last chunk
  };
  void check(const GenerateOptions& options) const;
  Prefilled prefill(std::span<const std::int32_t> prompt, const GenerateOptions& options);
  // Tokens of the longest step that a run has.
  int longest_step(const GenerateOptions& options) const;
  void capture(int most_tokens);
  void step(int num_tokens, const GenerateOptions& options);
  Proposal draft(std::span<const std::int32_t> confirmed, int most, const SamplingOptions& options);
  Acceptance judge(const Proposal& proposal, const SamplingOptions& options, std::int64_t position);
  std::vector<float> read_logits(int rows) const;
  std::vector<std::int32_t> read_best(int rows) const;

  Gemma4Model& model_;
  Drafter* drafter_;
  StreamHandle stream_;
  Gemma4Session session_;
  KernelHold held_;              // what the graphs launch; declared first: goes after them
  std::map<int, Graph> graphs_;  // by tokens of a step
};

}  // namespace attune
