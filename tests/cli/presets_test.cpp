#include "cli/presets.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "cli/suggest.h"
#include "common/error.h"

namespace attune {
namespace {

constexpr const char* kGood = R"(model: mine
dtype: bf16
batch: [1, 4]
seqlen_q: [1, 8]
layers:
  - name: global
    num_q_heads: 32
    num_kv_heads: 4
    head_dim: 512
    kv_layout: contiguous
    kv_ranges: [1-131072, 1-1024]
  - name: sliding
    num_q_heads: 32
    num_kv_heads: 16
    head_dim: 256
    window: 1024
    kv_layout: ring
    kv_ranges: [1-131072]
)";

// kGood with one text replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    parse_preset(text, "p.yaml");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_ERROR(text, expected) \
  EXPECT_NE(error_of(text).find(expected), std::string::npos) << error_of(text)

TEST(Presets, NameTheLineAndTheKeyOfAWrongNumber) {
  EXPECT_EQ(error_of(with("num_kv_heads: 4", "num_kv_heads: four")),
            "cannot read the preset: p.yaml:8: layers[0].num_kv_heads: 'four' is not a number; "
            "docs/presets.md has the format");
  EXPECT_ERROR(with("batch: [1, 4]", "batch: [1, 0]"), "p.yaml:3: batch: 0 is not in 1 to 65535");
  EXPECT_ERROR(with("seqlen_q: [1, 8]", "seqlen_q: [1, 17]"), "p.yaml:4: seqlen_q: 17 is not in");
  EXPECT_ERROR(with("num_q_heads: 32", "num_q_heads: 99999999999999999999"),
               "p.yaml:7: layers[0].num_q_heads: '99999999999999999999' is not a number");
}

TEST(Presets, SuggestTheKeyThatWasMeant) {
  EXPECT_ERROR(with("window: 1024", "windw: 1024"),
               "p.yaml:16: layers[1].windw: 'windw' is not known; did you mean window?");
  EXPECT_ERROR(with("model: mine", "xyz: mine"), "known are model, dtype, batch, seqlen_q, layers");
}

TEST(Presets, MayHavePrefillsAlone) {
  const std::string prefills = "    head_dim: 512\n    prefill: [512]\n";
  std::string text = with("    head_dim: 512\n", prefills);
  text.replace(text.find("seqlen_q: [1, 8]\n"), 17, "");
  EXPECT_ERROR(text, "p.yaml:1: seqlen_q: is missing");  // the second layer has none
  text.replace(text.find("    head_dim: 256\n"), 18, "    head_dim: 256\n    prefill: [64]\n");
  const std::vector<Problem> problems = expand(parse_preset(text, "p.yaml"));
  EXPECT_EQ(problems.size(), 2u * 3u);
  for (const Problem& problem : problems) EXPECT_EQ(problem.op, Op::kPrefill);
}

TEST(Presets, RefuseMissingAndRepeatedKeys) {
  EXPECT_ERROR(with("    head_dim: 512\n", ""), "p.yaml:6: layers[0].head_dim: is missing");
  EXPECT_ERROR(with("model: mine\n", ""), "p.yaml:1: model: is missing");
  EXPECT_ERROR(with("head_dim: 512", "head_dim: 512\n    head_dim: 256"),
               "p.yaml:10: layers[0].head_dim: stands twice");
}

TEST(Presets, RefuseWhatIsNoProblemOfAttune) {
  EXPECT_ERROR(with("head_dim: 512", "head_dim: 100"), "p.yaml:9: layers[0].head_dim: 100");
  EXPECT_ERROR(with("num_kv_heads: 4", "num_kv_heads: 5"),
               "p.yaml:8: layers[0].num_kv_heads: 5 does not divide num_q_heads 32");
  EXPECT_ERROR(with("    window: 1024\n", ""), "layers[1].kv_layout: a ring holds");
  EXPECT_ERROR(with("kv_layout: ring", "kv_layout: rung"), "did you mean ring?");
  EXPECT_ERROR(with("dtype: bf16", "dtype: fp8"), "p.yaml:2: dtype: 'fp8' is not bf16");
}

TEST(Presets, RefuseKvRangesThatAreNone) {
  for (const char* range : {"0-10", "10-1", "1-2-3", "1-", "x-4", "1-9999999999"}) {
    EXPECT_ERROR(with("1-131072, 1-1024", range), "p.yaml:11: layers[0].kv_ranges: '") << range;
  }
  EXPECT_ERROR(with("[1-131072, 1-1024]", "[]"), "kv_ranges: is not a list of values");
}

TEST(Presets, RefuseTextThatIsNoYamlOrNoMap) {
  EXPECT_ERROR("model: [", "p.yaml:");
  EXPECT_ERROR("just words", "p.yaml:1: is not a map of keys and values");
  EXPECT_ERROR("", "is not a map of keys and values");
  EXPECT_ERROR(with("layers:\n", "layers: 3\nlayer:\n"), "p.yaml");
}

TEST(Presets, ExpandInTheOrderOfTheFile) {
  const auto problems = expand(parse_preset(kGood, "p.yaml"));
  ASSERT_EQ(problems.size(), 2U * 2 * (2 + 1));
  EXPECT_EQ(problems[0].text(), "decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(problems[1].text(), "decode/b1/q1/kv1-1024/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(problems[2].text(), "verify/b1/q8/kv1-131072/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(problems[4].text(), "decode/b4/q1/kv1-131072/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(problems.back().text(), "verify/b4/q8/kv1-131072/h32x16/d256/w1024/ring/bf16");
}

TEST(Presets, ExpandRepeatedValuesOnce) {
  const auto preset = parse_preset(with("batch: [1, 4]", "batch: [1, 1]"), "p.yaml");
  EXPECT_EQ(expand(preset).size(), 2U * (2 + 1));
}

TEST(Presets, GiveALayerItsPagesAndItsInvariance) {
  const auto preset =
      parse_preset(with("kv_layout: contiguous",
                        "kv_layout: unified-paged\n    page_size: 64\n    invariant: true"),
                   "p.yaml");
  EXPECT_EQ(expand(preset).front().text(),
            "decode/b1/q1/kv1-131072/h32x4/d512/invariant/p64/unified-paged/bf16");
  EXPECT_EQ(expand(preset, 2).front().text(),
            "decode/b1/q1/kv1-131072/h16x2/d512/invariant/p64/unified-paged/bf16");
  EXPECT_FALSE(expand(preset).back().invariant);
  EXPECT_FALSE(expand(parse_preset(with("window:", "invariant: false\n    window:"), "p.yaml"))
                   .back()
                   .invariant);
}

TEST(Presets, RefusePagesAndRowsThatDoNotGoWithTheLayout) {
  EXPECT_ERROR(with("kv_layout: contiguous", "kv_layout: paged"),
               "p.yaml:6: layers[0].page_size: is missing");
  EXPECT_ERROR(with("kv_layout: contiguous", "kv_layout: paged\n    page_size: 8"),
               "p.yaml:11: layers[0].page_size: 8 is not in 16 to 256");
  EXPECT_ERROR(with("kv_layout: contiguous", "kv_layout: paged\n    page_size: 48"),
               "p.yaml:11: layers[0].page_size: 48 is not a power of two");
  EXPECT_ERROR(with("kv_layout: contiguous", "kv_layout: contiguous\n    page_size: 64"),
               "p.yaml:11: layers[0].page_size: layout contiguous has no pages");
  EXPECT_ERROR(with("kv_layout: ring", "kv_layout: unified"),
               "p.yaml:17: layers[1].kv_layout: unified rows have head_dim 512");
  EXPECT_ERROR(with("window: 1024", "window: 1024\n    invariant: yes"),
               "p.yaml:17: layers[1].invariant: 'yes' is not true or false");
}

TEST(Presets, ExpandPrefillsOverTheRangesThatHoldTheirChunk) {
  const auto preset = parse_preset(with("kv_ranges: [1-131072, 1-1024]",
                                        "kv_ranges: [1-131072, 1-1024]\n    prefill: [512, 2048]"),
                                   "p.yaml");
  const auto problems = expand(preset);
  ASSERT_EQ(problems.size(), 2U * (2 * 2 + 3 + 2 * 1));
  EXPECT_EQ(problems[4].text(), "prefill/b1/q512/kv512-131072/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(problems[5].text(), "prefill/b1/q512/kv512-1024/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(problems[6].text(), "prefill/b1/q2048/kv2048-131072/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(problems[7].text(), "decode/b4/q1/kv1-131072/h32x4/d512/contiguous/bf16");
}

TEST(Presets, RefusePrefillsThatNoRangeHolds) {
  EXPECT_ERROR(with("kv_ranges: [1-131072, 1-1024]", "kv_ranges: 1-1024\n    prefill: 2048"),
               "p.yaml:12: layers[0].prefill: 2048 is not in 1 to 1024");
  EXPECT_ERROR(with("    window: 1024\n", "    window: 1024\n    prefill: []\n"),
               "layers[1].prefill: is not a list of values");
}

TEST(Presets, TakeALoneValueAsAListOfOne) {
  const auto preset = parse_preset(with("batch: [1, 4]", "batch: 2"), "p.yaml");
  EXPECT_EQ(preset.batch, std::vector<int>{2});
}

TEST(Presets, ShareHeadsOverTensorParallelGpus) {
  const Preset preset = parse_preset(kGood, "p.yaml");
  EXPECT_EQ(expand(preset, 2).front().text(), "decode/b1/q1/kv1-131072/h16x2/d512/contiguous/bf16");
  EXPECT_EQ(expand(preset, 2).back().num_kv_heads, 8);
  // 8 GPUs hold the 4 KV heads twice.
  EXPECT_EQ(expand(preset, 8).front().text(), "decode/b1/q1/kv1-131072/h4x1/d512/contiguous/bf16");
}

TEST(Presets, RefuseTensorParallelismThatSplitsAHead) {
  const Preset preset = parse_preset(kGood, "p.yaml");
  EXPECT_THROW(expand(preset, 3), InvalidArgument);
  EXPECT_THROW(expand(preset, 64), InvalidArgument);
  EXPECT_THROW(expand(preset, 0), InvalidArgument);
  const Preset six = parse_preset(
      with("num_q_heads: 32\n    num_kv_heads: 4", "num_q_heads: 24\n    num_kv_heads: 6"),
      "p.yaml");
  EXPECT_THROW(expand(six, 4), InvalidArgument);  // 6 KV heads over 4 GPUs
}

constexpr const char* kLinear = R"(model: mine
dtype: bf16
linear:
  tokens: [8, 16]
  weights: [int4]
  layers:
    - name: up
      out_features: 512
      in_features: 256
      epilogue: geglu
    - {name: down, out_features: 256, in_features: 512}
)";

std::string with_linear(const std::string& from, const std::string& to) {
  std::string text = kLinear;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Presets, HaveLinearLayersAloneOrBehindAttention) {
  const auto alone = expand(parse_preset(kLinear, "p.yaml"));
  ASSERT_EQ(alone.size(), 4U);
  EXPECT_EQ(alone[0].text(), "linear/m8/n512/k256/geglu/int4");
  EXPECT_EQ(alone[1].text(), "linear/m16/n512/k256/geglu/int4");
  EXPECT_EQ(alone[3].text(), "linear/m16/n256/k512/store/int4");
  const std::string linear = std::string(kLinear).substr(std::string(kLinear).find("linear:"));
  const auto both = expand(parse_preset(kGood + linear, "p.yaml"));
  EXPECT_EQ(both.size(), expand(parse_preset(kGood, "p.yaml")).size() + 4);
  EXPECT_EQ(both.back(), alone.back());
  EXPECT_THROW(expand(parse_preset(kLinear, "p.yaml"), 2), InvalidArgument);
}

TEST(Presets, NameWhatIsWrongWithALinearLayer) {
  EXPECT_ERROR(
      with_linear("[8, 16]", "[12]"),
      "p.yaml:4: linear.tokens: 12 is none of 1 (packed rows and experts alone), 8 and 16");
  EXPECT_ERROR(with_linear("[8, 16]", "[0]"), "p.yaml:4: linear.tokens: 0 is not in 1 to 16");
  std::string nothing = with_linear("[8, 16]", "[1]");
  EXPECT_EQ(expand(parse_preset(nothing, "p.yaml")).size(), 2U);
  nothing.replace(nothing.find("int4"), 4, "bf16");
  EXPECT_ERROR(nothing, "linear.tokens: leaves nothing");
  EXPECT_ERROR(with_linear("int4", "int3"), "p.yaml:5: linear.weights: ");
  EXPECT_ERROR(with_linear("geglu", "gelu"), "p.yaml:10: linear.layers[0].epilogue: ");
  EXPECT_ERROR(with_linear("in_features: 256", "in_features: 252"),
               "p.yaml:9: linear.layers[0].in_features: 252 is no multiple of 8");
  EXPECT_ERROR(with_linear("      out_features: 512\n", ""), "out_features: is missing");
  EXPECT_ERROR(with_linear("  weights: [int4]\n", ""), "linear.weights: is missing");
  EXPECT_ERROR(with_linear("dtype: bf16", "dtype: bf16\nbatch: [1]"), "batch: is of attention");
  EXPECT_ERROR(with_linear("name: up", "name: up\n      bias: true"), "'bias' is not known");
}

TEST(Presets, LayersMayBeThoseOfExpertsAndHaveWeightsOfTheirOwn) {
  const auto problems =
      expand(parse_preset(with_linear("epilogue: geglu",
                                      "epilogue: geglu\n      experts: 8\n      top_k: 2\n"
                                      "      weights: [bf16]"),
                          "p.yaml"));
  ASSERT_EQ(problems.size(), 4U);
  EXPECT_EQ(problems[0].text(), "experts/m8/n512/k256/geglu/bf16/e8x2");
  EXPECT_EQ(problems[2].text(), "linear/m8/n256/k512/store/int4");
  // One token of experts is a problem of any weights.
  std::string one = with_linear("epilogue: geglu", "experts: 8\n      top_k: 2");
  one.replace(one.find("[8, 16]"), 7, "[1]");
  one.replace(one.find("int4"), 4, "bf16");
  const auto alone = expand(parse_preset(one, "p.yaml"));
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].text(), "experts/m1/n512/k256/store/bf16/e8x2");

  const auto wrong = [](const std::string& keys) { return with_linear("epilogue: geglu", keys); };
  EXPECT_ERROR(wrong("top_k: 2"), "p.yaml:10: linear.layers[0].top_k: is of experts");
  EXPECT_ERROR(wrong("experts: 8"), "linear.layers[0].top_k: is missing");
  EXPECT_ERROR(wrong("experts: 300\n      top_k: 2"), "experts: 300 is not in 1 to 256");
  EXPECT_ERROR(wrong("experts: 8\n      top_k: 9"), "top_k: 9 is not in 1 to 8");
  EXPECT_ERROR(wrong("epilogue: logits\n      experts: 8\n      top_k: 2"),
               "experts give no logits");
}

struct Shipped {
  const char* name;
  std::size_t num_problems;
  const char* first;
  const char* last;
};

TEST(Presets, ThatAreShippedGiveTheProblemsOfTheirModels) {
  const Shipped all[] = {
      {"gemma4-31b", 80, "h32x4/d512/contiguous", "h32x16/d256/w1024/ring"},
      {"gemma4-26b-a4b", 80, "h16x2/d512/contiguous", "h16x8/d256/w1024/ring"},
      {"gemma4-12b", 80, "h16x1/d512/contiguous", "h16x8/d256/w1024/ring"},
      {"gemma4-e4b", 65, "h8x2/d512/contiguous", "h8x2/d256/w512/ring"},
      {"gemma4-e2b", 65, "h8x1/d512/contiguous", "h8x1/d256/w512/ring"},
      {"host-small", 8, "h2x1/d64/contiguous", "h2x1/d512/contiguous"},
      {"gemma4-31b-linear", 35, "linear/m8/n16384/k5376/store/bf16",
       "linear/m16/n262144/k5376/logits/int4"},
      {"gemma4-12b-linear", 35, "linear/m8/n8192/k3840/store/bf16",
       "linear/m16/n262144/k3840/logits/int4"},
      {"gemma4-26b-a4b-linear", 49, "linear/m8/n8192/k2816/store/bf16",
       "linear/m16/n262144/k2816/logits/int4"},
  };
  for (const Shipped& shipped : all) {
    const Preset preset = read_preset(find_preset(shipped.name, preset_folders()));
    EXPECT_EQ(preset.model, shipped.name);
    const auto problems = expand(preset);
    EXPECT_EQ(problems.size(), shipped.num_problems) << shipped.name;
    EXPECT_NE(problems.front().text().find(shipped.first), std::string::npos) << shipped.name;
    EXPECT_NE(problems.back().text().find(shipped.last), std::string::npos) << shipped.name;
  }
}

// Shapes of a preset's layers of these weights, as texts of 8 tokens have them.
std::set<std::string> layers_of(const char* preset, const std::string& weights) {
  std::set<std::string> layers;
  for (const Problem& problem : expand(read_preset(find_preset(preset, preset_folders())))) {
    std::string text = problem.text();
    const auto at = text.find("/" + weights);
    if (at == std::string::npos) continue;
    text.erase(at, weights.size() + 1);
    layers.insert(text.substr(text.find("/n") + 1));
  }
  return layers;
}

// gemma4_sizes_test says that the models ask for these.
TEST(Presets, OfLinearLayersHaveThoseOfTheirModel) {
  std::set<std::string> of_26b = {
      "n8192/k2816/store",       "n9216/k2816/store",       "n2816/k4096/store",
      "n2816/k8192/store",       "n2112/k2816/geglu",       "n2816/k2112/store",
      "n704/k2816/geglu/e128x8", "n2816/k704/store/e128x8", "n262144/k2816/logits"};
  EXPECT_EQ(layers_of("gemma4-26b-a4b-linear", "int4"), of_26b);
  of_26b.insert("n128/k2816/logits");
  EXPECT_EQ(layers_of("gemma4-26b-a4b-linear", "bf16"), of_26b);
  EXPECT_EQ(layers_of("gemma4-31b-linear", "int4"),
            (std::set<std::string>{"n16384/k5376/store", "n18432/k5376/store", "n5376/k8192/store",
                                   "n5376/k16384/store", "n21504/k5376/geglu", "n5376/k21504/store",
                                   "n262144/k5376/logits"}));
}

TEST(Presets, ThatAreUnknownListTheKnownOnesAndThePlaces) {
  const auto folder = std::filesystem::temp_directory_path() / "attune-presets-test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "mine.yaml") << kGood;
  EXPECT_EQ(find_preset("mine", {"/nowhere", folder}), folder / "mine.yaml");
  EXPECT_EQ(find_preset("x/y.yaml", {}), "x/y.yaml");
  try {
    find_preset("yours", {"/nowhere", folder});
    ADD_FAILURE() << "found";
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("preset='yours' known=mine looked at /nowhere, " + folder.string()),
              std::string::npos)
        << text;
  }
  std::filesystem::remove_all(folder);
  EXPECT_THROW(read_preset("/nowhere/x.yaml"), InvalidArgument);
  EXPECT_THROW(read_preset("/tmp"), InvalidArgument);
  EXPECT_THROW(read_preset("/dev/zero"), InvalidArgument);  // has no end
}

TEST(Suggest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("window", "windw"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace attune
