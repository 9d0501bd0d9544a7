// Uses the interfaces of an installed libattune.so on a machine that may have no GPU.
#include <cstdio>
#include <cstring>

#include "common/error.h"
#include "runtime/attune.h"
#include "runtime/attune_c.h"
#include "runtime/checkpoint.h"
#include "runtime/eagle3_drafter.h"
#include "runtime/gemma4_attention.h"
#include "runtime/generate.h"
#include "runtime/ngram_drafter.h"

extern "C" int num_kv_heads_by_c(const char* config);
extern "C" int opens_a_model_by_c(const char* folder);

namespace {

constexpr const char* kConfig = R"({
  "model_type": "gemma4_text", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8,
  "num_key_value_heads": 4, "head_dim": 64, "global_head_dim": 128, "sliding_window": 32,
  "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-6})";

// Links all of the model's interface; runs as far as it goes without a GPU.
bool read_geometry() {
  const auto geometry = attune::Gemma4Geometry::from_json(kConfig);
  if (geometry.layers[0].rope.inverse_frequency(0) != 1.0f) return false;
  return geometry.layers[1].num_kv_heads == num_kv_heads_by_c(kConfig);
}

void serve(attune::Engine& engine) {
  attune::Gemma4Attention model(engine, attune::Gemma4Geometry::from_json(kConfig),
                                {.max_tokens = 128});
  attune::Gemma4Session session = model.open_session();
  attune::Gemma4Batch batch = model.make_batch(1);
  attune::Gemma4Session* const sessions[] = {&session};
  batch.assign(sessions, nullptr);
  batch.decode(0, {}, nullptr);
  session.decode(0, {}, nullptr);
}

// The same of whole models and generation.
std::size_t generate(attune::Engine& engine, const char* folder) {
  const attune::Checkpoint checkpoint = attune::Checkpoint::open(folder);
  const attune::Eagle3Checkpoint head = attune::Eagle3Checkpoint::open(folder);
  attune::Gemma4Model model(engine, checkpoint.config, checkpoint.weights,
                            {.taps = head.config.taps});
  const attune::Stream stream = model.device().create_stream();
  attune::NgramDrafter ngram;
  attune::Eagle3Drafter eagle3(
      attune::Eagle3Head(engine, head.config, head.weights, model.embed_tokens(), {}),
      model.device(), stream.get());
  const int prompt[] = {2};
  attune::Generator generator(model, &ngram, stream.get());
  attune::Generator other(model, &eagle3, stream.get());
  const attune::GenerateResult result = other.run(prompt, {});
  return generator.run(prompt, {}).tokens.size() + attune::name_of(result.end).size();
}

bool refuses_a_folder_without_a_model() {
  try {
    attune::Checkpoint::open("/nowhere");
    return false;
  } catch (const attune::InvalidArgument&) {
    return opens_a_model_by_c("/nowhere") == 0;
  }
}

}  // namespace

int main() {
  if (std::strlen(attune_version()) == 0) return 1;
  attune_attention* attention = nullptr;
  if (attune_engine_prepare(nullptr, "decode", &attention) != ATTUNE_INVALID_ARGUMENT) return 2;
  if (std::strlen(attune_last_error()) == 0) return 3;
  if (!read_geometry()) return 5;
  std::printf("C and C++ read the same geometry\n");
  if (!refuses_a_folder_without_a_model()) return 6;
  std::printf("no checkpoint, no model\n");
  try {
    attune::Options options = attune::Options::from_environment();
    options.device_ordinal = 1 << 20;  // no machine has it, so this fails with or without a GPU
    attune::Engine engine(options);
    serve(engine);
    generate(engine, "/nowhere");
    return 4;
  } catch (const attune::Error& error) {
    std::printf("attune %s refused as it should be: %s\n", attune_version(), error.what());
  }
  return 0;
}
