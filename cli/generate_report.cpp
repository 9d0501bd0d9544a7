#include "cli/generate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/report.h"

namespace attune {
namespace {

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

// Tokens of the rounds: the prefill's own is not theirs.
double tokens_per_s(const GenerateReport& report) {
  return rate(static_cast<double>(report.result.stats.num_emitted()), report.result.decode_s);
}

double per_round_ms(double seconds, const SpeculationStats& stats) {
  return stats.num_rounds() == 0 ? 0 : 1e3 * seconds / static_cast<double>(stats.num_rounds());
}

}  // namespace

nlohmann::json generate_json(const GenerateReport& report) {
  const GenerateResult& result = report.result;
  const SpeculationStats& stats = result.stats;
  nlohmann::json json = {{"device", report.device},
                         {"draft", report.draft},
                         {"tokens", result.tokens},
                         {"end", name_of(result.end)},
                         {"prompt_tokens", report.num_prompt_tokens},
                         {"load_s", report.load_s},
                         {"time_to_first_token_s", result.prefill_s},
                         {"decode_s", result.decode_s},
                         {"tokens_per_s", tokens_per_s(report)},
                         {"prefill_tokens_per_s", rate(report.num_prompt_tokens, result.prefill_s)},
                         {"rounds", stats.num_rounds()},
                         {"verify_ms_per_round", per_round_ms(result.verify_s, stats)},
                         {"memory_bytes",
                          {{"weights", report.weight_bytes},
                           {"cache", report.cache_bytes},
                           {"activations", report.activation_bytes}}}};
  if (!report.text.empty()) json["text"] = report.text;
  if (report.draft != "none") {
    json["chain"] = report.chain;
    json["draft_ms_per_round"] = per_round_ms(result.draft_s, stats);
    json["mean_emitted"] = stats.mean_emitted();
    json["acceptance_by_position"] = stats.acceptance_by_position();
    json["memory_bytes"]["draft_weights"] = report.draft_weight_bytes;
    json["memory_bytes"]["draft_cache"] = report.draft_cache_bytes;
  }
  return json;
}

std::string generate_summary(const GenerateReport& report) {
  const GenerateResult& result = report.result;
  const SpeculationStats& stats = result.stats;
  std::string text = fmt::format(
      "{} tokens behind {} of the prompt, end: {}; first token {:.3f} s, then {:.1f} tokens/s\n",
      result.tokens.size(), report.num_prompt_tokens, name_of(result.end), result.prefill_s,
      tokens_per_s(report));
  text += fmt::format("{} rounds of {:.2f} ms verify", stats.num_rounds(),
                      per_round_ms(result.verify_s, stats));
  if (report.draft != "none") {
    text += fmt::format(" and {:.2f} ms draft, {:.2f} tokens each; accepted by position:",
                        per_round_ms(result.draft_s, stats), stats.mean_emitted());
    for (const double share : stats.acceptance_by_position()) {
      text += fmt::format(" {:.0f}%", 100 * share);
    }
  }
  text += fmt::format("\nmemory: weights {}, caches {}, activations {}",
                      bytes_text(report.weight_bytes), bytes_text(report.cache_bytes),
                      bytes_text(report.activation_bytes));
  if (report.draft_weight_bytes > 0) {
    text += fmt::format(", draft head {} and its cache {}", bytes_text(report.draft_weight_bytes),
                        bytes_text(report.draft_cache_bytes));
  }
  return text + "\n";
}

}  // namespace attune
