#include "runtime/eagle3_head.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "jit/model_source.h"
#include "runtime/device_pointer.h"
#include "runtime/eagle3_weights.h"
#include "runtime/linear_layers.h"
#include "runtime/state_buffer.h"
#include "runtime/stream_kernels.h"
#include "runtime/token_ids.h"
#include "templates/model_plan.h"
#include "templates/prologue_config.h"
#include "templates/prologue_plan.h"

namespace attune {
struct Eagle3Head::State {
  // Makes all that can refuse the head or its options before `make_weights` is called.
  State(Engine& engine, const Eagle3Config& of, const Eagle3Options& asked,
        const LinearLayers::Load& load, const std::function<Eagle3Weights()>& make_weights);

  void prepare_attention(Engine& engine);
  void make_memory();
  // What the linear layers are.
  std::vector<LinearShape> linear_shapes() const;
  struct Pass {
    DevicePtr feature, ids;  // of the new slots
    int rows;
    int length;   // slots before
    int chained;  // of them behind the last append
  };
  void forward(const Pass& pass, StreamHandle stream);
  void join(DevicePtr feature, DevicePtr ids_at, int rows, StreamHandle stream) const;
  void attend(int rows, StreamHandle stream) const;
  void feed_forward(DevicePtr feature, int rows, StreamHandle stream) const;
  void head(int rows, int chained, StreamHandle stream) const;
  const Attention& attention_for(int rows) const {
    return rows <= options.max_round ? steps.at(rows) : *chunk;
  }
  void run(LinearShape shape, DevicePtr weights_at, DevicePtr input, DevicePtr out, int rows,
           StreamHandle stream) const {
    linears.run(shape, {.weights = weights_at, .input = input, .out = out, .num_tokens = rows},
                stream);
  }
  ResidualParams residual_params(DevicePtr next_norm, DevicePtr out, int out_stride) const {
    ResidualParams p{};
    p.next_weight = pointer<const uint16>(next_norm);
    p.out = pointer<uint16>(out);
    p.out_stride = out_stride;
    p.hidden = config.hidden_size;
    p.eps = static_cast<float>(config.rms_norm_eps);
    return p;
  }
  DevicePtr row_of(const DeviceMem& rows, int row) const {
    return rows.ptr() + std::uint64_t{1} * row * config.hidden_size * kBytesPerElement;
  }

  Device& device;
  const Eagle3Config config;
  const Eagle3Options options;
  LinearLayers linears;
  StreamKernels kernels;
  Eagle3Weights weights;
  std::shared_ptr<const LoadedModule> prologue_module;
  Kernel prologue;
  std::map<int, Attention> steps;  // by rows
  std::optional<Attention> chunk;
  std::shared_ptr<const StateWriter> writer;
  std::unique_ptr<StateBuffer> integers;  // the length

