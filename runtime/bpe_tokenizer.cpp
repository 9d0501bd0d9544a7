// The file's fields and what they do follow the `tokenizers` library (huggingface/tokenizers,
// Apache-2.0).
#include "runtime/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/text.h"
#include "runtime/bpe_model.h"
#include "runtime/read_file.h"
#include "runtime/text_matcher.h"
#include "runtime/utf8.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr std::string_view kBos = "<bos>";
constexpr std::string_view kEos = "<eos>";
constexpr std::int32_t kMaxVocabSize = 1 << 20;

[[noreturn]] void refuse(std::string_view name, const json& found, std::string_view allowed) {
  constexpr std::size_t kMaxShown = 200;
  std::string shown = found.dump(-1, ' ', true, json::error_handler_t::replace);
  if (shown.size() > kMaxShown) shown = shown.substr(0, kMaxShown) + "...";
  throw InvalidArgument("tokenizer.json is not of Gemma's kind", fmt::format("{}={}", name, shown),
                        fmt::format("{} is {}", name, allowed));
}

// The component at `pointer` has to be one of `allowed`, JSON texts; an absent one is null.
void require(const json& document, std::string_view pointer,
             std::initializer_list<std::string_view> allowed) {
  const json::json_pointer path{std::string(pointer)};
  const json found = document.contains(path) ? document.at(path) : json();
  const auto is_found = [&](std::string_view text) { return json::parse(text) == found; };
  if (std::any_of(allowed.begin(), allowed.end(), is_found)) return;
  refuse(pointer.substr(1), found, fmt::format("{}", fmt::join(allowed, " or ")));
}

void require_gemma_components(const json& document) {
  require(document, "/normalizer",
          {R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})"});
  // Behind the normalizer there is no space left to split at.
  require(document, "/pre_tokenizer",
          {"null", R"({"type":"Split","pattern":{"String":" "},)"
                   R"("behavior":"MergedWithPrevious","invert":false})"});
  // It only adds special tokens around a text.
  require(document, "/post_processor/type", {"null", R"("TemplateProcessing")"});
  require(document, "/decoder",
          {R"({"type":"Sequence","decoders":[)"
           R"({"type":"Replace","pattern":{"String":"\u2581"},"content":" "},)"
           R"({"type":"ByteFallback"},{"type":"Fuse"}]})"});
  require(document, "/model/type", {R"("BPE")"});
  require(document, "/model/byte_fallback", {"true"});
  require(document, "/model/ignore_merges", {"null", "false"});
  require(document, "/model/dropout", {"null"});
  require(document, "/model/continuing_subword_prefix", {"null", R"("")"});
  require(document, "/model/end_of_word_suffix", {"null", R"("")"});
}

std::int32_t parse_id(const json& value, std::string_view name) {
  if (value.is_number_integer()) {
    const auto id = parse_int(value.dump());  // JSON's integers may exceed int64
    if (id && *id >= 0 && *id < kMaxVocabSize) return static_cast<std::int32_t>(*id);
  }
  refuse(name, value, fmt::format("an id from 0 to {}", kMaxVocabSize - 1));
}

const json& part_of(const json& object, const char* key, std::string_view name) {
  const auto found = object.find(key);
  if (found != object.end()) return *found;
  refuse(name, nullptr, "there");
}

Vocabulary parse_vocabulary(const json& model) {
  const json& object = part_of(model, "vocab", "model.vocab");
  if (!object.is_object()) refuse("model.vocab", object, "an object of texts and ids");
  Vocabulary vocabulary;
  vocabulary.reserve(object.size());
  for (const auto& [text, id] : object.items()) {
    vocabulary.emplace(text, parse_id(id, fmt::format("model.vocab['{}']", text)));
  }
  return vocabulary;
}

// "a b" or ["a", "b"].
BpeModel::Merge parse_merge(const json& merge, std::size_t index) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto parts = split(merge.get_ref<const std::string&>(), ' ');
    if (parts.size() == 2) return {std::string(parts[0]), std::string(parts[1])};
  }
  refuse(fmt::format("model.merges[{}]", index), merge, "two texts, \"a b\" or [\"a\", \"b\"]");
}

BpeModel parse_model(const json& document) {
  const json& model = part_of(document, "model", "model");
  const json& list = part_of(model, "merges", "model.merges");
  if (!list.is_array()) refuse("model.merges", list, "a list");
  std::vector<BpeModel::Merge> merges;
  merges.reserve(list.size());
  for (const json& merge : list) merges.push_back(parse_merge(merge, merges.size()));
  return BpeModel(parse_vocabulary(model), merges);
}

struct AddedToken {
  std::string text;
  std::int32_t id;
  bool is_special = false;
  bool is_normalized = false;  // looked for in the normalized text
};

