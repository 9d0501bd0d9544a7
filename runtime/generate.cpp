#include "runtime/generate.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

namespace attune {
namespace {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

GenerateEnd end_of(StopReason reason) {
  switch (reason) {
    case StopReason::kStopToken:
      return GenerateEnd::kStopToken;
    case StopReason::kContextEnd:
      return GenerateEnd::kContextEnd;
    case StopReason::kMaxNewTokens:
    case StopReason::kNone:
      break;
  }
  return GenerateEnd::kMaxNewTokens;
}

}  // namespace

std::string_view name_of(GenerateEnd end) {
  switch (end) {
    case GenerateEnd::kStopToken:
      return "stop_token";
    case GenerateEnd::kMaxNewTokens:
      return "max_new_tokens";
    case GenerateEnd::kContextEnd:
      return "context_end";
    case GenerateEnd::kCancelled:
      break;
  }
  return "cancelled";
}

Generator::Generator(Gemma4Model& model, Drafter* drafter, StreamHandle stream)
    : model_(model), drafter_(drafter), stream_(stream), session_(model.open_session()) {
  if (drafter == nullptr) return;
  const std::span<const int> asked = drafter->taps();
  const std::vector<int>& kept = model.options().taps;
  if (std::equal(asked.begin(), asked.end(), kept.begin(), kept.end())) return;
  if (asked.empty()) return;
  throw InvalidArgument("the model does not keep what the drafter reads",
                        fmt::format("taps={} of the drafter, {} of the model",
                                    fmt::join(asked, ","), fmt::join(kept, ",")),
                        "make the model with the drafter's taps");
}

std::vector<float> Generator::read_logits(int rows) const {
  std::vector<float> logits(static_cast<std::size_t>(rows) * model_.config().vocab_size);
  model_.device().copy_to_host(std::as_writable_bytes(std::span(logits)), model_.logits(), stream_);
  return logits;
}

std::vector<std::int32_t> Generator::read_best(int rows) const {
  std::vector<std::int32_t> best(static_cast<std::size_t>(rows));
  model_.device().copy_to_host(std::as_writable_bytes(std::span(best)), model_.best(), stream_);
  return best;
}

// Of a step that has run; reads no more of it than it needs.
Acceptance Generator::judge(const Proposal& proposal, const SamplingOptions& options,
                            std::int64_t position) {
  const int rows = proposal.size() + 1;
  if (options.greedy()) {
    const std::vector<std::int32_t> best = read_best(rows);
    return accept_prefix(proposal.tokens,
                         [&](int row) { return best[static_cast<std::size_t>(row)]; });
  }
  const std::vector<float> logits = read_logits(rows);
  return accept({logits, model_.config().vocab_size}, proposal, options, position);
}

// The first token behind the prompt. Rows of features are given to the drafter with the tokens behind
// them, of which the last is not known before the target has said it.
std::int32_t Generator::prefill(std::span<const std::int32_t> prompt,
                                const GenerateOptions& options) {
  const auto length = static_cast<int>(prompt.size());
  if (drafter_ != nullptr) drafter_->begin(prompt.front());
  std::int32_t next = 0;
  for (int at = 0; at < length;) {
    const int count =
        std::min({length - at, model_.options().attention.max_prefill, session_.largest_step()});
    model_.set_tokens(prompt.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)),
                      stream_);
    model_.prefill(session_, count, stream_);
    session_.commit(count, stream_);
    at += count;
    const bool is_last = at == length;
    if (is_last) next = judge({}, options.sampling, length).next_token;
    if (drafter_ == nullptr) continue;
    std::vector<std::int32_t> behind(prompt.begin() + at - count + 1, prompt.begin() + at);
    behind.push_back(is_last ? next : prompt[static_cast<std::size_t>(at)]);
    drafter_->append(behind, model_.features());
  }
  return next;
}

// Runs the first num_tokens of the model's tokens; the caller commits.
void Generator::step(int num_tokens, bool cuda_graph) {
  if (!cuda_graph) return model_.verify(session_, num_tokens, stream_);
  Graph& graph = graphs_[num_tokens];
  if (!graph) {
    session_.begin_step(num_tokens, stream_);
    graph = model_.device().capture(stream_, [&] { model_.verify(session_, num_tokens, stream_); });
    session_.commit(0, stream_);
  }
  session_.begin_step(num_tokens, stream_);
  model_.device().launch(graph, stream_);
}

GenerateResult Generator::run(std::span<const std::int32_t> prompt,
                              const GenerateOptions& options) {
  const Gemma4Options& limits = model_.options().attention;
  check_sampling(options.sampling);
  if (drafter_ != nullptr && (options.chain < 1 || options.chain >= limits.max_verify)) {
    throw InvalidArgument("cannot draft chains of this length",
                          fmt::format("chain={} max_verify={}", options.chain, limits.max_verify),
                          fmt::format("it is 1 to {}", limits.max_verify - 1));
  }
  const StopRule stop({.prompt_length = static_cast<int>(prompt.size()),
                       .max_new_tokens = options.max_new_tokens,
                       .max_tokens = limits.max_tokens},
                      options.stop_tokens);
  session_.rollback(session_.length(), stream_);

  GenerateResult result;
  const auto emit = [&](std::span<const std::int32_t> tokens) {
    const Emission emission = stop.emit(tokens, static_cast<int>(result.tokens.size()));
    const auto emitted = tokens.first(static_cast<std::size_t>(emission.num_tokens));
    result.tokens.insert(result.tokens.end(), emitted.begin(), emitted.end());
    const bool goes_on = !options.on_tokens || options.on_tokens(emitted);
    if (emission.reason != StopReason::kNone) {
      result.end = end_of(emission.reason);
      return false;
    }
    if (!goes_on) result.end = GenerateEnd::kCancelled;
    return goes_on;
  };

  const Stopwatch prefill_watch;
  const std::int32_t first = prefill(prompt, options);
  result.prefill_s = prefill_watch.seconds();
  const Stopwatch decode_watch;
  bool goes_on = emit(std::span(&first, 1));
  while (goes_on) {
    const auto num_emitted = static_cast<int>(result.tokens.size());
    Proposal proposal;
    if (drafter_ != nullptr) {
      const Stopwatch watch;
      proposal = drafter_->propose(stop.chain_length(options.chain, num_emitted), options.sampling);
      result.draft_s += watch.seconds();
    }
    const Stopwatch watch;
    std::vector<std::int32_t> ids = {result.tokens.back()};
    ids.insert(ids.end(), proposal.tokens.begin(), proposal.tokens.end());
    model_.set_tokens(ids, stream_);
    step(static_cast<int>(ids.size()), options.cuda_graph);
    const auto position = static_cast<std::int64_t>(prompt.size()) + num_emitted;
    const Acceptance accepted = judge(proposal, options.sampling, position);
    session_.commit(accepted.num_accepted + 1, stream_);
    result.verify_s += watch.seconds();

    std::vector<std::int32_t> confirmed(proposal.tokens.begin(),
                                        proposal.tokens.begin() + accepted.num_accepted);
    confirmed.push_back(accepted.next_token);
    goes_on = emit(confirmed);
    result.stats.add_round(proposal.size(), accepted.num_accepted,
                           static_cast<int>(result.tokens.size()) - num_emitted);
    if (goes_on && drafter_ != nullptr) {
      const Stopwatch append_watch;
      drafter_->append(confirmed, model_.features());
      result.draft_s += append_watch.seconds();
    }
  }
  result.decode_s = decode_watch.seconds();
  return result;
}

}  // namespace attune
