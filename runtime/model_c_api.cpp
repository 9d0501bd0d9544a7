// The C ABI of runtime/attune_model_c.h.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>

#include <fmt/format.h>

#include "runtime/attune_model_c.h"
#include "runtime/c_calls.h"
#include "runtime/eagle3_drafter.h"
#include "runtime/model_c_handles.h"
#include "runtime/ngram_drafter.h"

namespace attune {
namespace {

// The sizes of the first version, the least that a caller may pass; later fields come behind.
constexpr std::size_t kOptionsBytes = offsetof(attune_model_options, eagle3) + sizeof(void*);
constexpr std::size_t kInfoBytes = offsetof(attune_model_info, cache_bytes) + sizeof(std::size_t);
constexpr std::size_t kRunBytes = offsetof(attune_generate_options, context) + sizeof(void*);
constexpr std::size_t kResultBytes = offsetof(attune_generate_result, draft_s) + sizeof(double);

static_assert(static_cast<int>(GenerateEnd::kStopToken) == ATTUNE_END_STOP_TOKEN &&
              static_cast<int>(GenerateEnd::kMaxNewTokens) == ATTUNE_END_MAX_NEW_TOKENS &&
              static_cast<int>(GenerateEnd::kContextEnd) == ATTUNE_END_CONTEXT &&
              static_cast<int>(GenerateEnd::kCancelled) == ATTUNE_END_CANCELLED);
static_assert(static_cast<int>(LinearWeights::kBf16) == ATTUNE_WEIGHTS_BF16 &&
              static_cast<int>(LinearWeights::kInt4) == ATTUNE_WEIGHTS_INT4);

constexpr std::uint64_t kHeadSeed = 2;  // of random weights

attune_model_options known_options(const attune_model_options* given) {
  if (given == nullptr) return {};
  return read_struct("attune_model_options", *given, kOptionsBytes);
}

void set(int* field, std::int32_t value) {
  if (value != 0) *field = value;
}

Gemma4ModelOptions options_of(const attune_model_options& c, const ModelConfig& config) {
  if (c.weights != ATTUNE_WEIGHTS_BF16 && c.weights != ATTUNE_WEIGHTS_INT4) {
    throw InvalidArgument("no such weights", fmt::format("weights={}", c.weights),
                          "use one of attune_weights");
  }
  Gemma4ModelOptions options;
  set(&options.attention.max_tokens, c.max_tokens);
  set(&options.attention.max_sequences, c.max_sequences);
  options.attention.max_prefill =
      std::min(options.attention.max_prefill, options.attention.max_tokens);
  set(&options.attention.max_prefill, c.max_prefill);
  set(&options.attention.max_verify, c.max_verify);
  options.attention.invariant = c.not_invariant == 0;
  options.attention.global_layout = config.compact_layout();
  options.weights = static_cast<LinearWeights>(c.weights);
  return options;
}

// `random`: a config.json alone will do, for a head of random weights.
std::optional<HeadSource> read_head(const char* path, bool random, const ModelConfig& target) {
  if (path == nullptr) return std::nullopt;
  HeadSource head;
  if (random && std::filesystem::is_regular_file(path)) {
    head.config = Eagle3Config::from_file(path);
  } else {
    head.checkpoint = Eagle3Checkpoint::open(path);
    head.config = head.checkpoint->config;
  }
  head.config.check_fits(target);
  return head;
}

// `make` gives the model of its options.
template <typename Make>
attune_model* make_model(attune_engine* engine, const ModelConfig& config, bool random,
                         const attune_model_options* given, const Make& make) {
  const attune_model_options c = known_options(given);
  Gemma4ModelOptions options = options_of(c, config);
  std::optional<HeadSource> head = read_head(c.eagle3, random, config);
  if (head) options.taps = head->config.taps;
  return new attune_model{std::make_shared<SharedModel>(
      SharedModel{share(engine), make(std::move(options)), std::move(head)})};
}

std::unique_ptr<Drafter> make_drafter(SharedModel& of, std::int32_t draft, StreamHandle stream) {
  switch (draft) {
    case ATTUNE_DRAFT_NONE:
      return nullptr;
    case ATTUNE_DRAFT_NGRAM:
      return std::make_unique<NgramDrafter>();
    case ATTUNE_DRAFT_EAGLE3:
      break;
    default:
      throw InvalidArgument("no such drafter", fmt::format("draft={}", draft),
                            "use one of attune_draft");
  }
  if (!of.head) {
    throw InvalidArgument("the model was made without a draft head", {},
                          "name its folder in attune_model_options.eagle3");
  }
  const Gemma4Options& limits = of.model.options().attention;
  const Eagle3Options options{.max_tokens = limits.max_tokens,
                              .max_rows = limits.max_prefill,
                              .max_round = limits.max_verify};
  Engine& engine = of.engine->engine;
  Eagle3Head head = of.head->checkpoint
                        ? Eagle3Head(engine, of.head->config, of.head->checkpoint->weights,
                                     of.model.embed_tokens(), options)
                        : Eagle3Head::random(engine, of.head->config, options, kHeadSeed);
  return std::make_unique<Eagle3Drafter>(std::move(head), engine.device(), stream);
}

GenerateOptions run_options(const char* function, const attune_generate_options* given,
                            const Gemma4Model& model) {
  GenerateOptions options;
  options.chain = std::clamp(model.options().attention.max_verify - 1, 1, options.chain);
  options.stop_tokens = model.config().eos_token_ids;
  if (given == nullptr) return options;
  const attune_generate_options c = read_struct("attune_generate_options", *given, kRunBytes);
  require_zero("attune_generate_options.reserved", c.reserved);
  set(&options.chain, c.chain);
  set(&options.max_new_tokens, c.max_new_tokens);
  const auto stops = span_of(function, "stop_tokens", c.stop_tokens, c.num_stop_tokens);
  if (c.stop_tokens != nullptr) options.stop_tokens.assign(stops.begin(), stops.end());
  if (c.ignore_stop_tokens != 0) options.stop_tokens.clear();
  options.cuda_graph = c.no_cuda_graph == 0;
  options.sampling = {.temperature = c.temperature,
                      .top_k = c.top_k,
                      .top_p = c.top_p == 0 ? 1 : c.top_p,
                      .seed = c.seed};
  if (c.on_tokens != nullptr) {
    options.on_tokens = [call = c.on_tokens, context = c.context](std::span<const std::int32_t> t) {
      return call(t.data(), t.size(), context) != 0;
    };
  }
  return options;
}

attune_generate_result result_of(const GenerateResult& from) {
  return {.struct_size = sizeof(attune_generate_result),
          .end = static_cast<std::int32_t>(from.end),
          .num_tokens = static_cast<std::int32_t>(from.tokens.size()),
          .num_rounds = from.stats.num_rounds(),
          .num_accepted = from.stats.num_accepted(),
          .prefill_s = from.prefill_s,
          .decode_s = from.decode_s,
          .verify_s = from.verify_s,
          .draft_s = from.draft_s};
}

attune_model_info info_of(const Gemma4Model& from) {
  const ModelConfig& config = from.config();
  const Gemma4Options& options = from.options().attention;
  return {.struct_size = sizeof(attune_model_info),
          .vocab_size = config.vocab_size,
          .hidden_size = config.hidden_size(),
          .num_layers = config.num_layers(),
          .max_positions = config.geometry.max_positions,
          .max_tokens = options.max_tokens,
          .max_prefill = options.max_prefill,
          .max_verify = options.max_verify,
          .bos_token = config.bos_token_id,
          .logits = from.logits(),
          .best = from.best(),
          .weight_bytes = from.weight_bytes(),
          .activation_bytes = from.activation_bytes(),
          .cache_bytes = from.cache_bytes()};
}

// Rows of `width` elements that the last step left at `rows_at`, into host memory.
template <typename T>
attune_status read_rows(const char* function, const attune_model* model, std::int32_t rows,
                        const char* name, T* to, StreamHandle stream,
                        DevicePtr (Gemma4Model::*at_)() const, bool is_vocabulary) {
  return guarded([&] {
    const Gemma4Model& of = at(function, "model", model).shared->model;
    const int most = of.options().attention.max_verify;
    if (rows < 1 || rows > most) {
      throw InvalidArgument("a step has no such rows", fmt::format("rows={}", rows),
                            fmt::format("read 1 to {}", most));
    }
    require_not_null(function, name, to);
    const std::size_t width = is_vocabulary ? static_cast<std::size_t>(of.config().vocab_size) : 1;
    const std::span<T> values(to, static_cast<std::size_t>(rows) * width);
    of.device().copy_to_host(std::as_writable_bytes(values), (of.*at_)(), stream);
  });
}

}  // namespace
}  // namespace attune