AddedToken parse_added_token(const json& token, std::size_t index) {
  const std::string name = fmt::format("added_tokens[{}]", index);
  const auto flag = [&](const char* key) {
    const json& value = part_of(token, key, name);
    if (!value.is_boolean()) refuse(name, token, fmt::format("with {} true or false", key));
    return value.get<bool>();
  };
  const json& content = part_of(token, "content", name);
  if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
    refuse(name, token, "with a text as its content");
  }
  for (const char* key : {"single_word", "lstrip", "rstrip"}) {
    if (flag(key)) refuse(name, token, fmt::format("without {}", key));
  }
  return {content.get<std::string>(), parse_id(part_of(token, "id", name), name + ".id"),
          flag("special"), flag("normalized")};
}

// A text has one id, and an id one text.
void check_ids(const Vocabulary& vocabulary, const std::vector<AddedToken>& added) {
  std::unordered_map<std::int32_t, std::string_view> texts;
  const auto claim = [&](std::int32_t id, std::string_view text) {
    const auto [first, is_new] = texts.try_emplace(id, text);
    const auto other = vocabulary.find(text);
    if (!is_new && first->second != text) {
      throw InvalidArgument("two tokens of tokenizer.json have one id",
                            fmt::format("id={} texts='{}', '{}'", id, first->second, text));
    }
    if (other != vocabulary.end() && other->second != id) {
      throw InvalidArgument("a token of tokenizer.json has two ids",
                            fmt::format("text='{}' ids={}, {}", text, other->second, id));
    }
  };
  for (const auto& [text, id] : vocabulary) claim(id, text);
  for (const AddedToken& token : added) claim(token.id, token.text);
}

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(BpeModel model, const std::vector<AddedToken>& added) : model_(std::move(model)) {
    for (const auto& [text, id] : model_.vocabulary()) set_text({text, id});
    for (const AddedToken& token : added) {
      set_text(token);
      added_[token.text] = token.id;
      if (token.is_normalized) {
        normalized_matcher_.add(marks_of_spaces(token.text), token.id);
      } else {
        matcher_.add(token.text, token.id);
      }
    }
  }

  int vocab_size() const override { return static_cast<int>(texts_.size()); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    const auto add = [&](std::int32_t id) { ids.push_back(id); };
    const auto add_plain = [&](std::string_view part) {
      const std::vector<std::int32_t> plain = model_.encode(part);
      ids.insert(ids.end(), plain.begin(), plain.end());
    };
    matcher_.split(
        valid_utf8(text),
        [&](std::string_view part) {
          normalized_matcher_.split(marks_of_spaces(part), add_plain, add);
        },
        add);
    return ids;
  }

  TokenText text_of(std::int32_t id) const override {
    return id >= 0 && id < vocab_size() ? texts_[static_cast<std::size_t>(id)] : TokenText();
  }

  std::optional<std::int32_t> id_of(std::string_view text) const override {
    for (const Vocabulary* vocabulary : {&added_, &model_.vocabulary()}) {
      const auto found = vocabulary->find(text);
      if (found != vocabulary->end()) return found->second;
    }
    return std::nullopt;
  }
  std::optional<std::int32_t> bos_id() const override { return id_of(kBos); }
  std::optional<std::int32_t> eos_id() const override { return id_of(kEos); }

 private:
  void set_text(const AddedToken& token) {
    const auto at = static_cast<std::size_t>(token.id);
    if (at >= texts_.size()) texts_.resize(at + 1);
    if (token.is_special) {
      texts_[at] = {};
    } else if (const auto byte = byte_of_token(token.text)) {
      texts_[at] = {std::string(1, static_cast<char>(*byte)), /*is_byte=*/true};
    } else {
      texts_[at] = {spaces_of_marks(token.text), /*is_byte=*/false};
    }
  }

  BpeModel model_;
  Vocabulary added_;
  TextMatcher matcher_;             // of the text as it is given
  TextMatcher normalized_matcher_;  // of what is normalized
  std::vector<TokenText> texts_;    // by id
};

}  // namespace

std::unique_ptr<Tokenizer> parse_bpe_tokenizer(std::string_view text) {
  const json document = json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    throw InvalidArgument("tokenizer.json is not a JSON object",
                          fmt::format("bytes={}", text.size()));
  }
  require_gemma_components(document);
  std::vector<AddedToken> added;
  if (const auto list = document.find("added_tokens"); list != document.end()) {
    for (const json& token : *list) added.push_back(parse_added_token(token, added.size()));
  }
  BpeModel model = parse_model(document);
  check_ids(model.vocabulary(), added);
  return std::make_unique<BpeTokenizer>(std::move(model), added);
}

std::unique_ptr<Tokenizer> load_bpe_tokenizer(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_file(path);
  if (!text) {
    throw InvalidArgument("cannot read the tokenizer", fmt::format("file={}", path.string()),
                          "name the tokenizer.json of a checkpoint");
  }
  try {
    return parse_bpe_tokenizer(*text);
  } catch (const InvalidArgument& refusal) {
    throw InvalidArgument(fmt::format("{}: {}", path.string(), refusal.what()));
  }
}

}  // namespace attune
