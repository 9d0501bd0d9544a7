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

// A step that is forgotten unless it is committed.
class StepGuard {
 public:
  StepGuard(Gemma4Session& session, StreamHandle stream) : session_(session), stream_(stream) {}
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;
  ~StepGuard() {
    if (is_closed_) return;
    try {
      session_.commit(0, stream_);
    } catch (...) {  // the step was not open
    }
  }
  void commit(int num_tokens) {
    session_.commit(num_tokens, stream_);
    is_closed_ = true;
  }

 private:
  Gemma4Session& session_;
  StreamHandle stream_;
  bool is_closed_ = false;
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
  const auto lost = std::find(best.begin(), best.end(), -1);
  if (lost != best.end()) {
    throw Error("the model's logits are not numbers",
                fmt::format("row={} of {} length={}", lost - best.begin(), rows, session_.length()),
                "look at the checkpoint: NaN comes from its weights, or from too large ones");
  }
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

// Rows of features are given to the drafter with the tokens behind them, of which the last is not known
// before the target has said it; those of the last chunk are left to the caller.
Generator::Prefilled Generator::prefill(std::span<const std::int32_t> prompt,
                                        const GenerateOptions& options) {
  const auto length = static_cast<int>(prompt.size());
  if (drafter_ != nullptr) drafter_->begin(prompt.front());
  for (int at = 0;;) {
    const int count =
        std::min({length - at, model_.options().attention.max_prefill, session_.largest_step()});
    const std::span<const std::int32_t> chunk =
        prompt.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
    StepGuard guard(session_, stream_);
    model_.set_tokens(chunk, stream_);
    model_.prefill(session_, count, stream_);
    guard.commit(count);
    at += count;
    std::vector<std::int32_t> behind(chunk.begin() + 1, chunk.end());
    if (at == length) {
      behind.push_back(judge({}, options.sampling, length).next_token);
      return {behind.back(), std::move(behind)};
    }
    behind.push_back(prompt[static_cast<std::size_t>(at)]);
    if (drafter_ != nullptr) drafter_->append(behind, model_.features());
  }
}

int Generator::longest_step(const GenerateOptions& options) const {
  return drafter_ == nullptr ? 1 : options.chain + 1;
}

// Captures the steps of 1 to most_tokens tokens that have not been yet, or not with the kernels that
// serve now. A swap of another thread meanwhile has them captured again: the hold has to be of theirs.
void Generator::capture(int most_tokens) {
  const Engine& engine = model_.engine();
  do {
    if (held_.kernels == nullptr || held_.generation != engine.generation()) {
      if (!graphs_.empty()) model_.device().synchronize(stream_);
      graphs_.clear();
      held_ = engine.hold();
    }
    for (int num_tokens = 1; num_tokens <= std::min(most_tokens, session_.largest_step());
         ++num_tokens) {
      if (graphs_.contains(num_tokens)) continue;
      StepGuard guard(session_, stream_);
      session_.begin_step(num_tokens, stream_);
      graphs_[num_tokens] =
          model_.device().capture(stream_, [&] { model_.verify(session_, num_tokens, stream_); });
      guard.commit(0);
    }
  } while (held_.generation != engine.generation());
}

// The first num_tokens of the model's tokens; the caller commits.
void Generator::step(int num_tokens, const GenerateOptions& options) {
  if (!options.cuda_graph) return model_.verify(session_, num_tokens, stream_);
  if (held_.generation != model_.engine().generation()) capture(longest_step(options));
  const auto graph = graphs_.find(num_tokens);
  if (graph == graphs_.end()) return model_.verify(session_, num_tokens, stream_);
  session_.begin_step(num_tokens, stream_);
  model_.device().launch(graph->second, stream_);
}

void Generator::check(const GenerateOptions& options) const {
  check_sampling(options.sampling);
  const int most = model_.options().attention.max_verify - 1;
  if (drafter_ != nullptr && (options.chain < 1 || options.chain > most)) {
    throw InvalidArgument(
        "cannot draft chains of this length",
        fmt::format("chain={} max_verify={}", options.chain, most + 1),
        most < 1 ? "make the model with max_verify above 1" : fmt::format("it is 1 to {}", most));
  }
  if (options.cuda_graph && stream_ == nullptr) {
    throw InvalidArgument("cannot capture steps", "stream=default",
                          "make the generator with a stream of its own, or switch cuda_graph off");
  }
}

GenerateResult Generator::run(std::span<const std::int32_t> prompt,
                              const GenerateOptions& options) {
  check(options);
  const StopRule stop({.prompt_length = static_cast<int>(prompt.size()),
                       .max_new_tokens = options.max_new_tokens,
                       .max_tokens = model_.options().attention.max_tokens},
                      options.stop_tokens);
  session_.rollback(session_.length(), stream_);
  if (options.cuda_graph) capture(longest_step(options));

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
  Prefilled prefilled = prefill(prompt, options);
  result.prefill_s = prefill_watch.seconds();
  const Stopwatch decode_watch;
  bool goes_on = emit(std::span(&prefilled.token, 1));
  std::vector<std::int32_t> confirmed = std::move(prefilled.behind);
  while (goes_on) {
    const auto num_emitted = static_cast<int>(result.tokens.size());
    const Stopwatch draft_watch;
    const Proposal proposal =
        draft(confirmed, stop.chain_length(options.chain, num_emitted), options.sampling);
    if (drafter_ != nullptr) result.draft_s += draft_watch.seconds();

    const Stopwatch verify_watch;
    std::vector<std::int32_t> ids = {result.tokens.back()};
    ids.insert(ids.end(), proposal.tokens.begin(), proposal.tokens.end());
    StepGuard guard(session_, stream_);
    model_.set_tokens(ids, stream_);
    step(static_cast<int>(ids.size()), options);
    const auto position = static_cast<std::int64_t>(prompt.size()) + num_emitted;
    const Acceptance accepted = judge(proposal, options.sampling, position);
    guard.commit(accepted.num_accepted + 1);
    result.verify_s += verify_watch.seconds();

    confirmed.assign(proposal.tokens.begin(), proposal.tokens.begin() + accepted.num_accepted);
    confirmed.push_back(accepted.next_token);
    goes_on = emit(confirmed);
    result.stats.add_round(proposal.size(), accepted.num_accepted,
                           static_cast<int>(result.tokens.size()) - num_emitted);
  }
  result.decode_s = decode_watch.seconds();
  return result;
}

// Gives the drafter what was confirmed since it was asked last, and asks it.
Proposal Generator::draft(std::span<const std::int32_t> confirmed, int most,
                          const SamplingOptions& options) {
  if (drafter_ == nullptr) return {};
  drafter_->append(confirmed, model_.features());
  Proposal proposal = drafter_->propose(most, options);
  if (proposal.size() > most) {
    throw InvalidArgument("a drafter proposed more than it was asked for",
                          fmt::format("proposed={} asked={}", proposal.size(), most));
  }
  return proposal;
}

}  // namespace attune
