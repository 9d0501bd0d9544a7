// Which Gemma 4 model a command opens, and with which weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/flags.h"
#include "runtime/checkpoint.h"
#include "runtime/gemma4_model.h"

namespace attune {

// --model, --random-weights and --weights.
struct ModelFlags {
  std::string model, random_weights;
  std::string weights = "bf16";

  void add_to(CLI::App* app);
  bool is_given() const { return !model.empty() || !random_weights.empty(); }
  // Where its tokenizer lies.
  std::filesystem::path folder() const;
};

// What is read of the model before a device is opened.
struct ModelSource {
  std::optional<Checkpoint> checkpoint;  // none: random weights
  ModelConfig config;
  LinearWeights weights = LinearWeights::kBf16;

  // Throws what Checkpoint::open and ModelConfig::from_file throw.
  static ModelSource read(const ModelFlags& flags);
  // Of these weights, with the smallest caches.
  Gemma4ModelOptions options() const;
  // The same random weights each time.
  Gemma4Model load(Engine& engine, const Gemma4ModelOptions& options) const;
};

}  // namespace attune
