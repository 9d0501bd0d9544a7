#include "cli/model_flags.h"

namespace attune {

namespace fs = std::filesystem;

void ModelFlags::add_to(CLI::App* app) {
  CLI::Option* checkpoint =
      app->add_option("--model", model, "A Gemma 4 model: folder of a Hugging Face checkpoint");
  app->add_option("--random-weights", random_weights,
                  "A config.json in place of --model: its shapes, with random weights")
      ->excludes(checkpoint);
  app->add_option("--weights", weights,
                  "Of linear layers: bf16 (default), or int4, packed while they are loaded")
      ->check(CLI::IsMember({"bf16", "int4"}));
}

fs::path ModelFlags::folder() const {
  const fs::path path = model.empty() ? random_weights : model;
  return fs::is_directory(path) ? path : path.parent_path();
}

ModelSource ModelSource::read(const ModelFlags& flags) {
  ModelSource source;
  if (flags.weights == "int4") source.weights = LinearWeights::kInt4;
  if (flags.model.empty()) {
    source.config = ModelConfig::from_file(flags.random_weights);
  } else {
    source.checkpoint = Checkpoint::open(flags.model);
    source.config = source.checkpoint->config;
  }
  return source;
}

Gemma4ModelOptions ModelSource::options() const {
  Gemma4ModelOptions options;
  options.attention.global_layout = config.compact_layout();
  options.weights = weights;
  return options;
}

Gemma4Model ModelSource::load(Engine& engine, const Gemma4ModelOptions& options) const {
  constexpr std::uint64_t kSeed = 1;
  return checkpoint ? Gemma4Model(engine, config, checkpoint->weights, options)
                    : Gemma4Model::random(engine, config, options, kSeed);
}

}  // namespace attune
