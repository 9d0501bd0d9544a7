#include "runtime/gemma4_geometry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

using nlohmann::json;

// One column of the model table.
struct Size {
  std::string name;
  int hidden_size;
  int num_layers;
  int period;  // every period-th layer is global
  int num_q_heads;
  int sliding_kv_heads;
  int global_kv_heads;
  int sliding_group_size;
  int global_group_size;
  int window;
  bool k_eq_v;
  int first_shared;  // num_layers: none
  int sliding_donor;
  int global_donor;
  int max_positions;
};

const Size kSizes[] = {
    {"e2b", 1536, 35, 5, 8, 1, 1, 8, 8, 512, false, 15, 13, 14, 131072},
    {"e4b", 2560, 42, 6, 8, 2, 2, 4, 4, 512, false, 24, 22, 23, 131072},
    {"12b", 3840, 48, 6, 16, 8, 1, 2, 16, 1024, true, 48, -1, -1, 262144},
    {"26b-a4b", 2816, 30, 6, 16, 8, 2, 2, 8, 1024, true, 30, -1, -1, 262144},
    {"31b", 5376, 60, 6, 32, 16, 4, 2, 8, 1024, true, 60, -1, -1, 262144},
};

std::filesystem::path config_path(const std::string& name) {
  return test_data("gemma4-configs/" + name + ".json");
}

json config(const std::string& name) {
  std::ifstream stream(config_path(name));
  return json::parse(stream);
}

