#include "runtime/sentencepiece_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "common/error.h"
#include "runtime/bpe_model.h"
#include "runtime/read_file.h"
#include "runtime/text_matcher.h"
#include "runtime/utf8.h"
#ifdef ATTUNE_HAS_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace attune {
#ifdef ATTUNE_HAS_SENTENCEPIECE
namespace {

using sentencepiece::SentencePieceProcessor;

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::unique_ptr<SentencePieceProcessor> processor)
      : processor_(std::move(processor)) {
    for (int id = 0; id < vocab_size(); ++id) {
      if (processor_->IsControl(id)) control_matcher_.add(processor_->IdToPiece(id), id);
    }
  }

  int vocab_size() const override { return processor_->GetPieceSize(); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    // The library never reads a control symbol from a text.
    control_matcher_.split(
        valid_utf8(text),
        [&](std::string_view part) {
          std::vector<int> part_ids;
          const auto status = processor_->Encode(part, &part_ids);
          if (!status.ok()) {
            throw Error("SentencePiece cannot encode a text", status.ToString());
          }
          ids.insert(ids.end(), part_ids.begin(), part_ids.end());
        },
        [&](std::int32_t id) { ids.push_back(id); });
    return ids;
  }

  TokenText text_of(std::int32_t id) const override {
    if (id < 0 || id >= vocab_size() || processor_->IsControl(id) || processor_->IsUnknown(id)) {
      return {};
    }
    const std::string& piece = processor_->IdToPiece(id);
    if (processor_->IsByte(id)) {
      return {std::string(1, static_cast<char>(*byte_of_token(piece))), /*is_byte=*/true};
    }
    return {spaces_of_marks(piece), /*is_byte=*/false};
  }

  std::optional<std::int32_t> id_of(std::string_view text) const override {
    const int id = processor_->PieceToId(text);
    if (processor_->IdToPiece(id) != text) return std::nullopt;  // the unknown token's
    return id;
  }
  std::optional<std::int32_t> bos_id() const override { return given(processor_->bos_id()); }
  std::optional<std::int32_t> eos_id() const override { return given(processor_->eos_id()); }

 private:
  static std::optional<std::int32_t> given(int id) {
    return id < 0 ? std::nullopt : std::optional<std::int32_t>(id);
  }

  std::unique_ptr<SentencePieceProcessor> processor_;
  TextMatcher control_matcher_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& path) {
  const std::string bytes = read_file(path).value_or("");
  auto processor = std::make_unique<SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(bytes);
  if (!status.ok()) {
    throw InvalidArgument(
        "cannot read the SentencePiece model",
        fmt::format("file={} bytes={} status='{}'", path.string(), bytes.size(), status.ToString()),
        "name the tokenizer.model of a checkpoint");
  }
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(std::move(processor));
  constexpr std::string_view kSpaced = "  a ";
  if (const std::string text = tokenizer->decode(tokenizer->encode(kSpaced)); text != kSpaced) {
    throw InvalidArgument("the SentencePiece model does not keep spaces",
                          fmt::format("file={} '{}' becomes '{}'", path.string(), kSpaced, text),
                          "Gemma's neither adds nor removes any");
  }
  return tokenizer;
}

#else

std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& path) {
  throw Error("this build reads no SentencePiece models", fmt::format("file={}", path.string()),
              "put the checkpoint's tokenizer.json beside it, give token ids in a file, or build "
              "attune from source");
}

#endif
}  // namespace attune
