// The YAML form of presets. Every error names the file, the line and the key.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "cli/presets.h"
#include "cli/suggest.h"
#include "common/error.h"
#include "common/text.h"
#include "templates/expert_params.h"

namespace attune {
namespace {

constexpr std::array<std::string_view, 6> kPresetKeys = {"model",    "dtype",  "batch",
                                                         "seqlen_q", "layers", "linear"};
constexpr std::array<std::string_view, 3> kLinearKeys = {"tokens", "weights", "layers"};
constexpr std::array<std::string_view, 7> kLinearLayerKeys = {
    "name", "out_features", "in_features", "epilogue", "weights", "experts", "top_k"};
constexpr std::array<std::string_view, 10> kLayerKeys = {
    "name",      "num_q_heads", "num_kv_heads", "head_dim",  "window",
    "kv_layout", "page_size",   "invariant",    "kv_ranges", "prefill"};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  [[noreturn]] void fail(const YAML::Mark& mark, std::string_view key,
                         std::string_view what) const {
    const std::string line = mark.is_null() ? "" : fmt::format(":{}", mark.line + 1);
    throw InvalidArgument(
        "cannot read the preset",
        fmt::format("{}{}: {}{}{}", file_, line, key, key.empty() ? "" : ": ", what),
        "docs/presets.md has the format");
  }

  // The values of a map by key, all of them known and none twice.
  std::map<std::string, YAML::Node> map(const YAML::Node& node, const std::string& key,
                                        std::span<const std::string_view> known) const {
    if (!node.IsMap()) fail(node.Mark(), key, "is not a map of keys and values");
    std::map<std::string, YAML::Node> values;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) fail(entry.first.Mark(), key, "a key is not a word");
      const std::string name = entry.first.Scalar();
      const std::string full = path(key, name);
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        fail(entry.first.Mark(), full, unknown_word(name, known));
      }
      if (!values.emplace(name, entry.second).second)
        fail(entry.first.Mark(), full, "stands twice");
    }
    return values;
  }

  static std::string path(const std::string& key, const std::string& name) {
    return key.empty() ? name : key + "." + name;
  }

  std::string word(const YAML::Node& node, const std::string& key) const {
    if (!node.IsScalar() || node.Scalar().empty()) fail(node.Mark(), key, "is not a word");
    return node.Scalar();
  }

  int number(const YAML::Node& node, const std::string& key, int min, int max) const {
    const std::string text = word(node, key);
    const auto value = parse_int(text);
    if (!value) fail(node.Mark(), key, fmt::format("'{}' is not a number", text));
    if (*value < min || *value > max) {
      fail(node.Mark(), key, fmt::format("{} is not in {} to {}", text, min, max));
    }
    return static_cast<int>(*value);
  }

  // Items of a list that is not empty; a lone value is a list of one.
  std::vector<YAML::Node> list(const YAML::Node& node, const std::string& key) const {
    if (node.IsScalar()) return {node};
    if (!node.IsSequence() || node.size() == 0) fail(node.Mark(), key, "is not a list of values");
    return {node.begin(), node.end()};
  }

  std::vector<int> numbers(const YAML::Node& node, const std::string& key, int min, int max) const {
    std::vector<int> values;
    for (const YAML::Node& item : list(node, key)) values.push_back(number(item, key, min, max));
    return values;
  }

  bool boolean(const YAML::Node& node, const std::string& key) const {
    const std::string text = word(node, key);
    if (text != "true" && text != "false") {
      fail(node.Mark(), key, fmt::format("'{}' is not true or false", text));
    }
    return text == "true";
  }

  KvRange kv_range(const YAML::Node& node, const std::string& key) const {
    const std::string text = word(node, key);
    const auto ends = split(text, '-');
    const auto min = parse_int(ends.front());
    const auto max = parse_int(ends.back());
    if (ends.size() > 2 || !min || !max || *min < 1 || *max < *min || *max > kMaxKvLen) {
      fail(node.Mark(), key, fmt::format("'{}' is not min-max with 1 <= min <= max <= 2^29", text));
    }
    return {static_cast<int>(*min), static_cast<int>(*max)};
  }

 private:
  const std::string& file_;
};

// One map of the file: required and optional values of it.
class Fields {
 public:
  Fields(const Reader& reader, const YAML::Node& node, std::string key,
         std::span<const std::string_view> known)
      : mark_(node.Mark()), key_(std::move(key)), reader_(reader) {
    values_ = reader.map(node, key_, known);
  }

  const YAML::Node* find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }
  const YAML::Node& get(const std::string& name) const {
    const YAML::Node* node = find(name);
    if (node == nullptr) reader_.fail(mark_, path(name), "is missing");
    return *node;
  }
  std::string path(const std::string& name) const { return Reader::path(key_, name); }
  int number(const std::string& name, int min, int max) const {
    return reader_.number(get(name), path(name), min, max);
  }
  std::string word(const std::string& name) const { return reader_.word(get(name), path(name)); }
  [[noreturn]] void fail(const std::string& name, std::string_view what) const {
    reader_.fail(get(name).Mark(), path(name), what);
  }

 private:
  YAML::Mark mark_;
  std::string key_;
  const Reader& reader_;
  std::map<std::string, YAML::Node> values_;
};