std::string refusal(const std::string& text) {
  try {
    Gemma4Geometry::from_json(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

void expect_layer(const Size& size, const LayerGeometry& layer, int idx) {
  const bool global = (idx + 1) % size.period == 0;
  const bool shared = idx >= size.first_shared;
  EXPECT_EQ(layer.kind, global ? LayerKind::kGlobal : LayerKind::kSliding);
  EXPECT_EQ(layer.num_q_heads, size.num_q_heads);
  EXPECT_EQ(layer.num_kv_heads, global ? size.global_kv_heads : size.sliding_kv_heads);
  EXPECT_EQ(layer.group_size(), global ? size.global_group_size : size.sliding_group_size);
  EXPECT_EQ(layer.head_dim, global ? 512 : 256);
  EXPECT_EQ(layer.window, global ? 0 : size.window);
  EXPECT_EQ(layer.k_eq_v, global && size.k_eq_v);
  EXPECT_EQ(layer.kv_layer, !shared ? idx : global ? size.global_donor : size.sliding_donor);
  EXPECT_EQ(layer.owns_cache(idx), !shared);
  EXPECT_EQ(layer.rope,
            global ? (RopeGeometry{1e6, 64, 512, 1}) : (RopeGeometry{1e4, 128, 256, 1}));
}

TEST(Gemma4Geometry, ReadsEveryNumberOfTheModelTableFromBothFormsOfTheFile) {
  for (const Size& size : kSizes) {
    for (const std::string form : {"-older", "-newer"}) {
      SCOPED_TRACE(size.name + form);
      const auto model = Gemma4Geometry::from_file(config_path(size.name + form));
      EXPECT_EQ(model.hidden_size, size.hidden_size);
      EXPECT_EQ(model.max_positions, size.max_positions);
      EXPECT_EQ(model.rms_norm_eps, 1e-6);
      ASSERT_EQ(model.layers.size(), static_cast<std::size_t>(size.num_layers));
      for (int i = 0; i < size.num_layers; ++i) {
        SCOPED_TRACE(i);
        expect_layer(size, model.layers[static_cast<std::size_t>(i)], i);
      }
    }
  }
}

TEST(Gemma4Geometry, ReadsTheTinyModelFromItsFolder) {
  const auto model = Gemma4Geometry::from_file(test_data("gemma4-tiny"));
  EXPECT_EQ(model, Gemma4Geometry::from_file(test_data("gemma4-tiny") / "config.json"));
  EXPECT_EQ(model.hidden_size, 64);
  EXPECT_EQ(model.max_positions, 4096);
  ASSERT_EQ(model.layers.size(), 6u);
  const Size tiny{"tiny", 64, 6, 6, 8, 4, 1, 2, 8, 32, true, 6, -1, -1, 4096};
  for (int i = 0; i < 6; ++i) expect_layer(tiny, model.layers[static_cast<std::size_t>(i)], i);
}

TEST(Gemma4Geometry, FrequenciesFollowTheWholeHeadAndAreRoundedOnce) {
  const RopeGeometry sliding{1e4, 128, 256, 1};
  EXPECT_EQ(sliding.inverse_frequency(0), 1.0f);
  EXPECT_EQ(sliding.inverse_frequency(32), 0.1f);   // 10000^(-64/256)
  EXPECT_EQ(sliding.inverse_frequency(64), 0.01f);  // 10000^(-128/256)
  EXPECT_EQ(sliding.inverse_frequency(96), 0.001f);
  EXPECT_EQ(sliding.inverse_frequency(127), static_cast<float>(std::pow(10, -127.0 / 32)));

  const RopeGeometry global{1e6, 64, 512, 1};
  EXPECT_EQ(global.inverse_frequency(0), 1.0f);
  EXPECT_EQ(global.inverse_frequency(32), static_cast<float>(std::pow(10, -0.75)));
  EXPECT_FLOAT_EQ(global.inverse_frequency(63), 0.03337625f);  // 10^(-6 * 126 / 512)
  EXPECT_EQ(global.inverse_frequency(64), 0.0f);
  EXPECT_EQ(global.inverse_frequency(255), 0.0f);
  EXPECT_EQ(global.inverse_frequency(-1), 0.0f);

  const RopeGeometry scaled{1e4, 128, 256, 8};
  EXPECT_EQ(scaled.inverse_frequency(32), 0.0125f);
}

TEST(Gemma4Geometry, ReadsWhatRopeParametersSay) {
  json text = config("26b-a4b-newer");
  json& rope = text["rope_parameters"]["full_attention"];
  rope["partial_rotary_factor"] = 0.5;
  rope["factor"] = 8.0;
  text["rope_parameters"]["sliding_attention"]["rope_theta"] = 500000;
  const auto model = Gemma4Geometry::from_json(text.dump());
  EXPECT_EQ(model.layers[5].rope, (RopeGeometry{1e6, 128, 512, 8}));
  EXPECT_EQ(model.layers[0].rope, (RopeGeometry{5e5, 128, 256, 1}));

  rope = {{"rope_type", "default"}, {"rope_theta", 2e6}};
  EXPECT_EQ(Gemma4Geometry::from_json(text.dump()).layers[5].rope,
            (RopeGeometry{2e6, 256, 512, 1}));
}

TEST(Gemma4Geometry, KeysWithADefaultMayBeAbsentOrNull) {
  const json full = config("e4b-older");
  const auto expected = Gemma4Geometry::from_json(full.dump());
  for (const char* key : {"layer_types", "rope_parameters", "global_head_dim", "attention_k_eq_v",
                          "num_global_key_value_heads", "use_bidirectional_attention",
                          "attention_bias", "per_layer_config"}) {
    SCOPED_TRACE(key);
    json text = full;
    text[key] = nullptr;
    EXPECT_EQ(Gemma4Geometry::from_json(text.dump()), expected);
    text.erase(key);
    EXPECT_EQ(Gemma4Geometry::from_json(text.dump()), expected);
  }
  json text = full;
  text.erase("num_kv_shared_layers");
  EXPECT_TRUE(Gemma4Geometry::from_json(text.dump()).layers[41].owns_cache(41));
}

TEST(Gemma4Geometry, TheLastLayerIsGlobalWhateverTheListSays) {
  json text = config("26b-a4b-older");
  text["text_config"]["layer_types"][29] = "sliding_attention";
  EXPECT_EQ(Gemma4Geometry::from_json(text.dump()),
            Gemma4Geometry::from_file(config_path("26b-a4b-older")));
}

TEST(Gemma4Geometry, GlobalKvHeadsOfTheOlderFormNeedSharedKAndV) {
  json text = config("12b-older");
  text["attention_k_eq_v"] = false;
  EXPECT_EQ(Gemma4Geometry::from_json(text.dump()).layers[5].num_kv_heads, 8);
}

TEST(Gemma4Geometry, PerLayerConfigGoesBeforeTheOlderKeys) {
  json text = config("26b-a4b-newer");
  text["global_head_dim"] = 128;
  text["num_global_key_value_heads"] = 16;
  EXPECT_EQ(Gemma4Geometry::from_json(text.dump()),
            Gemma4Geometry::from_file(config_path("26b-a4b-newer")));
  text["per_layer_config"]["5"] = {{"num_attention_heads", 24}, {"intermediate_size", 7}};
  const LayerGeometry layer = Gemma4Geometry::from_json(text.dump()).layers[5];
  EXPECT_EQ(layer.num_q_heads, 24);
  EXPECT_EQ(layer.head_dim, 256);
  EXPECT_EQ(layer.rope, (RopeGeometry{1e6, 32, 256, 1}));
  text["per_layer_config"]["5"]["num_attention_heads"] = 12;
  EXPECT_EQ(refusal(text.dump()),
            "the Gemma 4 config cannot be used: num_attention_heads=12 kv_heads=8 layer=5; "
            "the q heads are a multiple of the kv heads");
}

// A refusal names the key, its value and what is allowed.
struct Wrong {
  const char* key;
  json value;
  const char* message;
};

TEST(Gemma4Geometry, RefusesWrongValuesByName) {
  const json huge = json::parse("123456789012345678901234567890");  // a double in JSON's eyes
  const Wrong cases[] = {
      {"hidden_size", 0, "hidden_size=0; hidden_size is an integer, 1 to 1048576"},
      {"hidden_size", -64, "hidden_size=-64; "},
      {"hidden_size", "64", "hidden_size=\"64\"; "},
      {"hidden_size", 64.0, "hidden_size=64.0; "},
      {"hidden_size", nullptr, "hidden_size=(missing); "},
      {"hidden_size", huge, "hidden_size=1.2345678901234568e+29; "},
      {"num_hidden_layers", 18446744073709551615u, "num_hidden_layers=18446744073709551615; "},
      {"num_hidden_layers", 0, "num_hidden_layers=0; "},
      {"num_hidden_layers", 2000000000, "num_hidden_layers=2000000000; "},
      {"num_hidden_layers", 29, "layer_types=(array of 30); it lists num_hidden_layers=29 layers"},
      {"num_attention_heads", 12, "num_attention_heads=12 kv_heads=8 layer=0; "},
      {"num_attention_heads", true, "num_attention_heads=true; "},
      {"num_key_value_heads", json::array(), "num_key_value_heads=(array of 0); "},
      {"num_key_value_heads", -1, "num_key_value_heads=-1; "},
      {"head_dim", 96, "head_dim=96; head_dim is 64 or 128 or 256 or 512"},
      {"head_dim", 1024, "head_dim=1024; "},
      {"sliding_window", 0, "sliding_window=0; "},
      {"sliding_window", 1 << 21, "sliding_window=2097152; "},
      {"max_position_embeddings", 0, "max_position_embeddings=0; "},
      {"max_position_embeddings", 1LL << 31, "max_position_embeddings=2147483648; "},
      {"rms_norm_eps", 0, "rms_norm_eps=0; rms_norm_eps is a number above 0, up to 1"},
      {"rms_norm_eps", "1e-6", "rms_norm_eps=\"1e-6\"; "},
      {"attention_bias", true, "attention_bias=true; projections with a bias are not supported"},
      {"attention_bias", 0, "attention_bias=0; attention_bias is true or false"},
      {"attention_k_eq_v", "yes", "attention_k_eq_v=\"yes\"; "},
      {"use_bidirectional_attention", "all", "use_bidirectional_attention=\"all\"; "},
      {"num_kv_shared_layers", 30, "num_kv_shared_layers=30; "},
      {"num_kv_shared_layers", -1, "num_kv_shared_layers=-1; "},
      {"num_kv_shared_layers", 26, "num_kv_shared_layers=26; a layer of full_attention "},
      {"layer_types", "full_attention", "layer_types=\"full_attention\"; "},
      {"layer_types", json::object(), "layer_types=(object of 0); "},
      {"layer_types", json::array({1}), "layer_types=(array of 1); "},
      {"model_type", "gemma3_text", "model_type=\"gemma3_text\"; model_type is gemma4 or "},
      {"model_type", 4, "model_type=4; "},
      {"model_type", "gemma4", "text_config=(missing); text_config is an object"},
      {"rope_parameters", 1, "rope_parameters=1; rope_parameters is an object"},
      {"rope_parameters", json::object(), "rope_parameters.sliding_attention=(missing); "},
      {"per_layer_config", json::array(), "per_layer_config=(array of 0); "},
      {"per_layer_config", {{"30", json::object()}}, "per_layer_config.30=(object of 0); "},
      {"per_layer_config", {{"-1", json::object()}}, "per_layer_config.-1=(object of 0); "},
      {"per_layer_config", {{"five", json::object()}}, "a key is the index of a layer, 0 to 29"},
      {"per_layer_config", {{"5", 512}}, "per_layer_config.5=512; "},
      {"per_layer_config", {{"5", {{"head_dim", 500}}}}, "per_layer_config.5.head_dim=500; "},
      {"per_layer_config", {{"5", {{"num_key_value_heads", 0}}}}, "5.num_key_value_heads=0; "},
  };
  for (const Wrong& wrong : cases) {
    json text = config("26b-a4b-newer");
    text[wrong.key] = wrong.value;
    EXPECT_NE(refusal(text.dump()).find(wrong.message), std::string::npos)
        << wrong.key << "=" << wrong.value << "\n"
        << refusal(text.dump());
  }
}

TEST(Gemma4Geometry, RefusesWrongRopeParametersByName) {
  const Wrong cases[] = {
      {"rope_type", "yarn", "full_attention.rope_type=\"yarn\"; rope_type is default or "},
      {"rope_type", nullptr, "full_attention.rope_type=(missing); "},
      {"rope_type", "default", "partial_rotary_factor=0.25; it is 1 where rope_type is default"},
      {"rope_theta", -1, "rope_theta=-1; rope_theta is a number above 1, up to 1000000000000"},
      {"rope_theta", "1e6", "rope_theta=\"1e6\"; "},
      {"rope_theta", nullptr, "rope_theta=(missing); "},
      {"partial_rotary_factor", 0, "partial_rotary_factor=0; "},
      {"partial_rotary_factor", 1.5, "partial_rotary_factor=1.5; "},
      {"partial_rotary_factor", 0.001, "partial_rotary_factor=0.001; a pair of head_dim=512 turns"},
      {"factor", 0, "factor=0; "},
  };
  for (const Wrong& wrong : cases) {
    json text = config("31b-older");
    text["rope_parameters"]["full_attention"][wrong.key] = wrong.value;
    EXPECT_NE(refusal(text.dump()).find(wrong.message), std::string::npos)
        << wrong.key << "=" << wrong.value << "\n"
        << refusal(text.dump());
  }
}

TEST(Gemma4Geometry, NamesKeysOfAMultimodalFileWithTheirPath) {
  json text = config("e2b-older");
  text["text_config"]["layer_types"][3] = "chunked_attention";
  EXPECT_EQ(refusal(text.dump()),
            "the Gemma 4 config cannot be used: text_config.layer_types[3]=\"chunked_attention\"; "
            "a layer is sliding_attention or full_attention");
  text["text_config"]["model_type"] = "gemma3_text";
  EXPECT_NE(refusal(text.dump()).find("text_config.model_type=\"gemma3_text\""), std::string::npos);
  text["text_config"] = "e2b";
  EXPECT_NE(refusal(text.dump()).find("text_config=\"e2b\""), std::string::npos);
}

TEST(Gemma4Geometry, LayersThatShareACacheHaveTheSameShape) {
  json text = config("e2b-newer");
  text["per_layer_config"]["34"]["head_dim"] = 256;
  EXPECT_NE(refusal(text.dump()).find("layers 14 and 34 share a cache"), std::string::npos);
}

TEST(Gemma4Geometry, EveryRequiredKeyIsMissedByName) {
  for (const char* key : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "head_dim", "sliding_window",
                          "max_position_embeddings", "rms_norm_eps"}) {
    json text = config("31b-older");
    text.erase(key);
    const std::string message = std::string(key) + "=(missing); ";
    EXPECT_NE(refusal(text.dump()).find(message), std::string::npos) << refusal(text.dump());
  }
}

TEST(Gemma4Geometry, RefusesWhatIsNotOneJsonObject) {
  for (const char* text : {"", "{", "5", "[]", "null", "\"gemma4\"", "{} {}", "\xff\xfe",
                           "{\"a\":}", "{\"rms_norm_eps\": 1e999}"}) {
    EXPECT_TRUE(refusal(text).starts_with("the Gemma 4 config cannot be used: "))
        << text << ": " << refusal(text);
  }
  EXPECT_LT(refusal("{\"" + std::string(100000, 'x')).size(), 400u);
  EXPECT_NE(refusal(std::string(1000000, '[')), "accepted");
  EXPECT_NE(refusal(std::string(200000, '[') + std::string(200000, ']')), "accepted");
}

TEST(Gemma4Geometry, EveryCutOfAFileIsRefused) {
  const std::string text = config("31b-older").dump();
  for (std::size_t length = 0; length < text.size(); ++length) {
    ASSERT_NE(refusal(text.substr(0, length)), "accepted") << length;
  }
  EXPECT_EQ(refusal(text), "accepted");
}

// Every value anywhere in the file, replaced by every kind of value: read or refused.
TEST(Gemma4Geometry, NoValueAnywhereBreaksTheReader) {
  const json strange[] = {nullptr,
                          true,
                          -1,
                          0,
                          1,
                          1e308,
                          -0.5,
                          18446744073709551615u,
                          "sliding_attention",
                          "",
                          "\xff",
                          json::array(),
                          json::object(),
                          json::array({json::array()})};
  for (const char* name : {"e2b-newer", "31b-newer", "12b-older"}) {
    const json flat = config(name).flatten();
    for (const auto& [pointer, value] : flat.items()) {
      for (const json& other : strange) {
        json text = config(name);
        text[json::json_pointer(pointer)] = other;
        refusal(text.dump(-1, ' ', false, json::error_handler_t::ignore));
      }
    }
  }
}

TEST(Gemma4Geometry, NamesTheFileThatItCannotUse) {
  const TemporaryFolder folder;
  const auto message = [](const std::filesystem::path& path) -> std::string {
    try {
      Gemma4Geometry::from_file(path);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(folder.path()),
            "cannot read the Gemma 4 config: path=" + (folder / "config.json").string() +
                "; name a model's config.json or the folder that has it");
  EXPECT_TRUE(message(folder / "none.json").starts_with("cannot read the Gemma 4 config: "));
  const auto file = folder.write("config.json", "{\"model_type\": \"llama\"}");
  EXPECT_TRUE(message(folder.path())
                  .starts_with(file.string() + ": the Gemma 4 config cannot be used: model_type="));
}

}  // namespace
}  // namespace attune
