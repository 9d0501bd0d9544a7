// What `attune generate` says about a run.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "runtime/generate.h"

namespace attune {

struct GenerateReport {
  std::string device;
  std::string draft;  // "none", "ngram", or the head's path
  int chain = 0;
  int num_prompt_tokens = 0;
  double load_s = 0;  // of weights and kernels
  std::size_t weight_bytes = 0, cache_bytes = 0, activation_bytes = 0;
  std::size_t draft_weight_bytes = 0, draft_cache_bytes = 0;  // of a draft head
  GenerateResult result;
  std::string text;  // empty without a tokenizer
};

nlohmann::json generate_json(const GenerateReport& report);
std::string generate_summary(const GenerateReport& report);

}  // namespace attune
