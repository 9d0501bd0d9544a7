#include "runtime/eagle3_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "common/error.h"
#include "runtime/weights.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

using nlohmann::json;

// The head of a 31B model.
json config() {
  return json::parse(R"({
    "speculators_model_type": "eagle3", "speculators_version": "0.5.0",
    "speculators_config": {"algorithm": "eagle3", "proposal_methods": []},
    "draft_vocab_size": 32000, "target_hidden_size": null, "norm_before_residual": true,
    "norm_before_fc": false, "eagle_aux_hidden_state_layer_ids": [2, 30, 57],
    "transformer_layer_config": {
      "model_type": "llama", "hidden_size": 5376, "intermediate_size": 21504,
      "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256,
      "rms_norm_eps": 1e-6, "vocab_size": 262144, "hidden_act": "silu",
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}})");
}

std::string refusal(const json& text) {
  try {
    Eagle3Config::from_json(text.dump());
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Eagle3Config, ReadsEveryKeyOfTheFile) {
  const auto head = Eagle3Config::from_json(config().dump());
  EXPECT_EQ(head, (Eagle3Config{.hidden_size = 5376,
                                .target_hidden_size = 5376,
                                .intermediate_size = 21504,
                                .num_q_heads = 32,
                                .num_kv_heads = 16,
                                .head_dim = 256,
                                .rope_theta = 10000,
                                .rms_norm_eps = 1e-6,
                                .draft_vocab_size = 32000,
                                .target_vocab_size = 262144,
                                .norm_before_residual = true,
                                .taps = {2, 30, 57}}));
  EXPECT_EQ(head.rope(), (RopeGeometry{10000, 128, 256, 1}));
}

TEST(Eagle3Config, TheRopeBaseHasTwoSpellings) {
  json text = config();
  json& layer = text["transformer_layer_config"];
  layer["rope_parameters"]["rope_theta"] = 5e5;
  EXPECT_EQ(Eagle3Config::from_json(text.dump()).rope_theta, 5e5);
  layer.erase("rope_parameters");
  layer["rope_theta"] = 3e5;
  EXPECT_EQ(Eagle3Config::from_json(text.dump()).rope_theta, 3e5);
  layer["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_EQ(Eagle3Config::from_json(text.dump()).rope_theta, 3e5);
  layer.erase("rope_theta");
  EXPECT_NE(refusal(text).find("rope_parameters.rope_theta=(missing); "), std::string::npos);
  layer.erase("rope_parameters");
  EXPECT_NE(refusal(text).find("transformer_layer_config.rope_theta=(missing); "),
            std::string::npos);
}

TEST(Eagle3Config, AbsentKeysHaveTheFormatsDefaults) {
  json text = config();
  text.erase("norm_before_residual");
  text.erase("norm_before_fc");
  text["target_hidden_size"] = 2816;
  const auto head = Eagle3Config::from_json(text.dump());
  EXPECT_FALSE(head.norm_before_residual);
  EXPECT_EQ(head.target_hidden_size, 2816);
}

struct Wrong {
  const char* key;
  json value;
  const char* message;
};

TEST(Eagle3Config, RefusesWrongValuesByName) {
  constexpr const char* kTaps = "eagle_aux_hidden_state_layer_ids";
  const Wrong cases[] = {
      {"speculators_model_type", "medusa",
       "speculators_model_type=\"medusa\"; speculators_model_type is eagle3"},
      {"speculators_model_type", nullptr, "speculators_model_type=(missing); "},
      {"norm_before_fc", true, "norm_before_fc=true; heads with a norm in front of fc are not"},
      {"norm_before_fc", "no", "norm_before_fc=\"no\"; "},
      {"draft_vocab_size", 262145, "draft_vocab_size=262145; "},
      {"draft_vocab_size", nullptr, "draft_vocab_size=(missing); "},
      {"target_hidden_size", 0, "target_hidden_size=0; "},
      {kTaps, {2, 2, 57}, "layer_ids[1]=2; taps ascend, the one before it is 2"},
      {kTaps, {2, 57, 30}, "layer_ids[2]=30; taps ascend, the one before it is 57"},
      {kTaps, {2, 30.0, 57}, "layer_ids[1]=30.0; it is an integer"},
      {kTaps, {2, true, 57}, "layer_ids[1]=true; it is an integer"},
      {kTaps, {-1, 30, 57}, "layer_ids[0]=-1; it is an integer"},
      {kTaps, json::array(), "layer_ids=(array of 0); it lists the hidden states"},
      {kTaps, 5, "layer_ids=5; "},
      {kTaps, nullptr, "layer_ids=(missing); "},
      {"transformer_layer_config", nullptr, "transformer_layer_config=(missing); "},
  };
  for (const Wrong& wrong : cases) {
    json text = config();
    text[wrong.key] = wrong.value;
    EXPECT_TRUE(refusal(text).starts_with("the EAGLE-3 config cannot be used: ")) << wrong.key;
    EXPECT_NE(refusal(text).find(wrong.message), std::string::npos) << refusal(text);
  }
}

TEST(Eagle3Config, RefusesLayersThatAreNotThatOfAHead) {
  const Wrong cases[] = {
      {"hidden_act", "gelu", "transformer_layer_config.hidden_act=\"gelu\"; hidden_act is silu"},
      {"num_key_value_heads", 5, "num_key_value_heads=5; it divides num_attention_heads=32"},
      {"head_dim", 255, "head_dim=255; "},
      {"num_hidden_layers", 2, "num_hidden_layers=2; a head has one layer"},
      {"attention_bias", true, "attention_bias=true; projections have no bias"},
      {"rope_scaling", {{"factor", 8}}, "rope_scaling=(object of 1); "},
      {"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e4}}, "rope_type=\"yarn\"; "},
      {"rms_norm_eps", nullptr, "rms_norm_eps=(missing); "},
  };
  for (const Wrong& wrong : cases) {
    json text = config();
    text["transformer_layer_config"][wrong.key] = wrong.value;
    EXPECT_NE(refusal(text).find(wrong.message), std::string::npos) << refusal(text);
  }
}

TEST(Eagle3Config, AHeadFitsOneModel) {
  const auto target = ModelConfig::from_file(test_data("gemma4-configs/31b-older.json"));
  const auto message = [&](const char* key, const json& value) -> std::string {
    json text = config();
    (text.contains(key) ? text : text["transformer_layer_config"])[key] = value;
    try {
      Eagle3Config::from_json(text.dump()).check_fits(target);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "fits";
  };
  EXPECT_EQ(message("draft_vocab_size", 100), "fits");
  EXPECT_EQ(message("eagle_aux_hidden_state_layer_ids", {0, 60}), "fits");
  EXPECT_EQ(message("eagle_aux_hidden_state_layer_ids", {2, 61}),
            "the EAGLE-3 head was made for another model: last_tap head=61 model=60; a tap is at "
            "most the number of layers");
  EXPECT_NE(message("hidden_size", 3840).find("hidden_size head=3840 model=5376"),
            std::string::npos);
  EXPECT_NE(message("vocab_size", 128256).find("vocab_size head=128256 model=262144"),
            std::string::npos);
}

TEST(Eagle3Config, ShapesOfTheHeadAreThoseOfThePublishedTable) {
  const auto specs = weight_specs(Eagle3Config::from_json(config().dump()));
  const auto shape_of = [&](const std::string& name) {
    for (const WeightSpec& spec : specs) {
      if (spec.name == name) return spec.shape;
    }
    return TensorShape();
  };
  EXPECT_EQ(shape_of("embed_tokens.weight"), (TensorShape{262144, 5376}));
  EXPECT_EQ(shape_of("fc.weight"), (TensorShape{5376, 16128}));
  EXPECT_EQ(shape_of("layers.0.self_attn.q_proj.weight"), (TensorShape{8192, 10752}));
  EXPECT_EQ(shape_of("layers.0.self_attn.k_proj.weight"), (TensorShape{4096, 10752}));
  EXPECT_EQ(shape_of("layers.0.self_attn.o_proj.weight"), (TensorShape{5376, 8192}));
  EXPECT_EQ(shape_of("layers.0.mlp.down_proj.weight"), (TensorShape{5376, 21504}));
  EXPECT_EQ(shape_of("layers.0.hidden_norm.weight"), (TensorShape{5376}));
  EXPECT_EQ(shape_of("lm_head.weight"), (TensorShape{32000, 5376}));
  EXPECT_EQ(shape_of("d2t"), (TensorShape{32000}));
  // 2.235 G, without the integers of d2t.
  EXPECT_NEAR(static_cast<double>(num_parameters(specs) - 32000) / 1e9, 2.235, 0.0005);
}

TEST(Eagle3Config, NamesTheFileThatItCannotUse) {
  const TemporaryFolder folder;
  const auto file = folder.write("config.json", "{}");
  try {
    Eagle3Config::from_file(folder.path());
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.what(),
              file.string() +
                  ": the EAGLE-3 config cannot be used: "
                  "speculators_model_type=(missing); speculators_model_type is eagle3");
  }
}

}  // namespace
}  // namespace attune
