// The bytes of the caches of the published models.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/gemma4_model.h"
#include "templates/problem.h"
#include "tests/runtime/gemma4_fake.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

using Gemma4SizesTest = Gemma4FakeTest;

// The problems of linear layers and of experts that `warnings` say how to tune.
std::set<std::string> linear_layers_of(const std::vector<std::string>& warnings) {
  constexpr std::string_view kFlag = "--problem '";
  std::set<std::string> problems;
  for (const std::string& warning : warnings) {
    const std::size_t at = warning.find(kFlag);
    if (at == std::string::npos) continue;
    const std::string text = warning.substr(at + kFlag.size());
    if (is_linear_family(text.substr(0, text.find('/')))) {
      problems.insert(text.substr(0, text.find('\'')));
    }
  }
  return problems;
}

struct LinearSize {
  const char* config;
  std::vector<const char*> layers;
};

// The presets gemma4-31b-linear and gemma4-26b-a4b-linear list the same ones.
TEST_F(Gemma4SizesTest, AModelAsksForEachOfItsLinearLayersOnce) {
  const std::vector<LinearSize> sizes = {
      {"31b-newer.json",
       {"linear/m8/n16384/k5376/store/bf16", "linear/m8/n18432/k5376/store/bf16",
        "linear/m8/n5376/k8192/store/bf16", "linear/m8/n5376/k16384/store/bf16",
        "linear/m8/n21504/k5376/geglu/bf16", "linear/m8/n5376/k21504/store/bf16",
        "linear/m8/n262144/k5376/logits/bf16"}},
      {"26b-a4b-newer.json",
       {"linear/m8/n8192/k2816/store/bf16", "linear/m8/n9216/k2816/store/bf16",
        "linear/m8/n2816/k4096/store/bf16", "linear/m8/n2816/k8192/store/bf16",
        "linear/m8/n2112/k2816/geglu/bf16", "linear/m8/n2816/k2112/store/bf16",
        "linear/m8/n128/k2816/logits/bf16", "experts/m8/n704/k2816/geglu/bf16/e128x8",
        "experts/m8/n2816/k704/store/bf16/e128x8", "linear/m8/n262144/k2816/logits/bf16"}}};
  for (const auto& [name, layers] : sizes) {
    const auto config = ModelConfig::from_file(test_data("gemma4-configs") / name);
    warnings.clear();
    std::set<std::string> expected;  // of both; an engine asks for the router's once
    for (const LinearWeights weights : {LinearWeights::kBf16, LinearWeights::kInt4}) {
      for (const char* layer : layers) {
        LinearShape shape = Problem::parse(layer).linear;
        const bool is_router = shape.out_features == config.num_experts;
        shape.weights = is_router ? LinearWeights::kBf16 : weights;
        for (const int tokens : {1, 8, 16}) {
          if (!shape.is_problem_of(tokens)) continue;
          expected.insert(Problem::of_linear(tokens, shape).text());
        }
      }
      Gemma4ModelOptions options;
      options.attention = {.max_tokens = 64, .max_prefill = 16, .max_verify = 2};
      options.weights = weights;
      const Gemma4Model model = Gemma4Model::random(engine(), config, options, 1);
    }
    EXPECT_EQ(linear_layers_of(warnings), expected) << name;
  }
}

// Of the global layers of each size, bytes per token in the layouts that it allows.
TEST_F(Gemma4SizesTest, CachesHaveTheBytesThatTheGeometrySays) {
  struct Case {
    const char* config;
    int separate, unified;  // bytes per token of the global layers
  };
  constexpr Case kCases[] = {{"31b-newer.json", 81920, 51200},
                             {"26b-a4b-newer.json", 20480, 12800},
                             {"12b-newer.json", 16384, 10240},
                             {"e4b-newer.json", 4 * 2 * 2 * 512 * 2, 0},
                             {"e2b-newer.json", 3 * 1 * 2 * 512 * 2, 0}};
  for (const Case& test : kCases) {
    const Gemma4Geometry geometry =
        Gemma4Geometry::from_file(test_data("gemma4-configs") / test.config);
    std::size_t ring_bytes = 0;
    Gemma4Options options{
        .max_tokens = 16384, .max_sequences = 2, .max_prefill = 1024, .max_verify = 2};
    for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
      const LayerGeometry& layer = geometry.layers[i];
      if (layer.kind == LayerKind::kGlobal || !layer.owns_cache(static_cast<int>(i))) continue;
      // Windows of 512 and 1024: both sums round up to a multiple of 64 by one row.
      ring_bytes += std::size_t{4} * static_cast<std::size_t>(layer.num_kv_heads * layer.head_dim *
                                                              (layer.window + 1024));
    }
    for (const KvLayout layout :
         {KvLayout::kContiguous, KvLayout::kPaged, KvLayout::kUnified, KvLayout::kUnifiedPaged}) {
      const auto per_token =
          static_cast<std::size_t>(is_unified(layout) ? test.unified : test.separate);
      options.global_layout = layout;
      if (per_token == 0) {
        EXPECT_THROW(make(geometry, options), InvalidArgument) << test.config;
        continue;
      }
      const auto model = make(geometry, options);
      const std::size_t full = ring_bytes + 16384 * per_token;
      EXPECT_EQ(model->cache_bytes(), 2 * full) << test.config << " " << name_of(layout);
      Gemma4Session session = model->open_session();
      EXPECT_EQ(session.cache_bytes(), is_paged(layout) ? ring_bytes : full);
      session.reserve(65, nullptr);
      EXPECT_EQ(session.cache_bytes(), is_paged(layout) ? ring_bytes + 128 * per_token : full);
    }
  }
}

// The numbers that are known of the largest model.
TEST_F(Gemma4SizesTest, TheLargestModelNeedsWhatItsDescriptionSays) {
  constexpr std::size_t kGib = std::size_t{1} << 30;
  const Gemma4Geometry geometry =
      Gemma4Geometry::from_file(test_data("gemma4-configs") / "31b-newer.json");
  Gemma4Options options{.max_tokens = 131072, .max_prefill = 1025, .max_verify = 2};
  // Rings of twice the window: 1.5625 GiB.
  EXPECT_EQ(make(geometry, options)->cache_bytes(), 10 * kGib + kGib * 25 / 16);
  options.global_layout = KvLayout::kUnifiedPaged;
  EXPECT_EQ(make(geometry, options)->cache_bytes(), kGib * 25 / 4 + kGib * 25 / 16);
}

}  // namespace
}  // namespace attune