  // bf16 [max_rows, ...]
  DeviceMem fused, joined, qkv, queries, attended, branch, stream_rows, normed, activated;
  DeviceMem features;  // g of the last pass
  DeviceMem k, v, workspace, inverse_frequencies;
  TokenIds ids;
  DeviceMem map, logits;
  DeviceMem chain;   // int [kMaxChain]
  int last_row = 0;  // of `features`
};

Eagle3Head::State::State(Engine& engine, const Eagle3Config& of, const Eagle3Options& asked,
                         const LinearLayers::Load& load,
                         const std::function<Eagle3Weights()>& make_weights)
    : device(engine.device()),
      config(of),
      options(asked),
      linears(engine, linear_shapes()),
      kernels(device, load, config.hidden_size) {
  if (options.max_tokens < 1 || options.max_rows < 1 || options.max_round < 1 ||
      options.max_round > kMaxVerifyTokens || options.max_tokens > kMaxRopePositions) {
    throw InvalidArgument("cannot make a draft head",
                          fmt::format("max_tokens={} max_rows={} max_round={}", options.max_tokens,
                                      options.max_rows, options.max_round),
                          fmt::format("each is at least 1, max_round up to {}, max_tokens up to {}",
                                      kMaxVerifyTokens, kMaxRopePositions));
  }
  const Source raw = prologue_source(config.head_dim, KvLayout::kContiguous, false);
  prologue_module = load(raw);
  prologue = device.kernel(prologue_module->module, raw.symbols.front(), 0);
  auto state_writer = std::make_shared<StateWriter>();
  state_writer->module = load(state_source());
  state_writer->kernel = device.kernel(state_writer->module->module, "write_state", 0);
  writer = std::move(state_writer);
  prepare_attention(engine);
  linears.prefill_by(engine.open_gemm(), load, linear_shapes(), options.max_rows,
                     [&engine](const std::string& message) { engine.warn(message); });
  weights = make_weights();
  if (weights.embed_tokens == 0) {
    throw InvalidArgument("the draft head has no embed_tokens", {},
                          "pass those of its target model");
  }
  make_memory();
}

void Eagle3Head::State::prepare_attention(Engine& engine) {
  Problem problem;
  problem.kv = {1, options.max_tokens};
  problem.num_q_heads = config.num_q_heads;
  problem.num_kv_heads = config.num_kv_heads;
  problem.head_dim = config.head_dim;
  for (int rows = 1; rows <= options.max_round; ++rows) {
    problem.op = rows == 1 ? Op::kDecode : Op::kVerify;
    problem.seqlen_q = rows;
    steps.emplace(rows, engine.prepare(problem.text()));
  }
  if (options.max_rows > options.max_round) {
    problem.op = Op::kPrefill;
    problem.seqlen_q = options.max_rows;
    chunk = engine.prepare(problem.text());
  }
}

std::vector<LinearShape> Eagle3Head::State::linear_shapes() const {
  const int hidden = config.hidden_size;
  return {{hidden, config.num_taps() * config.target_hidden_size},
          {qkv_width(config), 2 * hidden},
          {hidden, config.num_q_heads * config.head_dim},
          {config.intermediate_size, hidden, LinearEpilogue::kSwiglu},
          {hidden, config.intermediate_size},
          {config.draft_vocab_size, hidden, LinearEpilogue::kLogits}};
}

void Eagle3Head::State::make_memory() {
  const auto most_rows = static_cast<std::size_t>(std::max(options.max_rows, options.max_round));
  const auto rows = [&](std::int64_t width) {
    return device.allocate(most_rows * static_cast<std::size_t>(width) * kBytesPerElement);
  };
  const int hidden = config.hidden_size;
  const int q_width = config.num_q_heads * config.head_dim;
  fused = rows(hidden);
  joined = rows(2 * hidden);
  qkv = rows(qkv_width(config));
  queries = rows(q_width);
  attended = rows(q_width);
  branch = rows(hidden);
  stream_rows = rows(hidden);
  normed = rows(hidden);
  activated = rows(config.intermediate_size);
  features = rows(hidden);
  const std::size_t cache = std::size_t{1} * options.max_tokens * config.num_kv_heads *
                            config.head_dim * kBytesPerElement;
  k = device.allocate(cache);
  v = device.allocate(cache);
  std::size_t bytes = chunk ? chunk->workspace_bytes() : 0;
  for (const auto& [count, step] : steps) bytes = std::max(bytes, step.workspace_bytes());
  if (bytes > 0) workspace = device.allocate(bytes);
  const auto put = [&](auto values) {
    DeviceMem memory = device.allocate(values.size() * sizeof(values[0]));
    device.copy_to_device(memory.ptr(), std::as_bytes(std::span(values)), nullptr);
    device.synchronize(nullptr);
    return memory;
  };
  std::vector<float> frequencies;
  const RopeGeometry rope = config.rope();
  for (int pair = 0; pair < rope.num_pairs; ++pair) {
    frequencies.push_back(rope.inverse_frequency(pair));
  }
  inverse_frequencies = put(frequencies);
  map = put(weights.target_tokens);
  ids = TokenIds(device, most_rows);
  logits = device.allocate(static_cast<std::size_t>(config.draft_vocab_size) * sizeof(float));
  chain = device.allocate(kMaxChain * sizeof(int));
  integers = std::make_unique<StateBuffer>(device, writer, 1);
}

// x = [norm(embedding), norm(feature)].
void Eagle3Head::State::join(DevicePtr feature, DevicePtr ids_at, int rows,
                             StreamHandle stream) const {
  const int hidden = config.hidden_size;
  ResidualParams p = residual_params(weights.input_norm, joined.ptr(), 2 * hidden);
  p.tokens = pointer<const int>(ids_at);
  p.embedding = pointer<const uint16>(weights.embed_tokens);
  p.embedding_scale = 1;
  device.launch(kernels.embedding, plan_residual(p.hidden, rows), &p, stream);
  p = residual_params(weights.hidden_norm, row_of(joined, 1), 2 * hidden);
  p.from = pointer<const uint16>(feature);
  p.from_stride = hidden;
  device.launch(kernels.residual, plan_residual(p.hidden, rows), &p, stream);
}

void Eagle3Head::State::attend(int rows, StreamHandle stream) const {
  const int width = qkv_width(config);
  const int q_width = config.num_q_heads * config.head_dim;
  const int kv_width = config.num_kv_heads * config.head_dim;
  run({width, 2 * config.hidden_size}, weights.qkv_proj, joined.ptr(), qkv.ptr(), rows, stream);
  PrologueParams p{};
  p.q = pointer<const void>(qkv.ptr());
  p.k = pointer<const uint16>(qkv.ptr()) + q_width;
  p.v = pointer<const uint16>(qkv.ptr()) + q_width + kv_width;
  p.inv_freq = pointer<const float>(inverse_frequencies.ptr());
  p.q_out = pointer<void>(queries.ptr());
  p.k_cache = pointer<void>(k.ptr());
  p.v_cache = pointer<void>(v.ptr());
  p.kv_len = pointer<const int>(integers->ptr());
  p.q_token_stride = p.k_token_stride = p.v_token_stride = width;
  p.q_out_token_stride = q_width;
  p.k_cache_token_stride = p.v_cache_token_stride = kv_width;
  p.k_cache_head_stride = p.v_cache_head_stride = config.head_dim;
  p.batch = 1;
  p.seqlen_q = rows;
  p.num_q_heads = config.num_q_heads;
  p.num_kv_heads = config.num_kv_heads;
  p.num_pairs = config.head_dim / 2;
  p.overlap = 1;  // the projection in front waits before it lets the prologue begin
  device.launch(prologue, plan_prologue(config.head_dim, KvLayout::kContiguous, p), &p, stream);
  AttentionArgs a;
  a.q = queries.ptr();
  a.k = k.ptr();
  a.v = v.ptr();
  a.out = attended.ptr();
  a.kv_len = integers->ptr();
  a.kv_len_add = rows;
  a.workspace = workspace.ptr();
  a.capacity = options.max_tokens;
  a.sm_scale = static_cast<float>(1 / std::sqrt(config.head_dim));
  a.seqlen_q = rows <= options.max_round ? 0 : rows;
  a.overlap = true;  // the prologue writes this pass's keys and queries alone
  attention_for(rows).launch(a, stream);
  run({config.hidden_size, q_width}, weights.o_proj, attended.ptr(), branch.ptr(), rows, stream);
}

void Eagle3Head::State::feed_forward(DevicePtr feature, int rows, StreamHandle stream) const {
  const int hidden = config.hidden_size;
  ResidualParams p = residual_params(weights.post_attention_norm, normed.ptr(), hidden);
  p.branch = pointer<const uint16>(branch.ptr());
  p.from = pointer<const uint16>(config.norm_before_residual ? row_of(joined, 1) : feature);
  p.from_stride = config.norm_before_residual ? 2 * hidden : hidden;
  p.stream = pointer<uint16>(stream_rows.ptr());
  device.launch(kernels.residual, plan_residual(p.hidden, rows), &p, stream);
  run({config.intermediate_size, hidden, LinearEpilogue::kSwiglu}, weights.gate_up_proj,
      normed.ptr(), activated.ptr(), rows, stream);
  run({hidden, config.intermediate_size}, weights.down_proj, activated.ptr(), branch.ptr(), rows,
      stream);
  p = residual_params(weights.norm, normed.ptr(), hidden);
  p.branch = pointer<const uint16>(branch.ptr());
  p.from = pointer<const uint16>(stream_rows.ptr());
  p.from_stride = hidden;
  p.stream = pointer<uint16>(features.ptr());
  device.launch(kernels.residual, plan_residual(p.hidden, rows), &p, stream);
}

void Eagle3Head::State::head(int rows, int chained, StreamHandle stream) const {
  run({config.draft_vocab_size, config.hidden_size, LinearEpilogue::kLogits}, weights.lm_head,
      row_of(normed, rows - 1), logits.ptr(), 1, stream);
  const ArgmaxParams p{pointer<const float>(logits.ptr()), config.draft_vocab_size,
                       config.draft_vocab_size, pointer<const int>(map.ptr()),
                       pointer<int>(chain.ptr()) + chained};
  device.launch(kernels.argmax, plan_argmax(1), &p, stream);
}

void Eagle3Head::State::forward(const Pass& pass, StreamHandle stream) {
  integers->set(0, pass.length);
  integers->flush(stream);
  join(pass.feature, pass.ids, pass.rows, stream);
  attend(pass.rows, stream);
  feed_forward(pass.feature, pass.rows, stream);
  head(pass.rows, pass.chained, stream);
  last_row = pass.rows - 1;
}

Eagle3Head::Eagle3Head(std::unique_ptr<State> state) : state_(std::move(state)) {}
Eagle3Head::Eagle3Head(Eagle3Head&&) noexcept = default;
Eagle3Head::~Eagle3Head() = default;

Eagle3Head::Eagle3Head(Engine& engine, const Eagle3Config& config,
                       const Eagle3Tensors<TensorView>& weights, DevicePtr target_embedding,
                       const Eagle3Options& options)
    : state_(std::make_unique<State>(
          engine, config, options, [&](const Source& source) { return engine.load_module(source); },
          [&] { return upload_weights(engine.device(), weights, target_embedding); })) {}

Eagle3Head Eagle3Head::random(Engine& engine, const Eagle3Config& config,
                              const Eagle3Options& options, std::uint64_t seed) {
  const auto load = [&](const Source& source) { return engine.load_module(source); };
  return Eagle3Head(std::make_unique<State>(engine, config, options, load, [&] {
    const auto probe = load(probe_source(engine.device().info().arch));
    const Kernel fill = engine.device().kernel(probe->module, "fill_noise", 0);
    return random_weights(engine.device(), config, fill, seed);
  }));
}

void Eagle3Head::append(std::span<const std::int32_t> tokens, DevicePtr taps,
                        std::int64_t row_stride, StreamHandle stream) {
  State& s = *state_;
  const int width = s.config.num_taps() * s.config.target_hidden_size;
  const int most = max_rows();
  const auto rows = static_cast<int>(tokens.size());
  if (rows < 1 || rows > most || confirmed_ + rows > s.options.max_tokens) {
    throw InvalidArgument("cannot append to a draft head's sequence",
                          fmt::format("tokens={} slots={}", rows, confirmed_),
                          fmt::format("an append has 1 to {} tokens, the sequence up to {}", most,
                                      s.options.max_tokens));
  }
  if (row_stride != width) {
    throw InvalidArgument("taps with gaps", fmt::format("row_stride={}", row_stride),
                          fmt::format("rows of {} numbers follow each other", width));
  }
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < s.config.target_vocab_size) continue;
    throw InvalidArgument("no such token", fmt::format("id={}", token),
                          fmt::format("the vocabulary has {}", s.config.target_vocab_size));
  }
  s.ids.set(s.device, tokens, stream);
  s.run({s.config.hidden_size, width}, s.weights.fc, taps, s.fused.ptr(), rows, stream);
  s.forward({s.fused.ptr(), s.ids.ptr(), rows, confirmed_, 0}, stream);
  confirmed_ += rows;
  length_ = confirmed_;
}