KvLayout kv_layout(const Fields& fields) {
  const std::string text = fields.word("kv_layout");
  std::vector<std::string_view> names;
  for (const KvLayout layout : kKvLayouts) {
    if (name_of(layout) == text) return layout;
    names.push_back(name_of(layout));
  }
  fields.fail("kv_layout", unknown_word(text, names));
}

// A head_dim that attune knows: a problem that is fine otherwise tells.
int head_dim(const Fields& fields) {
  const int value = fields.number("head_dim", 1, 1 << 16);
  Problem problem;
  problem.head_dim = value;
  try {
    problem.validate();
  } catch (const InvalidArgument&) {
    fields.fail("head_dim", fmt::format("{} is not one that attune has kernels for", value));
  }
  return value;
}

// The page size that goes with the layout: 0 for layouts without pages.
int page_size(const Fields& fields, KvLayout layout) {
  if (!is_paged(layout)) {
    if (fields.find("page_size") == nullptr) return 0;
    fields.fail("page_size", fmt::format("layout {} has no pages", name_of(layout)));
  }
  const int value = fields.number("page_size", kMinPageSize, kMaxPageSize);
  if ((value & (value - 1)) != 0) {
    fields.fail("page_size", fmt::format("{} is not a power of two", value));
  }
  return value;
}

// Chunks of prefills, each in at least one of the layer's kv ranges.
std::vector<int> prefill_chunks(const Reader& reader, const Fields& fields,
                                const std::vector<KvRange>& ranges) {
  if (fields.find("prefill") == nullptr) return {};
  int longest = 0;
  for (const KvRange& range : ranges) longest = std::max(longest, range.max);
  return reader.numbers(fields.get("prefill"), fields.path("prefill"), 1,
                        std::min(longest, kMaxPrefillTokens));
}

PresetLayer parse_layer(const Reader& reader, const YAML::Node& node, const std::string& key) {
  const Fields fields(reader, node, key, kLayerKeys);
  PresetLayer layer;
  layer.name = fields.word("name");
  layer.num_q_heads = fields.number("num_q_heads", 1, 1 << 20);
  layer.num_kv_heads = fields.number("num_kv_heads", 1, 65535);
  if (layer.num_q_heads % layer.num_kv_heads != 0) {
    fields.fail("num_kv_heads", fmt::format("{} does not divide num_q_heads {}", layer.num_kv_heads,
                                            layer.num_q_heads));
  }
  layer.head_dim = head_dim(fields);
  if (fields.find("window") != nullptr) layer.window = fields.number("window", 1, kMaxWindow);
  layer.kv_layout = kv_layout(fields);
  if (layer.kv_layout == KvLayout::kRing && layer.window == 0) {
    fields.fail("kv_layout", "a ring holds the keys of a window only; add a window");
  }
  if (is_unified(layer.kv_layout) && layer.head_dim != kUnifiedHeadDim) {
    fields.fail("kv_layout", fmt::format("unified rows have head_dim {}", kUnifiedHeadDim));
  }
  layer.page_size = page_size(fields, layer.kv_layout);
  if (const YAML::Node* invariant = fields.find("invariant")) {
    layer.invariant = reader.boolean(*invariant, fields.path("invariant"));
  }
  const std::string ranges_key = fields.path("kv_ranges");
  for (const YAML::Node& item : reader.list(fields.get("kv_ranges"), ranges_key)) {
    layer.kv_ranges.push_back(reader.kv_range(item, ranges_key));
  }
  layer.prefill = prefill_chunks(reader, fields, layer.kv_ranges);
  return layer;
}

// The one of `values` that a word names.
template <typename Enum, std::size_t N>
Enum named(const Reader& reader, const YAML::Node& node, const std::string& key,
           const std::array<Enum, N>& values) {
  const std::string text = reader.word(node, key);
  std::vector<std::string_view> names;
  for (const Enum value : values) {
    if (name_of(value) == text) return value;
    names.push_back(name_of(value));
  }
  reader.fail(node.Mark(), key, unknown_word(text, names));
}

std::vector<LinearWeights> parse_weights(const Reader& reader, const Fields& fields) {
  std::vector<LinearWeights> weights;
  const std::string key = fields.path("weights");
  for (const YAML::Node& item : reader.list(fields.get("weights"), key)) {
    weights.push_back(
        named(reader, item, key, std::array{LinearWeights::kBf16, LinearWeights::kInt4}));
  }
  return weights;
}

