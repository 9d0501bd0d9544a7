#include "runtime/chat_prompt.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "runtime/bpe_tokenizer.h"
#include "tests/runtime/tokenizer_fixtures.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

using Tokens = std::vector<std::int32_t>;
using nlohmann::json;

const Tokenizer& gemma() {
  static const auto tokenizer = load_bpe_tokenizer(tokenizer_path("tokenizer.json"));
  return *tokenizer;
}

Tokens joined(std::initializer_list<Tokens> parts) {
  Tokens tokens;
  for (const Tokens& part : parts) tokens.insert(tokens.end(), part.begin(), part.end());
  return tokens;
}

std::unique_ptr<Tokenizer> without(const std::string& token) {
  json document = json::parse(tokenizer_text("tokenizer.json"));
  json& vocabulary = document["model"]["vocab"];
  vocabulary["renamed"] = vocabulary[token];
  vocabulary.erase(token);
  json& added = document["added_tokens"];
  for (std::size_t i = 0; i < added.size(); ++i) {
    if (added[i]["content"] == token) added.erase(i--);
  }
  return parse_bpe_tokenizer(document.dump());
}

TEST(ChatPrompt, ChatFormIsOneTurnAndAnEmptyThought) {
  const auto id = [](const char* text) { return gemma().id_of(text).value(); };
  EXPECT_EQ(prompt_tokens(gemma(), "the fastest kernel", PromptForm::kChat),
            joined({{2, id("<|turn>")},
                    gemma().encode("user\nthe fastest kernel"),
                    {id("<turn|>")},
                    gemma().encode("\n"),
                    {id("<|turn>")},
                    gemma().encode("model\n"),
                    {id("<|channel>")},
                    gemma().encode("thought\n"),
                    {id("<channel|>")}}));
}

TEST(ChatPrompt, RawPromptIsTheTextBehindOneBos) {
  EXPECT_EQ(prompt_tokens(gemma(), " the", PromptForm::kRaw),
            joined({{2}, gemma().encode(" the")}));
  EXPECT_EQ(prompt_tokens(gemma(), "<bos> the", PromptForm::kRaw),
            joined({{2}, gemma().encode(" the")}));
  EXPECT_EQ(prompt_tokens(gemma(), "", PromptForm::kRaw), (Tokens{2}));
}

TEST(ChatPrompt, BosIsNotDoubled) {
  EXPECT_EQ(with_bos({}, 2), (Tokens{2}));
  EXPECT_EQ(with_bos({5, 2}, 2), (Tokens{2, 5, 2}));
  EXPECT_EQ(with_bos({2, 5}, 2), (Tokens{2, 5}));
}

TEST(ChatPrompt, TokenizersOfOtherModelsAreRefused) {
  for (const char* token : {"<|turn>", "<turn|>", "<|channel>", "<channel|>"}) {
    const auto tokenizer = without(token);
    EXPECT_NO_THROW(prompt_tokens(*tokenizer, "a", PromptForm::kRaw));
    EXPECT_THROW(prompt_tokens(*tokenizer, "a", PromptForm::kChat), InvalidArgument) << token;
  }
  EXPECT_THROW(prompt_tokens(*without("<bos>"), "a", PromptForm::kRaw), InvalidArgument);
}

TEST(ChatPrompt, StopTokensAreThoseOfConfigAndTokenizer) {
  EXPECT_EQ(stop_tokens(nullptr, {}), (Tokens{1, 50, 106}));
  EXPECT_EQ(stop_tokens(nullptr, Tokens{9, 7, 9}), (Tokens{7, 9}));
  EXPECT_EQ(stop_tokens(&gemma(), {}), (Tokens{1, 5, 50, 106}));  // 5 is <turn|>
  EXPECT_EQ(stop_tokens(&gemma(), Tokens{700}), (Tokens{1, 5, 700}));
}

TEST(LoadTokenizer, TakesWhatTheFolderShips) {
  const TemporaryFolder folder;
  try {
    load_tokenizer(folder.path());
    FAIL() << "there is no tokenizer";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.json or tokenizer.model"),
              std::string::npos)
        << error.what();
  }
  folder.write("tokenizer.model", tokenizer_text("tokenizer.model"));
#ifdef ATTUNE_HAS_SENTENCEPIECE
  EXPECT_EQ(load_tokenizer(folder.path())->id_of("<|turn>"), 5);
#endif
  folder.write("tokenizer.json", tokenizer_text("tokenizer.json"));
  EXPECT_EQ(load_tokenizer(folder.path())->id_of("<|turn>"), 4);
}

}  // namespace
}  // namespace attune