using attune::at;
using attune::guarded;

extern "C" {

attune_status attune_model_open(attune_engine* engine, const char* folder,
                                const attune_model_options* options, attune_model** model) {
  const char* const function = __func__;
  return attune::make_handle(function, "model", model, [&] {
    at(function, "engine", engine);
    attune::require_not_null(function, "folder", folder);
    const auto checkpoint = attune::Checkpoint::open(folder);
    return attune::make_model(engine, checkpoint.config, false, options,
                              [&](attune::Gemma4ModelOptions asked) {
                                return attune::Gemma4Model(engine->engine, checkpoint.config,
                                                           checkpoint.weights, std::move(asked));
                              });
  });
}

attune_status attune_model_random(attune_engine* engine, const char* config, uint64_t seed,
                                  const attune_model_options* options, attune_model** model) {
  const char* const function = __func__;
  return attune::make_handle(function, "model", model, [&] {
    at(function, "engine", engine);
    attune::require_not_null(function, "config", config);
    const auto read = attune::ModelConfig::from_file(config);
    return attune::make_model(engine, read, true, options, [&](attune::Gemma4ModelOptions asked) {
      return attune::Gemma4Model::random(engine->engine, read, std::move(asked), seed);
    });
  });
}

void attune_model_destroy(attune_model* model) { delete model; }

attune_status attune_model_get_info(const attune_model* model, attune_model_info* info) {
  const char* const function = __func__;
  return guarded([&] {
    const attune_model& of = at(function, "model", model);
    attune::write_struct("attune_model_info", attune::info_of(of.shared->model), attune::kInfoBytes,
                         &at(function, "info", info));
  });
}

attune_status attune_model_explain(const attune_model* model, char* text, size_t size,
                                   size_t* needed) {
  const char* const function = __func__;
  return guarded([&] {
    const attune_model& of = at(function, "model", model);
    if (size > 0) attune::require_not_null(function, "text", text);
    attune::copy_text(of.shared->model.explain(), text, size, needed);
  });
}

attune_status attune_model_set_tokens(attune_model* model, const int32_t* tokens, size_t num_tokens,
                                      void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    at(function, "model", model)
        .shared->model.set_tokens(attune::span_of(function, "tokens", tokens, num_tokens), stream);
  });
}