PresetLinearLayer parse_linear_layer(const Reader& reader, const YAML::Node& node,
                                     const std::string& key, const PresetLinearLayer& common) {
  const Fields fields(reader, node, key, kLinearLayerKeys);
  fields.word("name");  // for people
  PresetLinearLayer layer = common;
  LinearShape& shape = layer.shape;
  shape.out_features = fields.number("out_features", 1, kMaxLinearFeatures);
  shape.in_features = fields.number("in_features", 8, kMaxLinearFeatures);
  if (shape.in_features % 8 != 0) {
    fields.fail("in_features", fmt::format("{} is no multiple of 8", shape.in_features));
  }
  if (const YAML::Node* epilogue = fields.find("epilogue")) {
    constexpr std::array kKnown = {LinearEpilogue::kStore, LinearEpilogue::kGeglu,
                                   LinearEpilogue::kSwiglu, LinearEpilogue::kLogits};
    shape.epilogue = named(reader, *epilogue, fields.path("epilogue"), kKnown);
  }
  if (fields.find("weights") != nullptr) layer.weights = parse_weights(reader, fields);
  if (fields.find("experts") != nullptr) {
    shape.num_experts = fields.number("experts", 1, kMaxExperts);
    shape.top_k = fields.number("top_k", 1, std::min(shape.num_experts, kMaxTopK));
  } else if (fields.find("top_k") != nullptr) {
    fields.fail("top_k", "is of experts: say how many there are");
  }
  // What is left are limits of attune as a whole.
  try {
    Problem::of_linear(kMmaTokens, shape).validate();
  } catch (const InvalidArgument& error) {
    reader.fail(node.Mark(), key, error.what());
  }
  return layer;
}

PresetLinear parse_linear(const Reader& reader, const YAML::Node& node) {
  const Fields fields(reader, node, "linear", kLinearKeys);
  PresetLinear linear;
  const std::string tokens_key = fields.path("tokens");
  for (const YAML::Node& item : reader.list(fields.get("tokens"), tokens_key)) {
    const int tokens = reader.number(item, tokens_key, 1, kMaxLinearTokens);
    if (!is_linear_token_block(tokens, LinearWeights::kInt4)) {
      reader.fail(item.Mark(), tokens_key,
                  fmt::format("{} is none of 1 (packed rows and experts alone), {} and {}", tokens,
                              kMmaTokens, kMaxLinearTokens));
    }
    linear.tokens.push_back(tokens);
  }
  const PresetLinearLayer common{{}, parse_weights(reader, fields)};
  const YAML::Node& layers = fields.get("layers");
  if (!layers.IsSequence() || layers.size() == 0) fields.fail("layers", "is not a list of layers");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string key = fmt::format("linear.layers[{}]", i);
    linear.layers.push_back(parse_linear_layer(reader, layers[i], key, common));
  }
  Preset alone;
  alone.linear = linear;
  if (expand(alone).empty()) {
    fields.fail("tokens",
                "leaves nothing: launches of 1 token are for int4 weights and experts alone");
  }
  return linear;
}

Preset parse(const Reader& reader, const YAML::Node& root) {
  const Fields fields(reader, root, "", kPresetKeys);
  Preset preset;
  preset.model = fields.word("model");
  if (fields.word("dtype") != name_of(preset.dtype)) {
    fields.fail("dtype",
                fmt::format("'{}' is not {}", fields.word("dtype"), name_of(preset.dtype)));
  }
  if (const YAML::Node* linear = fields.find("linear")) {
    preset.linear = parse_linear(reader, *linear);
    // A preset of linear layers alone has nothing of attention.
    if (fields.find("layers") == nullptr) {
      for (const char* key : {"batch", "seqlen_q"}) {
        if (fields.find(key) != nullptr) fields.fail(key, "is of attention: add layers");
      }
      return preset;
    }
  }
  preset.batch = reader.numbers(fields.get("batch"), "batch", 1, 65535);
  if (const YAML::Node* tokens = fields.find("seqlen_q")) {
    preset.seqlen_q = reader.numbers(*tokens, "seqlen_q", 1, 16);
  }
  const YAML::Node& layers = fields.get("layers");
  if (!layers.IsSequence() || layers.size() == 0) fields.fail("layers", "is not a list of layers");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string key = fmt::format("layers[{}]", i);
    preset.layers.push_back(parse_layer(reader, layers[i], key));
    // Without steps a layer has prefills.
    if (preset.layers.back().prefill.empty()) fields.get("seqlen_q");
    // What is left are limits of attune as a whole, such as the known head_dims.
    try {
      Preset alone = preset;
      alone.layers = {preset.layers.back()};
      alone.linear = {};
      expand(alone);
    } catch (const InvalidArgument& error) {
      reader.fail(layers[i].Mark(), key, error.what());
    }
  }
  return preset;
}

}  // namespace

Preset parse_preset(const std::string& text, const std::string& file) {
  const Reader reader(file);
  try {
    return parse(reader, YAML::Load(text));
  } catch (const YAML::Exception& error) {
    reader.fail(error.mark, "", error.msg);
  }
}

}  // namespace attune
