#include "runtime/model_config.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/error.h"
#include "runtime/weights.h"
#include "templates/expert_plan.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

using nlohmann::json;

std::filesystem::path config_path(const std::string& name) {
  return test_data("gemma4-configs/" + name + ".json");
}

json config(const std::string& name) {
  std::ifstream stream(config_path(name));
  return json::parse(stream);
}

std::string refusal(const json& text) {
  try {
    ModelConfig::from_json(text.dump());
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

// One column of the model table.
struct Size {
  std::string name;
  int intermediate_size;
  bool double_wide_mlp;
  int per_layer_input_size;
  int num_experts, top_k_experts, expert_intermediate_size;
  float embedding_scale;
  double billions;  // of parameters, as published with two decimals; 0: not published
};

const Size kSizes[] = {
    {"e2b", 6144, true, 256, 0, 0, 0, 39.25f, 0},
    {"e4b", 10240, false, 256, 0, 0, 0, 50.5f, 0},
    {"12b", 15360, false, 0, 0, 0, 0, 62, 11.91},
    {"26b-a4b", 2112, false, 0, 128, 8, 704, 53, 0},
    {"31b", 21504, false, 0, 0, 0, 0, 73.5f, 30.70},
};

TEST(ModelConfig, ReadsEveryNumberOfTheModelTableFromBothFormsOfTheFile) {
  for (const Size& size : kSizes) {
    for (const std::string form : {"-older", "-newer"}) {
      SCOPED_TRACE(size.name + form);
      const auto model = ModelConfig::from_file(config_path(size.name + form));
      EXPECT_EQ(model.geometry, Gemma4Geometry::from_file(config_path(size.name + form)));
      EXPECT_EQ(model.vocab_size, 262144);
      EXPECT_EQ(model.intermediate_size, size.intermediate_size);
      EXPECT_EQ(model.double_wide_mlp, size.double_wide_mlp);
      EXPECT_EQ(model.final_logit_softcap, 30);
      EXPECT_TRUE(model.tie_word_embeddings);
      EXPECT_EQ(model.per_layer_input_size, size.per_layer_input_size);
      EXPECT_EQ(model.num_experts, size.num_experts);
      EXPECT_EQ(model.top_k_experts, size.top_k_experts);
      EXPECT_EQ(model.expert_intermediate_size, size.expert_intermediate_size);
      EXPECT_EQ(model.bos_token_id, 2);
      EXPECT_EQ(model.eos_token_ids, std::vector<int>{1});
      EXPECT_EQ(model.embedding_scale(), size.embedding_scale);
      if (size.per_layer_input_size > 0) {
        EXPECT_EQ(model.per_layer_embedding_scale(), 16);
      }
    }
  }
}

TEST(ModelConfig, EverySizeFitsTheKernels) {
  constexpr KernelConfig kLinear{.block_m = 16, .block_n = 48, .num_stages = 2, .num_warps = 8};
  for (const std::string size : {"31b", "12b", "26b-a4b", "e4b", "e2b"}) {
    SCOPED_TRACE(size);
    const ModelConfig config = ModelConfig::from_file(config_path(size + "-newer"));
    const int hidden = config.hidden_size();
    EXPECT_NO_THROW(residual_threads(hidden));
    if (config.per_layer_input_size > 0) {
      EXPECT_NO_THROW(per_layer_chunks(config.per_layer_input_size));
    }
    for (int idx = 0; idx < config.num_layers(); ++idx) {
      EXPECT_NO_THROW(plan_linear({hidden, config.mlp_width(idx)}, kLinear, 132));
    }
    if (config.num_experts == 0) continue;
    EXPECT_NO_THROW(route_chunks(config.num_experts, config.top_k_experts));
    const int width = config.expert_intermediate_size;
    LinearShape experts{width,
                        hidden,
                        LinearEpilogue::kGeglu,
                        LinearWeights::kBf16,
                        config.num_experts,
                        config.top_k_experts};
    EXPECT_NO_THROW(Problem::of_linear(1, experts).validate());
    EXPECT_NO_THROW(plan_linear(experts, kLinear, 132));
    experts.epilogue = LinearEpilogue::kStore;
    std::swap(experts.out_features, experts.in_features);
    EXPECT_NO_THROW(Problem::of_linear(1, experts).validate());
    EXPECT_NO_THROW(plan_linear(experts, kLinear, 132));
  }
}

TEST(ModelConfig, OnlyLayersThatShareACacheHaveADoubleWideMlp) {
  const auto e2b = ModelConfig::from_file(config_path("e2b-older"));
  EXPECT_EQ(e2b.mlp_width(14), 6144);
  EXPECT_EQ(e2b.mlp_width(15), 12288);
  const auto e4b = ModelConfig::from_file(config_path("e4b-older"));
  EXPECT_EQ(e4b.mlp_width(41), 10240);
}

TEST(ModelConfig, AbsentKeysAreAsTransformersHasThem) {
  json text = config("31b-older");
  for (const char* key : {"final_logit_softcapping", "tie_word_embeddings", "bos_token_id",
                          "eos_token_id", "use_double_wide_mlp", "enable_moe_block",
                          "hidden_activation", "hidden_size_per_layer_input"}) {
    text.erase(key);
  }
  const auto model = ModelConfig::from_json(text.dump());
  EXPECT_EQ(model.final_logit_softcap, 0);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_EQ(model.bos_token_id, 2);
  EXPECT_EQ(model.eos_token_ids, std::vector<int>{1});
  EXPECT_EQ(model.per_layer_input_size, 256);
  json unified = config("12b-newer");
  unified["text_config"].erase("hidden_size_per_layer_input");
  EXPECT_EQ(ModelConfig::from_json(unified.dump()).per_layer_input_size, 0);
}

TEST(ModelConfig, KeysOutsideOfTheTextPartCountWhereTheyAreTheModels) {
  json text = config("12b-newer");
  text["eos_token_id"] = {1, 50, 106};
  text["tie_word_embeddings"] = false;
  const auto model = ModelConfig::from_json(text.dump());
  EXPECT_EQ(model.eos_token_ids, (std::vector<int>{1, 50, 106}));
  EXPECT_FALSE(model.tie_word_embeddings);
}

struct Wrong {
  const char* key;
  json value;
  const char* message;
};

TEST(ModelConfig, RefusesWrongValuesByName) {
  const Wrong cases[] = {
      {"model_type", "llama", "model_type=\"llama\"; model_type is gemma4 or gemma4_unified or"},
      {"vocab_size", 0, "vocab_size=0; vocab_size is an integer, 1 to 16777216"},
      {"vocab_size", nullptr, "vocab_size=(missing); "},
      {"intermediate_size", -1, "intermediate_size=-1; "},
      {"intermediate_size", nullptr, "intermediate_size=(missing); "},
      {"final_logit_softcapping", -30, "final_logit_softcapping=-30; "},
      {"final_logit_softcapping", 0, "final_logit_softcapping=0; "},
      {"hidden_activation", "silu",
       "hidden_activation=\"silu\"; hidden_activation is gelu_pytorch"},
      {"tie_word_embeddings", 1, "tie_word_embeddings=1; "},
      {"num_experts", nullptr, "num_experts=(missing); "},
      {"num_experts", 4, "top_k_experts=8; top_k_experts is an integer, 1 to 4"},
      {"top_k_experts", 129, "top_k_experts=129; "},
      {"moe_intermediate_size", 0, "moe_intermediate_size=0; "},
      {"eos_token_id", 262144, "eos_token_id=262144; eos_token_id is an integer, 0 to 262143"},
      {"eos_token_id", {1, "2"}, "eos_token_id[1]=\"2\"; it is an integer, 0 to 262143"},
      {"bos_token_id", -2, "bos_token_id=-2; "},
      {"hidden_size_per_layer_input", -1, "hidden_size_per_layer_input=-1; "},
      {"quantization_config", {{"bits", 4}}, "quantization_config=(object of 1); weights are bf16"},
  };
  for (const Wrong& wrong : cases) {
    json text = config("26b-a4b-newer");
    text[wrong.key] = wrong.value;
    const std::string message = refusal(text);
    EXPECT_TRUE(message.starts_with("the Gemma 4 config cannot be used: ")) << message;
    EXPECT_NE(message.find(wrong.message), std::string::npos)
        << wrong.key << "=" << wrong.value << "\n"
        << message;
  }
  json text = config("e2b-older");
  text["text_config"]["vocab_size_per_layer_input"] = 1000;
  EXPECT_NE(refusal(text).find("text_config.vocab_size_per_layer_input=1000; it is vocab_size"),
            std::string::npos);
}

TEST(ModelConfig, ConfigsThatNameAKeyTwiceAreRefused) {
  std::string text = config("31b-older").dump();
  text.insert(1, "\"vocab_size\":5,");
  try {
    ModelConfig::from_json(text);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "the Gemma 4 config cannot be used: key=\"vocab_size\" appears twice; "
                 "a config is one JSON object");
  }
}

// Every value anywhere in the file, replaced by every kind of value: read or refused.
TEST(ModelConfig, NoValueAnywhereBreaksTheReader) {
  const json strange[] = {nullptr,
                          true,
                          -1,
                          0,
                          1,
                          1e308,
                          18446744073709551615u,
                          "",
                          json::array(),
                          json::object(),
                          json::array({json::array()})};
  int num_refused = 0;
  for (const char* name : {"e2b-older", "26b-a4b-newer"}) {
    const json flat = config(name).flatten();
    for (const auto& [pointer, value] : flat.items()) {
      for (const json& other : strange) {
        json text = config(name);
        text[json::json_pointer(pointer)] = other;
        num_refused += refusal(text) != "accepted";
      }
    }
  }
  EXPECT_GT(num_refused, 500);
}

TEST(Weights, TheSumOfAllShapesIsThePublishedNumberOfParameters) {
  for (const Size& size : kSizes) {
    const auto model = ModelConfig::from_file(config_path(size.name + "-newer"));
    const std::int64_t count = num_parameters(weight_specs(model));
    std::printf("%s: %lld parameters in %zu tensors\n", size.name.c_str(),
                static_cast<long long>(count), weight_specs(model).size());
    if (size.billions > 0) {
      EXPECT_NEAR(static_cast<double>(count) / 1e9, size.billions, 0.005);
    }
  }
}

// By name: the shape, or none where a layer has no such tensor.
TensorShape shape_of(const ModelConfig& model, const std::string& name) {
  for (const WeightSpec& spec : weight_specs(model)) {
    if (spec.name == name) return spec.shape;
  }
  return {};
}

TEST(Weights, ShapesAreThoseOfThePublishedTables) {
  const auto model = [](const std::string& name) {
    return ModelConfig::from_file(config_path(name));
  };
  const struct {
    const char* size;
    const char* name;
    TensorShape shape;
  } cases[] = {
      {"31b-older", "model.embed_tokens.weight", {262144, 5376}},
      {"31b-older", "model.layers.0.self_attn.q_proj.weight", {8192, 5376}},
      {"31b-older", "model.layers.5.self_attn.q_proj.weight", {16384, 5376}},
      {"31b-older", "model.layers.0.self_attn.k_proj.weight", {4096, 5376}},
      {"31b-older", "model.layers.5.self_attn.k_proj.weight", {2048, 5376}},
      {"31b-older", "model.layers.0.self_attn.v_proj.weight", {4096, 5376}},
      {"31b-older", "model.layers.5.self_attn.v_proj.weight", {}},
      {"31b-older", "model.layers.0.self_attn.o_proj.weight", {5376, 8192}},
      {"31b-older", "model.layers.5.self_attn.o_proj.weight", {5376, 16384}},
      {"31b-older", "model.layers.5.self_attn.k_norm.weight", {512}},
      {"31b-older", "model.layers.59.mlp.down_proj.weight", {5376, 21504}},
      {"31b-older", "model.layers.59.layer_scalar", {1}},
      {"31b-older", "model.layers.60.layer_scalar", {}},
      {"31b-older", "lm_head.weight", {}},
      {"12b-older", "model.layers.5.self_attn.k_proj.weight", {512, 3840}},
      {"e2b-older", "model.embed_tokens_per_layer.weight", {262144, 8960}},
      {"e2b-older", "model.per_layer_model_projection.weight", {8960, 1536}},
      {"e2b-older", "model.per_layer_projection_norm.weight", {256}},
      {"e2b-older", "model.layers.0.per_layer_input_gate.weight", {256, 1536}},
      {"e2b-older", "model.layers.0.per_layer_projection.weight", {1536, 256}},
      {"e2b-older", "model.layers.0.post_per_layer_input_norm.weight", {1536}},
      {"e2b-older", "model.layers.4.self_attn.v_proj.weight", {512, 1536}},
      {"e2b-older", "model.layers.15.self_attn.k_proj.weight", {}},
      {"e2b-older", "model.layers.15.self_attn.v_proj.weight", {}},
      {"e2b-older", "model.layers.15.self_attn.k_norm.weight", {}},
      {"e2b-older", "model.layers.15.mlp.up_proj.weight", {12288, 1536}},
      {"26b-a4b-older", "model.layers.0.router.proj.weight", {128, 2816}},
      {"26b-a4b-older", "model.layers.0.router.scale", {2816}},
      {"26b-a4b-older", "model.layers.0.router.per_expert_scale", {128}},
      {"26b-a4b-older", "model.layers.0.experts.gate_up_proj", {128, 1408, 2816}},
      {"26b-a4b-older", "model.layers.0.experts.down_proj", {128, 2816, 704}},
      {"26b-a4b-older", "model.layers.0.post_feedforward_layernorm_2.weight", {2816}},
      {"26b-a4b-older", "model.layers.0.mlp.gate_proj.weight", {2112, 2816}},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(shape_of(model(one.size), one.name), one.shape) << one.size << " " << one.name;
  }
}

}  // namespace
}  // namespace attune
