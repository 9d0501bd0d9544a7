#include "runtime/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "common/error.h"
#include "tests/support/made_tensors.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_configs.h"

namespace attune {
namespace {

template <typename Config>
std::string refusal(const Config& config, const MadeTensors& tensors) {
  try {
    match_weights(config, views_of(tensors));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

MadeTensors zeros(const std::vector<WeightSpec>& specs) {
  MadeTensors tensors;
  for (const WeightSpec& spec : specs)
    tensors[spec.name] = MadeTensor::zeros(spec.dtype, spec.shape);
  return tensors;
}

// As a multimodal checkpoint names them, with tensors of its towers.
MadeTensors multimodal(const MadeTensors& tensors) {
  MadeTensors renamed;
  for (const auto& [name, tensor] : tensors) {
    const bool is_head = name == "lm_head.weight";
    renamed[is_head ? name : "model.language_model." + name.substr(6)] = tensor;
  }
  for (const char* tower :
       {"vision_tower.encoder.weight", "embed_vision.projection.weight", "vision_embedder.weight",
        "audio_tower.conv.weight", "embed_audio.projection.weight"}) {
    renamed["model." + std::string(tower)] = MadeTensor::zeros(Dtype::kF32, {2});
  }
  return renamed;
}

const nlohmann::json kConfigs[] = {tiny_dense_config(), tiny_per_layer_config(),
                                   tiny_experts_config()};

// The table after a file's tensors were matched says where each of them lies.
void expect_all_matched(const ModelConfig& config, const MadeTensors& tensors,
                        const std::string& prefix) {
  ModelTensors<TensorView> weights = match_weights(config, views_of(tensors));
  int num_weights = 0;
  for_each_weight(config, &weights, [&](const WeightSpec& spec, const TensorView& view) {
    const std::string name =
        spec.name == "lm_head.weight" ? spec.name : prefix + spec.name.substr(6);
    EXPECT_EQ(view.bytes.data(), std::as_bytes(std::span(tensors.at(name).bytes)).data()) << name;
    EXPECT_EQ(view.shape, spec.shape) << name;
    ++num_weights;
  });
  EXPECT_EQ(num_weights, static_cast<int>(weight_specs(config).size()));
}

TEST(Checkpoint, EveryTensorOfEveryKindOfModelIsFoundUnderBothPrefixes) {
  for (nlohmann::json text : kConfigs) {
    for (const bool is_tied : {true, false}) {
      text["tie_word_embeddings"] = is_tied;
      const auto config = ModelConfig::from_json(text.dump());
      const MadeTensors tensors = zeros(weight_specs(config));
      expect_all_matched(config, tensors, "model.");
      expect_all_matched(config, multimodal(tensors), "model.language_model.");
    }
  }
}

TEST(Checkpoint, TheHeadIsTheEmbeddingUnlessTheFileHasOne) {
  const auto config = ModelConfig::from_json(tiny_dense_config().dump());
  MadeTensors tensors = zeros(weight_specs(config));
  auto weights = match_weights(config, views_of(tensors));
  EXPECT_EQ(weights.lm_head.bytes.data(), weights.embed_tokens.bytes.data());
  tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  weights = match_weights(config, views_of(tensors));
  EXPECT_NE(weights.lm_head.bytes.data(), weights.embed_tokens.bytes.data());
  EXPECT_EQ(weights.lm_head.shape, (TensorShape{48, 16}));

  nlohmann::json untied = tiny_dense_config();
  untied["tie_word_embeddings"] = false;
  tensors.erase("lm_head.weight");
  EXPECT_NE(refusal(ModelConfig::from_json(untied.dump()), tensors)
                .find("tensor=\"lm_head.weight\" found=(nothing) expected=BF16 [48, 16]"),
            std::string::npos);
}

TEST(Checkpoint, KeysAndValuesOfLayersThatShareACacheAreIgnored) {
  const auto config = ModelConfig::from_json(tiny_per_layer_config().dump());
  MadeTensors tensors = zeros(weight_specs(config));
  for (const char* name : {"k_proj", "v_proj", "k_norm"}) {
    const std::string shared = "model.layers.4.self_attn." + std::string(name) + ".weight";
    ASSERT_FALSE(tensors.contains(shared));
    tensors[shared] = MadeTensor::zeros(Dtype::kF32, {7});  // whatever it is
  }
  EXPECT_EQ(refusal(config, tensors), "accepted");
  EXPECT_EQ(refusal(config, multimodal(tensors)), "accepted");
  tensors["model.layers.4.self_attn.q_bias"] = MadeTensor::zeros(Dtype::kF32, {7});
  EXPECT_NE(refusal(config, tensors), "accepted");
}

TEST(Checkpoint, SaysWhichTensorsAreWrongAndHow) {
  const auto config = ModelConfig::from_json(tiny_dense_config().dump());
  const MadeTensors right = zeros(weight_specs(config));
  const auto message = [](const std::string& values) {
    return "the weights do not fit the config: " + values +
           "; config.json and the weights have to be of one model";
  };
  const std::string name = "model.layers.3.mlp.up_proj.weight";
  MadeTensors tensors = right;
  tensors.erase(name);
  EXPECT_EQ(refusal(config, tensors),
            message("tensor=\"" + name + "\" found=(nothing) expected=BF16 [24, 16]"));
  tensors[name] = MadeTensor::zeros(Dtype::kF32, {24, 16});
  EXPECT_EQ(refusal(config, tensors),
            message("tensor=\"" + name + "\" found=F32 [24, 16] expected=BF16 [24, 16]"));
  tensors[name] = MadeTensor::zeros(Dtype::kBf16, {16, 24});
  EXPECT_EQ(refusal(config, tensors),
            message("tensor=\"" + name + "\" found=BF16 [16, 24] expected=BF16 [24, 16]"));
  tensors = right;
  tensors["model.layers.6.layer_scalar"] = MadeTensor::zeros(Dtype::kBf16, {1});
  EXPECT_EQ(refusal(config, tensors),
            message("tensor=\"model.layers.6.layer_scalar\" found=BF16 [1] expected=(nothing)"));
}

TEST(Checkpoint, OfManyWrongTensorsAFewAreListed) {
  const auto config = ModelConfig::from_json(tiny_dense_config().dump());
  MadeTensors tensors = zeros(weight_specs(config));
  std::erase_if(tensors, [](const auto& item) { return item.first.ends_with("layer_scalar"); });
  const std::string message = refusal(config, tensors);
  for (int layer = 0; layer < 6; ++layer) {
    const std::string name = "\"model.layers." + std::to_string(layer) + ".layer_scalar\"";
    EXPECT_EQ(message.find(name) != std::string::npos, layer < 4) << message;
  }
  EXPECT_NE(message.find(" and 2 more; "), std::string::npos) << message;
}

TEST(Checkpoint, WeightsOfAnotherKindOfModelAreRefused) {
  for (const auto& of : kConfigs) {
    for (const auto& weights : kConfigs) {
      if (of == weights) continue;
      EXPECT_NE(refusal(ModelConfig::from_json(of.dump()),
                        zeros(weight_specs(ModelConfig::from_json(weights.dump())))),
                "accepted");
    }
  }
}

// Each tensor of each kind of model, missing once: no name is optional by mistake.
TEST(Checkpoint, NoTensorMayBeMissing) {
  for (const auto& text : kConfigs) {
    const auto config = ModelConfig::from_json(text.dump());
    const MadeTensors right = zeros(weight_specs(config));
    for (const auto& [name, tensor] : right) {
      MadeTensors tensors = right;
      tensors.erase(name);
      EXPECT_NE(refusal(config, tensors).find("tensor=\"" + name + "\" found=(nothing)"),
                std::string::npos)
          << name;
    }
  }
}

TEST(Checkpoint, OpensAFolderAndNamesItWhereWeightsDoNotFit) {
  const Checkpoint tiny = Checkpoint::open(test_data("gemma4-tiny"));
  EXPECT_EQ(tiny.weights.layers.size(), 6u);
  EXPECT_EQ(tiny.weights.layers[5].v_proj.bytes.size(), 0u);
  EXPECT_EQ(elements<std::uint16_t>(tiny.weights.layers[0].layer_scalar).size(), 1u);

  const TemporaryFolder folder;
  std::filesystem::copy(test_data("gemma4-tiny") / "config.json", folder.path());
  const auto message = [&]() -> std::string {
    try {
      Checkpoint::open(folder.path());
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_TRUE(message().starts_with("the folder has no weights: path=" + folder.path().string()));
  folder.write("model.safetensors", safetensors_of(zeros(weight_specs(tiny.config))));
  EXPECT_EQ(message(), "accepted");
  folder.write("model.safetensors", safetensors_of({}));
  EXPECT_TRUE(message().starts_with(folder.path().string() +
                                    ": the weights do not fit the config: tensor="))
      << message();
  folder.write("config.json", R"({"model_type": "llama"})");
  EXPECT_TRUE(message().starts_with((folder / "config.json").string() +
                                    ": the Gemma 4 config cannot be used: model_type=\"llama\"; "))
      << message();
}

class Eagle3Head : public ::testing::Test {
 protected:
  std::string refusal_of_offsets(const std::vector<std::int64_t>& offsets) {
    tensors_["d2t"] = MadeTensor::of(Dtype::kI64, {12}, offsets);
    return refusal(config_, tensors_);
  }
  const Eagle3Config config_ = Eagle3Config::from_json(tiny_head_config().dump());
  MadeTensors tensors_ = random_tensors(weight_specs(config_), 1, 48);
};

TEST_F(Eagle3Head, EveryTensorIsFoundUnderBothNamesOfTheLayer) {
  tensors_["t2d"] = MadeTensor::zeros(Dtype::kBool, {48});
  MadeTensors older;
  for (const auto& [name, tensor] : tensors_) {
    older[name.starts_with("layers.0.") ? "midlayer." + name.substr(9) : name] = tensor;
  }
  for (const MadeTensors* tensors : {&tensors_, &older}) {
    auto weights = match_weights(config_, views_of(*tensors));
    for_each_weight(config_, true, &weights, [&](const WeightSpec& spec, const TensorView& view) {
      EXPECT_TRUE(tensors_.at(spec.name).bytes ==
                  std::string(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()))
          << spec.name;
    });
  }
  EXPECT_EQ(target_tokens(match_weights(config_, views_of(tensors_)).d2t),
            (std::vector<std::int64_t>{0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44}));
}

TEST_F(Eagle3Head, MayUseTheModelsEmbeddingIfThatIsAsWide) {
  tensors_.erase("embed_tokens.weight");
  EXPECT_TRUE(match_weights(config_, views_of(tensors_)).embed_tokens.bytes.empty());
  Eagle3Config narrow = config_;
  narrow.target_hidden_size = 8;
  tensors_["fc.weight"] = MadeTensor::zeros(Dtype::kBf16, {16, 24});
  EXPECT_NE(refusal(narrow, tensors_).find("tensor=\"embed_tokens.weight\" found=(nothing)"),
            std::string::npos);
}

TEST_F(Eagle3Head, NoOtherTensorMayBeMissingOrLeftOver) {
  for (const WeightSpec& spec : weight_specs(config_, false)) {
    MadeTensors tensors = tensors_;
    tensors.erase(spec.name);
    EXPECT_NE(refusal(config_, tensors).find("tensor=\"" + spec.name + "\" found=(nothing)"),
              std::string::npos)
        << spec.name;
  }
  tensors_["layers.1.self_attn.q_proj.weight"] = MadeTensor::zeros(Dtype::kBf16, {2});
  EXPECT_NE(refusal(config_, tensors_).find("found=BF16 [2] expected=(nothing)"),
            std::string::npos);
}

TEST_F(Eagle3Head, DraftTokensLeadToTokensOfTheModelEachToItsOwn) {
  std::vector<std::int64_t> offsets(12, 36);  // the last one leads to token 47
  EXPECT_EQ(refusal_of_offsets(offsets), "accepted");
  const auto message = [&](std::int64_t offset, const char* rule) {
    return "the draft vocabulary cannot be used: tensor=d2t draft_token=11 offset=" +
           std::to_string(offset) + " target_vocab_size=48; " + rule;
  };
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t outside : {std::int64_t{37}, std::int64_t{-12}, kHuge, -kHuge - 1}) {
    offsets[11] = outside;
    EXPECT_EQ(refusal_of_offsets(offsets),
              message(outside, "draft tokens lead to tokens of the model"));
  }
  offsets[11] = -11;
  EXPECT_EQ(refusal_of_offsets(offsets), "accepted");
  offsets[11] = 35;
  EXPECT_EQ(refusal_of_offsets(offsets),
            message(35, "each draft token has a target token of its own"));
}

TEST_F(Eagle3Head, OpensAFolder) {
  const TemporaryFolder folder;
  folder.write("config.json", tiny_head_config().dump());
  folder.write("model.safetensors", safetensors_of(tensors_));
  const Eagle3Checkpoint head = Eagle3Checkpoint::open(folder.path());
  EXPECT_EQ(head.config, config_);
  EXPECT_EQ(head.weights.fc.shape, (TensorShape{16, 48}));
}

}  // namespace
}  // namespace attune
