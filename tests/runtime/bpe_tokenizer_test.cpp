#include "runtime/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "common/error.h"
#include "runtime/utf8.h"
#include "tests/runtime/tokenizer_fixtures.h"

namespace attune {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

const Tokenizer& gemma() {
  static const auto tokenizer = load_bpe_tokenizer(tokenizer_path("tokenizer.json"));
  return *tokenizer;
}

TEST(BpeTokenizer, EncodesAsTheReferenceLibrary) {
  int num_cases = 0;
  for (const json& c : tokenizer_cases().at("encode")) {
    EXPECT_EQ(gemma().encode(c.at("text").get<std::string>()), c.at("hf").get<Tokens>()) << c;
    ++num_cases;
  }
  EXPECT_GE(num_cases, 150);
}

TEST(BpeTokenizer, DecodesAsTheReferenceLibrary) {
  for (const json& c : tokenizer_cases().at("encode")) {
    EXPECT_EQ(gemma().decode(c.at("hf").get<Tokens>()),
              c.value("hf_text", c.at("text").get<std::string>()))
        << c;
  }
  for (const json& c : tokenizer_cases().at("decode_hf")) {
    EXPECT_EQ(gemma().decode(c.at("ids").get<Tokens>()), c.at("text").get<std::string>()) << c;
  }
}

TEST(BpeTokenizer, MergesMayBeTextsOfTwoParts) {
  json document = json::parse(tokenizer_text("tokenizer.json"));
  for (json& merge : document["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const auto tokenizer = parse_bpe_tokenizer(document.dump());
  for (const json& c : tokenizer_cases().at("encode")) {
    EXPECT_EQ(tokenizer->encode(c.at("text").get<std::string>()), c.at("hf").get<Tokens>()) << c;
  }
}

TEST(BpeTokenizer, LongestAddedTokenIsTaken) {
  json document = json::parse(tokenizer_text("tokenizer.json"));
  const std::int32_t id = gemma().vocab_size();
  json token = document["added_tokens"].back();
  token.update(
      {{"id", id}, {"content", "<|turn><|turn>"}, {"normalized", false}, {"special", true}});
  document["added_tokens"].push_back(token);
  const auto tokenizer = parse_bpe_tokenizer(document.dump());
  const std::int32_t turn = gemma().id_of("<|turn>").value();
  EXPECT_EQ(tokenizer->encode("<|turn><|turn><|turn>"), (Tokens{id, turn}));
  EXPECT_EQ(tokenizer->encode("<|turn><|turn"), [&] {
    Tokens ids = {turn};
    for (const std::int32_t rest : gemma().encode("<|turn")) ids.push_back(rest);
    return ids;
  }());
}

TEST(BpeTokenizer, MalformedTextCountsAsReplacementCharacters) {
  EXPECT_EQ(gemma().encode("a\xE2\x82 b\xFF"), gemma().encode("a\uFFFD b\uFFFD"));
}

TEST(BpeTokenizer, StreamHoldsBackPartialCharacters) {
  const auto byte = [](int value) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", value);
    return gemma().id_of(name).value();
  };
  const std::int32_t a = gemma().id_of("a").value();
  const std::string r(kReplacementCharacter);
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(streamed(gemma(), {byte(0xF0), byte(0x9F), byte(0x99), byte(0x82), a}),
            (Pieces{"", "", "", "\U0001F642", "a", ""}));
  EXPECT_EQ(streamed(gemma(), {byte(0xE2), a, byte(0x82)}), (Pieces{"", r + "a", r, ""}));
  EXPECT_EQ(streamed(gemma(), {byte(0xE2), byte(0x82)}), (Pieces{"", "", r + r}));
  EXPECT_EQ(streamed(gemma(), {byte(0xE2), byte(0x41)}), (Pieces{"", r + "A", ""}));
  // A special token has no text and does not end a character.
  const std::int32_t turn = gemma().id_of("<|turn>").value();
  EXPECT_EQ(streamed(gemma(), {byte(0xC3), turn, byte(0xA4)}), (Pieces{"", "", "ä", ""}));
}

TEST(BpeTokenizer, NamesItsTokens) {
  EXPECT_EQ(gemma().bos_id(), 2);
  EXPECT_EQ(gemma().eos_id(), 1);
  EXPECT_EQ(gemma().id_of("<turn|>"), 5);
  EXPECT_EQ(gemma().id_of("no such token"), std::nullopt);
  EXPECT_EQ(gemma().vocab_size(), 794);
  EXPECT_EQ(gemma().text_of(-1).bytes, "");
  EXPECT_EQ(gemma().text_of(794).bytes, "");
}

TEST(BpeTokenizer, MegabyteWithoutAnyBreakIsEncoded) {
  std::string text;
  while (text.size() < 1 << 20) text += "thekernel速いtuner\U0001F642spaces   of";
  const Tokens ids = gemma().encode(text);
  EXPECT_LT(ids.size(), text.size() / 2);
  EXPECT_EQ(gemma().decode(ids), text);
}

std::string refusal(const std::string& text) {
  try {
    parse_bpe_tokenizer(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(BpeTokenizer, WhatIsNotGemmasIsRefusedByName) {
  const json document = json::parse(tokenizer_text("tokenizer.json"));
  struct Case {
    const char* pointer;
    json value;
    const char* message;
  };
  const Case cases[] = {
      {"/normalizer",
       {{"type", "NFC"}},
       R"(normalizer={"type":"NFC"}; normalizer is {"type":"Replace")"},
      {"/normalizer", nullptr, "normalizer=null"},
      {"/pre_tokenizer",
       {{"type", "ByteLevel"}},
       R"(pre_tokenizer={"type":"ByteLevel"}; pre_tokenizer is null or)"},
      {"/post_processor", {{"type", "ByteLevel"}}, R"(post_processor/type="ByteLevel")"},
      {"/decoder", {{"type", "WordPiece"}}, R"(decoder={"type":"WordPiece"})"},
      {"/decoder/decoders/2", {{"type", "Strip"}}, R"(decoder={"decoders":[{)"},
      {"/model/type", "Unigram", R"(model/type="Unigram"; model/type is "BPE")"},
      {"/model/byte_fallback", false, "model/byte_fallback=false; model/byte_fallback is true"},
      {"/model/ignore_merges", true, "model/ignore_merges=true"},
      {"/model/dropout", 0.1, "model/dropout=0.1"},
      {"/model/continuing_subword_prefix", "##", R"(model/continuing_subword_prefix="##")"},
      {"/model/end_of_word_suffix", "</w>", R"(model/end_of_word_suffix="</w>")"},
      {"/model/merges", "a b", R"(model.merges="a b"; model.merges is a list)"},
      {"/model/merges/0", "a b c", R"(model.merges[0]="a b c")"},
      {"/model/merges/0", {1, 2}, "model.merges[0]=[1,2]"},
      {"/model/merges/0", {"no such", "t"}, "the vocabulary lacks a token: merge='no such'"},
      {"/model/vocab", json::array(), "model.vocab=[]"},
      {"/model/vocab/the", -1, "model.vocab['the']=-1"},
      {"/model/vocab/the", "1", R"(model.vocab['the']="1")"},
      {"/model/vocab/the", 9, "two tokens of tokenizer.json have one id: id=9"},
      {"/added_tokens/0/single_word", true, "is without single_word"},
      {"/added_tokens/0/lstrip", true, "is without lstrip"},
      {"/added_tokens/0/rstrip", true, "is without rstrip"},
      {"/added_tokens/0/content", "", "is with a text as its content"},
      {"/added_tokens/0/special", 1, "is with special true or false"},
      {"/added_tokens/0/id", 900, "a token of tokenizer.json has two ids: text='<pad>' ids=0, 900"},
      {"/added_tokens/0/id", 5, "two tokens of tokenizer.json have one id: id=5"},
      {"/added_tokens/0/id", 1e9, "an id from 0 to"},
      {"/added_tokens", {{"a", 1}}, "added_tokens"},
  };
  for (const Case& c : cases) {
    json changed = document;
    changed[json::json_pointer(c.pointer)] = c.value;
    EXPECT_NE(refusal(changed.dump()).find(c.message), std::string::npos)
        << c.pointer << ": " << refusal(changed.dump());
  }
  json without_byte = document;
  without_byte["model"]["vocab"].erase("<0xE2>");
  EXPECT_NE(refusal(without_byte.dump()).find("byte='<0xE2>'"), std::string::npos);
  for (const char* text : {"", "[]", "{\"model\":", "{}"}) {
    EXPECT_NE(refusal(text).find("tokenizer.json is not"), std::string::npos) << text;
  }
  EXPECT_EQ(refusal(document.dump()), "accepted");
}

TEST(BpeTokenizer, ErrorsNameTheFile) {
  try {
    load_bpe_tokenizer(tokenizer_path("cases.json"));
    FAIL() << "a file of another kind was read";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("cases.json: tokenizer.json is not"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(load_bpe_tokenizer(tokenizer_path("missing.json")), InvalidArgument);
  EXPECT_THROW(load_bpe_tokenizer(tokenizer_path("")), InvalidArgument);
}

}  // namespace
}  // namespace attune
