#include "runtime/sentencepiece_tokenizer.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/runtime/tokenizer_fixtures.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

#ifdef ATTUNE_HAS_SENTENCEPIECE

std::unique_ptr<Tokenizer> load(const std::string& name) {
  return load_sentencepiece_tokenizer(tokenizer_path(name));
}

TEST(SentencePieceTokenizer, EncodesAsTheReferenceLibrary) {
  const auto tokenizer = load("tokenizer.model");
  int num_cases = 0;
  for (const json& c : tokenizer_cases().at("encode")) {
    if (c.at("sp").is_null()) continue;
    EXPECT_EQ(tokenizer->encode(c.at("text").get<std::string>()), c.at("sp").get<Tokens>()) << c;
    ++num_cases;
  }
  EXPECT_GE(num_cases, 150);
}

TEST(SentencePieceTokenizer, DecodesAsTheReferenceLibrary) {
  const auto tokenizer = load("tokenizer.model");
  for (const json& c : tokenizer_cases().at("decode_sp")) {
    EXPECT_EQ(tokenizer->decode(c.at("ids").get<Tokens>()), c.at("text").get<std::string>()) << c;
  }
}

TEST(SentencePieceTokenizer, ControlSymbolsAreReadFromTheText) {
  const auto tokenizer = load("tokenizer.model");
  const std::int32_t tool = tokenizer->id_of("<|tool>").value();
  Tokens expected = {2};
  for (const std::int32_t id : tokenizer->encode(" kernel ")) expected.push_back(id);
  expected.push_back(tool);
  EXPECT_EQ(tokenizer->encode("<bos> kernel <|tool>"), expected);
  EXPECT_EQ(tokenizer->decode(expected), " kernel ");
}

TEST(SentencePieceTokenizer, StreamHoldsBackPartialCharacters) {
  const auto tokenizer = load("tokenizer.model");
  const Tokens ids = tokenizer->encode("\U0001F642!");
  ASSERT_EQ(ids.size(), 5u);
  EXPECT_EQ(streamed(*tokenizer, ids),
            (std::vector<std::string>{"", "", "", "\U0001F642", "!", ""}));
}

TEST(SentencePieceTokenizer, NamesItsTokens) {
  const auto tokenizer = load("tokenizer.model");
  EXPECT_EQ(tokenizer->bos_id(), 2);
  EXPECT_EQ(tokenizer->eos_id(), 1);
  EXPECT_EQ(tokenizer->id_of("<unk>"), 3);
  EXPECT_EQ(tokenizer->id_of("no such piece"), std::nullopt);
  for (const std::int32_t id : {-1, 3, tokenizer->vocab_size()}) {
    EXPECT_EQ(tokenizer->text_of(id).bytes, "");
  }
}

TEST(SentencePieceTokenizer, ModelsThatChangeSpacesAreRefused) {
  try {
    load("prefixed.model");
    FAIL() << "a model that puts a space in front was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("does not keep spaces"), std::string::npos)
        << error.what();
  }
}

TEST(SentencePieceTokenizer, OtherFilesAreRefused) {
  const TemporaryFolder folder;
  folder.write("empty.model", "");
  folder.write("cut.model", tokenizer_text("tokenizer.model").substr(0, 1000));
  for (const auto& path : {tokenizer_path("tokenizer.json"), folder / "empty.model",
                           folder / "cut.model", folder / "missing.model", folder.path()}) {
    EXPECT_THROW(load_sentencepiece_tokenizer(path), InvalidArgument) << path;
  }
}

#else

TEST(SentencePieceTokenizer, BuildsWithoutTheLibrarySayWhatToDo) {
  try {
    load_sentencepiece_tokenizer("some/tokenizer.model");
    FAIL() << "there is no library to read it";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos) << error.what();
  }
}

#endif

}  // namespace
}  // namespace attune