attune_status attune_model_read_logits(const attune_model* model, int32_t rows, float* logits,
                                       void* stream) {
  return attune::read_rows(__func__, model, rows, "logits", logits, stream,
                           &attune::Gemma4Model::logits, true);
}

attune_status attune_model_read_best(const attune_model* model, int32_t rows, int32_t* tokens,
                                     void* stream) {
  return attune::read_rows(__func__, model, rows, "tokens", tokens, stream,
                           &attune::Gemma4Model::best, false);
}

attune_status attune_model_session_open(attune_model* model, attune_model_session** session) {
  const char* const function = __func__;
  return attune::make_handle(function, "session", session, [&] {
    const attune_model& of = at(function, "model", model);
    return new attune_model_session{of.shared, of.shared->model.open_session()};
  });
}

void attune_model_session_close(attune_model_session* session) { delete session; }

attune_status attune_model_session_prefill(attune_model_session* session, int32_t num_tokens,
                                           void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    attune_model_session& of = at(function, "session", session);
    of.shared->model.prefill(of.session, num_tokens, stream);
  });
}

attune_status attune_model_session_verify(attune_model_session* session, int32_t num_tokens,
                                          void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    attune_model_session& of = at(function, "session", session);
    of.shared->model.verify(of.session, num_tokens, stream);
  });
}