void Eagle3Head::extend(std::int32_t token, StreamHandle stream) {
  State& s = *state_;
  const int chained = length_ - confirmed_;
  if (length_ < 1 || length_ >= s.options.max_tokens || chained >= kMaxChain - 1) {
    throw InvalidArgument("cannot extend a draft head's sequence",
                          fmt::format("slots={} chained={}", length_, chained),
                          fmt::format("it has 1 to {} slots, {} behind the last append at most",
                                      s.options.max_tokens - 1, kMaxChain - 2));
  }
  DevicePtr ids = s.chain.ptr() + static_cast<DevicePtr>(chained) * sizeof(int);
  if (token >= 0) {
    s.ids.set(s.device, std::span(&token, 1), stream);
    ids = s.ids.ptr();
  }
  s.forward({s.row_of(s.features, s.last_row), ids, 1, length_, chained + 1}, stream);
  ++length_;
}

int Eagle3Head::max_tokens() const { return state_->options.max_tokens; }
int Eagle3Head::max_rows() const {
  return std::max(state_->options.max_rows, state_->options.max_round);
}
const Eagle3Config& Eagle3Head::config() const { return state_->config; }
DevicePtr Eagle3Head::logits() const { return state_->logits.ptr(); }
DevicePtr Eagle3Head::chain() const { return state_->chain.ptr(); }
std::span<const std::int32_t> Eagle3Head::target_tokens() const {
  return state_->weights.target_tokens;
}
std::size_t Eagle3Head::weight_bytes() const {
  std::size_t sum = 0;
  for (const DeviceMem& one : state_->weights.memory) sum += one.bytes();
  return sum;
}
std::size_t Eagle3Head::cache_bytes() const { return state_->k.bytes() + state_->v.bytes(); }

}  // namespace attune
