#include "cli/model_bench.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/problem.h"
#include "tuner/statistics.h"

namespace attune {
namespace {

constexpr int kSamples = 11;
constexpr int kStepsPerSample = 4;
constexpr int kPrefillSamples = 5;

std::vector<int> random_ids(int count, int vocab_size) {
  std::mt19937 random(1);
  std::vector<int> ids(static_cast<std::size_t>(count));
  for (int& id : ids) id = static_cast<int>(random() % static_cast<unsigned>(vocab_size));
  return ids;
}

// A chunk, at most up to `length` tokens in the session.
void prefill(Gemma4Model& model, Gemma4Session& session, int length, StreamHandle stream) {
  const int count = std::min(
      {length - session.length(), model.options().attention.max_prefill, session.largest_step()});
  model.set_tokens(random_ids(count, model.config().vocab_size), stream);
  model.prefill(session, count, stream);
  session.commit(count, stream);
}

// Microseconds of a prompt, ascending. The session is empty before and behind it.
std::vector<double> time_prefills(Gemma4Model& model, Gemma4Session& session, int num_tokens,
                                  StreamHandle stream) {
  Device& device = model.device();
  const Event begin = device.create_event(), end = device.create_event();
  std::vector<double> times;
  for (int i = 0; i <= kPrefillSamples; ++i) {
    device.record(begin, stream);
    while (session.length() < num_tokens) prefill(model, session, num_tokens, stream);
    device.record(end, stream);
    const double us = device.elapsed_us(begin, end);
    session.rollback(num_tokens, stream);
    if (i > 0) times.push_back(us);  // the first one warms up
  }
  std::sort(times.begin(), times.end());
  return times;
}

// Takes the caches' rows as they are.
void advance(Gemma4Session& session, int context, StreamHandle stream) {
  while (session.length() < context) {
    const int count = std::min(session.largest_step(), context - session.length());
    session.begin_step(count, stream);
    session.commit(count, stream);
  }
}

// Microseconds of a step, ascending.
std::vector<double> time_steps(Gemma4Model& model, Gemma4Session& session, int num_tokens,
                               StreamHandle stream) {
  Device& device = model.device();
  session.begin_step(num_tokens, stream);
  const Graph graph = device.capture(stream, [&] { model.verify(session, num_tokens, stream); });
  session.commit(0, stream);
  const Event begin = device.create_event(), end = device.create_event();
  std::vector<double> times;
  for (int i = 0; i <= kSamples; ++i) {
    session.begin_step(num_tokens, stream);
    device.record(begin, stream);
    for (int step = 0; step < kStepsPerSample; ++step) device.launch(graph, stream);
    device.record(end, stream);
    const double us = device.elapsed_us(begin, end) / kStepsPerSample;
    session.commit(0, stream);
    if (i > 0) times.push_back(us);  // the first one warms up
  }
  std::sort(times.begin(), times.end());
  return times;
}

// Of ascending times.
double spread(const std::vector<double>& times) {
  return times[times.size() * 3 / 4] - times[times.size() / 4];
}

Json prefill_json(const ModelBenchPrefill& prefill) {
  return {{"tokens", prefill.num_tokens},
          {"chunk", prefill.chunk},
          {"us", prefill.us},
          {"iqr_us", prefill.iqr_us},
          {"floor_us", prefill.floor_us},
          {"tokens_per_s", 1e6 * prefill.num_tokens / prefill.us},
          {"by", prefill.by}};
}

std::string prefill_line(const ModelBenchPrefill& prefill, double tensor_flops_per_s) {
  return fmt::format(
      "prefill of {} tokens in chunks of {}: {} us +/- {}, {:.0f} tokens/s, {} of the tensor rate "
      "({:.0f} TFLOP/s), by {}\n",
      prefill.num_tokens, prefill.chunk, time_text(prefill.us), time_text(prefill.iqr_us / 2),
      1e6 * prefill.num_tokens / prefill.us, percent_text(prefill.floor_us / prefill.us),
      tensor_flops_per_s / 1e12, prefill.by);
}

// Of a layer's experts, those that a token chooses.
double expert_share(const ModelConfig& config) {
  if (config.num_experts == 0) return 0;
  return static_cast<double>(config.top_k_experts) / config.num_experts;
}

}  // namespace

double step_weight_bytes(const ModelConfig& config, LinearWeights weights, int num_tokens) {
  const auto matrix_bytes = [&](std::int64_t rows, std::int64_t columns) {
    if (weights == LinearWeights::kBf16)
      return static_cast<double>(rows * columns) * kBytesPerElement;
    return static_cast<double>(int4_bytes(static_cast<int>(rows), static_cast<int>(columns)));
  };
  const double experts = 1 - std::pow(1 - expert_share(config), num_tokens);
  double bytes = 0;
  for (const WeightSpec& spec : weight_specs(config)) {
    if (spec.name == "lm_head.weight") continue;  // of embed_tokens' shape, which counts for it
    if (spec.name == "model.embed_tokens_per_layer.weight") continue;  // a few rows
    const bool is_router = spec.name.ends_with("router.proj.weight");
    if (spec.shape.size() == 1 || is_router) {
      bytes += static_cast<double>(num_elements(spec.shape)) * kBytesPerElement;
    } else if (spec.shape.size() == 2) {
      bytes += matrix_bytes(spec.shape[0], spec.shape[1]);
    } else {
      bytes += experts * matrix_bytes(spec.shape[0] * spec.shape[1], spec.shape[2]);
    }
  }
  return bytes;
}

double step_cache_bytes(const ModelConfig& config, KvLayout global_layout, int context) {
  double bytes = 0;
  for (const LayerGeometry& layer : config.geometry.layers) {
    const bool global = layer.kind == LayerKind::kGlobal;
    const int rows = layer.window > 0 ? std::min(context, layer.window) : context;
    const int columns = global && is_unified(global_layout) ? kUnifiedColumns : 2 * layer.head_dim;
    bytes += static_cast<double>(rows) * layer.num_kv_heads * columns * kBytesPerElement;
  }
  return bytes;
}

double prefill_flops(const ModelConfig& config, int num_tokens) {
  double of_token = 0;
  for (const WeightSpec& spec : weight_specs(config)) {
    if (spec.shape.size() < 2 || spec.name == "lm_head.weight" ||
        spec.name.find("embed_tokens") != std::string::npos) {
      continue;
    }
    const bool is_of_experts = spec.shape.size() == 3;
    of_token += static_cast<double>(num_elements(spec.shape)) *
                (is_of_experts ? expert_share(config) : 1.0);
  }
  double products =
      of_token * num_tokens + static_cast<double>(config.vocab_size) * config.hidden_size();
  for (const LayerGeometry& layer : config.geometry.layers) {
    const double window = layer.window > 0 ? std::min(layer.window, num_tokens) : num_tokens;
    const double keys = window * (window + 1) / 2 + (num_tokens - window) * window;
    products += 2 * keys * layer.num_q_heads * layer.head_dim;
  }
  return 2 * products;
}

void require_possible(const ModelConfig& config, const ModelBenchWish& wish) {
  const int most = wish.num_tokens.back();
  if (most > kMaxVerifyTokens) {
    throw InvalidArgument("a step cannot have so many tokens", fmt::format("tokens={}", most),
                          fmt::format("name 1 to {} with --tokens", kMaxVerifyTokens));
  }
  const int max_positions = config.geometry.max_positions;
  if (wish.contexts.back() > max_positions - most) {
    throw InvalidArgument(
        "the context does not fit into the model",
        fmt::format("context={} tokens={} max_position_embeddings={}", wish.contexts.back(), most,
                    max_positions),
        fmt::format("name contexts up to {} with --context", max_positions - most));
  }
  if (wish.prefill > max_positions) {
    throw InvalidArgument(
        "the prompt does not fit into the model",
        fmt::format("prefill={} max_position_embeddings={}", wish.prefill, max_positions),
        fmt::format("name up to {} with --prefill", max_positions));
  }
}

ModelBenchOutcome bench_model(Gemma4Model& model, const Compiler& compiler,
                              const ModelBenchWish& wish) {
  ModelBenchOutcome outcome;
  Device& device = model.device();
  outcome.gpu = device.info();
  outcome.ceilings = measure_ceilings(device, compiler);
  const ModelConfig& config = model.config();
  outcome.weight_bytes =
      static_cast<std::size_t>(step_weight_bytes(config, model.options().weights));
  const Stream stream = device.create_stream();
  Gemma4Session session = model.open_session();
  if (wish.prefill > 0) {
    const int chunk =
        std::min({wish.prefill, model.options().attention.max_prefill, session.largest_step()});
    const std::vector<double> times = time_prefills(model, session, wish.prefill, stream.get());
    outcome.prefill = ModelBenchPrefill{
        .num_tokens = wish.prefill,
        .chunk = chunk,
        .us = median(times),
        .iqr_us = spread(times),
        .floor_us = 1e6 * prefill_flops(config, wish.prefill) / outcome.ceilings.tensor_flops_per_s,
        .by = model.prefill_text(chunk)};
  }
  prefill(model, session, wish.contexts.front(), stream.get());
  model.set_tokens(random_ids(wish.num_tokens.back(), config.vocab_size), stream.get());
  for (const int context : wish.contexts) {
    advance(session, context, stream.get());
    for (const int count : wish.num_tokens) {
      const std::vector<double> times = time_steps(model, session, count, stream.get());
      ModelBenchPoint point{context, count, median(times), spread(times), 0};
      const KvLayout layout = model.options().attention.global_layout;
      const double bytes = step_weight_bytes(config, model.options().weights, count) +
                           step_cache_bytes(config, layout, context + count);
      point.floor_us = 1e6 * bytes / outcome.ceilings.read_bytes_per_s;
      outcome.points.push_back(point);
    }
  }
  return outcome;
}

Json model_bench_json(const ModelBenchOutcome& outcome) {
  Json points = Json::array();
  for (const ModelBenchPoint& point : outcome.points) {
    points.push_back({{"context", point.context},
                      {"tokens", point.num_tokens},
                      {"step_us", point.step_us},
                      {"iqr_us", point.iqr_us},
                      {"floor_us", point.floor_us}});
  }
  return {{"gpu", outcome.gpu.identity()},
          {"read_bytes_per_s", outcome.ceilings.read_bytes_per_s},
          {"tensor_flops_per_s", outcome.ceilings.tensor_flops_per_s},
          {"weight_bytes", outcome.weight_bytes},
          {"points", points},
          {"prefill", outcome.prefill ? prefill_json(*outcome.prefill) : Json()}};
}

std::string model_bench_text(const ModelBenchOutcome& outcome) {
  Table table({{"context"}, {"tokens"}, {"step us"}, {"+/-"}, {"floor us"}, {"of floor"}});
  for (const ModelBenchPoint& point : outcome.points) {
    table.add_row({std::to_string(point.context), std::to_string(point.num_tokens),
                   time_text(point.step_us), time_text(point.iqr_us / 2), time_text(point.floor_us),
                   percent_text(point.floor_us / point.step_us)});
  }
  const Ceilings& ceilings = outcome.ceilings;
  return fmt::format(
      "{}: reads {}/s; a step of one token has {} of weights; captured steps\n{}{}",
      outcome.gpu.name, bytes_text(static_cast<std::uint64_t>(ceilings.read_bytes_per_s)),
      bytes_text(outcome.weight_bytes), table.text(),
      outcome.prefill ? prefill_line(*outcome.prefill, ceilings.tensor_flops_per_s) : "");
}

}  // namespace attune