attune_status attune_model_session_begin_step(attune_model_session* session, int32_t num_tokens,
                                              void* stream) {
  const char* const function = __func__;
  return guarded([&] { at(function, "session", session).session.begin_step(num_tokens, stream); });
}

attune_status attune_model_session_commit(attune_model_session* session, int32_t num_tokens,
                                          void* stream) {
  const char* const function = __func__;
  return guarded([&] { at(function, "session", session).session.commit(num_tokens, stream); });
}

attune_status attune_model_session_rollback(attune_model_session* session, int32_t num_tokens,
                                            void* stream) {
  const char* const function = __func__;
  return guarded([&] { at(function, "session", session).session.rollback(num_tokens, stream); });
}

attune_status attune_model_session_length(const attune_model_session* session,
                                          int32_t* num_tokens) {
  return attune::get(__func__, "session", session, "num_tokens", num_tokens,
                     [](const auto& of) { return of.session.length(); });
}

attune_status attune_model_session_largest_step(const attune_model_session* session,
                                                int32_t* num_tokens) {
  return attune::get(__func__, "session", session, "num_tokens", num_tokens,
                     [](const auto& of) { return of.session.largest_step(); });
}

attune_status attune_generator_create(attune_model* model, int32_t draft, void* stream,
                                      attune_generator** generator) {
  const char* const function = __func__;
  return attune::make_handle(function, "generator", generator, [&] {
    const auto& shared = at(function, "model", model).shared;
    attune::Stream own;
    if (stream == nullptr) own = shared->model.device().create_stream();
    void* const on = stream == nullptr ? own.get() : stream;
    auto drafter = attune::make_drafter(*shared, draft, on);
    attune::Generator made(shared->model, drafter.get(), on);
    return new attune_generator{shared, std::move(own), std::move(drafter), std::move(made), {}};
  });
}

void attune_generator_destroy(attune_generator* generator) { delete generator; }

attune_status attune_generator_run(attune_generator* generator, const int32_t* prompt,
                                   size_t num_prompt, const attune_generate_options* options,
                                   attune_generate_result* result) {
  const char* const function = __func__;
  return guarded([&] {
    attune_generator& of = at(function, "generator", generator);
    const auto ids = attune::span_of(function, "prompt", prompt, num_prompt);
    if (result != nullptr) {  // before the run, which it must not cost
      attune::require_struct_size("attune_generate_result", result->struct_size,
                                  attune::kResultBytes, sizeof(attune_generate_result));
    }
    attune::GenerateResult ran =
        of.generator.run(ids, attune::run_options(function, options, of.shared->model));
    if (result != nullptr) {
      attune::write_struct("attune_generate_result", attune::result_of(ran), attune::kResultBytes,
                           result);
    }
    of.tokens = std::move(ran.tokens);
  });
}

attune_status attune_generator_tokens(const attune_generator* generator, int32_t* tokens,
                                      size_t capacity, size_t* num_tokens) {
  const char* const function = __func__;
  return guarded([&] {
    const attune_generator& of = at(function, "generator", generator);
    if (capacity > 0) attune::require_not_null(function, "tokens", tokens);
    std::copy_n(of.tokens.begin(), std::min(capacity, of.tokens.size()), tokens);
    if (num_tokens != nullptr) *num_tokens = of.tokens.size();
  });
}

}  // extern "C"
