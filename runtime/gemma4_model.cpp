#include "runtime/gemma4_model.h"

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "jit/model_source.h"
#include "runtime/device_pointer.h"
#include "runtime/gemma4_experts.h"
#include "runtime/gemma4_weights.h"
#include "runtime/linear_layers.h"
#include "runtime/per_layer_inputs.h"
#include "runtime/stream_kernels.h"
#include "runtime/token_ids.h"
#include "templates/model_plan.h"

namespace attune {
namespace {

void require_taps(const std::vector<int>& taps, int num_layers) {
  for (std::size_t i = 0; i < taps.size(); ++i) {
    if (taps[i] < 0 || taps[i] > num_layers || (i > 0 && taps[i] <= taps[i - 1])) {
      throw InvalidArgument("cannot keep these residual streams",
                            fmt::format("taps={}", fmt::join(taps, ",")),
                            fmt::format("they ascend from 0 to {}, each once", num_layers));
    }
  }
}

// The kernel that packs weights, where they are to be packed.
struct PackingKernel {
  PackingKernel(Device& device, LinearWeights weights, const LinearLayers::Load& load)
      : format{weights, {}} {
    if (weights == LinearWeights::kBf16) return;
    module = load(quantize_source());
    format.quantize = device.kernel(module->module, "quantize_int4", 0);
  }
  std::shared_ptr<const LoadedModule> module;
  MatrixFormat format;
};

}  // namespace

struct Gemma4Model::State {
  // Makes all that can refuse the model or its options before `make_weights` is called.
  using MakeWeights = std::function<Gemma4Weights(const MatrixFormat&)>;
  State(Engine& on, const ModelConfig& of, Gemma4ModelOptions asked, const LinearLayers::Load& load,
        const MakeWeights& make_weights);

  void make_activations();
  // What the linear layers of each layer are, and of the head.
  std::vector<LinearShape> linear_shapes() const;
  void step(Gemma4Session& session, bool is_prefill, int num_tokens, StreamHandle stream);
  void embed(int num_tokens, StreamHandle stream) const;
  void attend(Gemma4Session& session, int layer_idx, bool is_prefill, int num_tokens,
              StreamHandle stream) const;
  void feed_forward(int layer_idx, int num_tokens, StreamHandle stream) const;
  // h += norm(branch), then the normed input of what follows; 0: none.
  ResidualParams branch_params(DevicePtr post_norm, DevicePtr scalar, DevicePtr next_norm,
                               int tap) const;
  // That of a layer's last branch.
  ResidualParams last_branch_params(int layer_idx, DevicePtr post_norm) const;
  void add_branch(const ResidualParams& p, int num_tokens, StreamHandle stream) const {
    device.launch(kernels.residual, plan_residual(p.hidden, num_tokens), &p, stream);
  }
  void head(int first_token, int num_tokens, StreamHandle stream) const;
  ResidualParams residual_params(DevicePtr next_norm, int tap) const;
  void linear(LinearShape shape, DevicePtr weights_at, DevicePtr input, DevicePtr out,
              int num_tokens, StreamHandle stream) const {
    linears.run(shape,
                {.weights = weights_at,
                 .input = input,
                 .out = out,
                 .num_tokens = num_tokens,
                 .softcap = static_cast<float>(config.final_logit_softcap)},
                stream);
  }

  int qkv_width(int layer_idx) const;
  int longest_step() const {
    return std::max(options.attention.max_prefill, options.attention.max_verify);
  }

  Engine& engine;
  Device& device;
  const ModelConfig config;
  const Gemma4ModelOptions options;
  LinearLayers linears;
  StreamKernels kernels;
  Gemma4Attention attention;
  std::optional<PerLayerInputs> per_layer;
  std::optional<Gemma4Experts> experts;
  Gemma4Weights weights;

  // bf16 [longest step, ...]: the residual stream, its norm, what a branch adds, ...
  DeviceMem stream_rows, normed, branch, qkv, attended, activated, tapped;
  TokenIds ids;
  DeviceMem logits, best;
};

Gemma4Model::State::State(Engine& on, const ModelConfig& of, Gemma4ModelOptions asked,
                          const LinearLayers::Load& load, const MakeWeights& make_weights)
    : engine(on),
      device(engine.device()),
      config(of),
      options(std::move(asked)),
      linears(engine, linear_shapes(), options.weights),
      kernels(device, load, config.hidden_size()),
      attention(engine, config.geometry, options.attention) {
  require_taps(options.taps, config.num_layers());
  if (config.per_layer_input_size > 0) per_layer.emplace(device, load, config, longest_step());
  if (config.num_experts > 0) {
    experts.emplace(engine, load, config, options.weights, longest_step());
  }
  make_activations();
  linears.prefill_by(engine.open_gemm(), load, linear_shapes(), longest_step(),
                     [&on](const std::string& message) { on.warn(message); });
  const PackingKernel packing(device, options.weights, load);
  weights = make_weights(packing.format);
  for (int idx = 0; idx < config.num_layers(); ++idx) {
    const auto& layer = weights.layers[static_cast<std::size_t>(idx)];
    attention.set_norm_weights(idx, layer.q_norm, layer.k_norm);
  }
}

int Gemma4Model::State::qkv_width(int layer_idx) const {
  const LayerGeometry& layer = config.layer(layer_idx);
  const int kv_parts = !layer.owns_cache(layer_idx) ? 0 : layer.k_eq_v ? 1 : 2;
  return layer.head_dim * (layer.num_q_heads + kv_parts * layer.num_kv_heads);
}

std::vector<LinearShape> Gemma4Model::State::linear_shapes() const {
  const int hidden = config.hidden_size();
  std::vector<LinearShape> shapes;
  for (int idx = 0; idx < config.num_layers(); ++idx) {
    const LayerGeometry& layer = config.layer(idx);
    const int width = config.mlp_width(idx);
    shapes.push_back({qkv_width(idx), hidden});
    shapes.push_back({hidden, layer.num_q_heads * layer.head_dim});
    shapes.push_back({width, hidden, LinearEpilogue::kGeglu});
    shapes.push_back({hidden, width});
  }
  if (const int inputs = config.per_layer_input_size; inputs > 0) {
    shapes.push_back({config.num_layers() * inputs, hidden});
    shapes.push_back({inputs, hidden});
    shapes.push_back({hidden, inputs});
  }
  shapes.push_back({config.vocab_size, hidden, LinearEpilogue::kLogits});
  return shapes;
}

void Gemma4Model::State::make_activations() {
  const std::size_t tokens = static_cast<std::size_t>(longest_step());
  int widest_qkv = 0, widest_q = 0, widest_mlp = 0;
  for (int idx = 0; idx < config.num_layers(); ++idx) {
    widest_qkv = std::max(widest_qkv, qkv_width(idx));
    widest_q = std::max(widest_q, config.layer(idx).num_q_heads * config.layer(idx).head_dim);
    widest_mlp = std::max(widest_mlp, config.mlp_width(idx));
  }
  const auto rows = [&](int width) {
    return device.allocate(tokens * static_cast<std::size_t>(width) * kBytesPerElement);
  };
  stream_rows = rows(config.hidden_size());
  normed = rows(config.hidden_size());
  branch = rows(config.hidden_size());
  qkv = rows(widest_qkv);
  attended = rows(widest_q);
  activated = rows(widest_mlp);
  if (!options.taps.empty()) {
    tapped = rows(config.hidden_size() * static_cast<int>(options.taps.size()));
  }
  ids = TokenIds(device, tokens);
  const auto most = static_cast<std::size_t>(options.attention.max_verify);
  logits = device.allocate(most * static_cast<std::size_t>(config.vocab_size) * sizeof(float));
  best = device.allocate(most * sizeof(int));
}

ResidualParams Gemma4Model::State::residual_params(DevicePtr next_norm, int tap) const {
  ResidualParams p{};
  p.from = p.stream = pointer<uint16>(stream_rows.ptr());
  p.out = next_norm != 0 ? pointer<uint16>(normed.ptr()) : nullptr;
  p.from_stride = p.out_stride = config.hidden_size();
  p.next_weight = pointer<const uint16>(next_norm != 0 ? next_norm : weights.norm);
  p.hidden = config.hidden_size();
  p.eps = static_cast<float>(config.geometry.rms_norm_eps);
  const auto found = std::find(options.taps.begin(), options.taps.end(), tap);
  if (found != options.taps.end()) {
    p.tap = pointer<uint16>(tapped.ptr()) + (found - options.taps.begin()) * p.hidden;
    p.tap_stride = static_cast<int64>(options.taps.size()) * p.hidden;
  }
  return p;
}

void Gemma4Model::State::embed(int num_tokens, StreamHandle stream) const {
  ResidualParams p = residual_params(weights.layers.front().input_norm, 0);
  p.tokens = pointer<const int>(ids.ptr());
  p.embedding = pointer<const uint16>(weights.embed_tokens);
  p.embedding_scale = config.embedding_scale();
  device.launch(kernels.embedding, plan_residual(p.hidden, num_tokens), &p, stream);
}

ResidualParams Gemma4Model::State::branch_params(DevicePtr post_norm, DevicePtr scalar,
                                                 DevicePtr next_norm, int tap) const {
  ResidualParams p = residual_params(next_norm, tap);
  p.branch = pointer<const uint16>(branch.ptr());
  p.post_weight = pointer<const uint16>(post_norm);
  p.scalar = pointer<const uint16>(scalar);
  return p;
}

ResidualParams Gemma4Model::State::last_branch_params(int layer_idx, DevicePtr post_norm) const {
  const auto idx = static_cast<std::size_t>(layer_idx);
  const bool is_last = layer_idx + 1 == config.num_layers();
  const DevicePtr next_norm = is_last ? weights.norm : weights.layers[idx + 1].input_norm;
  return branch_params(post_norm, weights.layers[idx].layer_scalar, next_norm, layer_idx + 1);
}

void Gemma4Model::State::attend(Gemma4Session& session, int layer_idx, bool is_prefill,
                                int num_tokens, StreamHandle stream) const {
  const LayerGeometry& layer = config.layer(layer_idx);
  const Gemma4LayerWeights& w = weights.layers[static_cast<std::size_t>(layer_idx)];
  const int hidden = config.hidden_size();
  const int width = qkv_width(layer_idx);
  const int q_width = layer.num_q_heads * layer.head_dim;
  const int kv_width = layer.num_kv_heads * layer.head_dim;
  linear({width, hidden}, w.qkv_proj, normed.ptr(), qkv.ptr(), num_tokens, stream);
  Gemma4LayerArgs args;
  args.q = qkv.ptr();
  args.out = attended.ptr();
  args.q_token_stride = width;
  args.overlap =
      true;  // the projection waits before it lets the step begin, or is launched plainly
  if (layer.owns_cache(layer_idx)) {
    args.k = args.q + static_cast<DevicePtr>(q_width) * kBytesPerElement;
    args.k_token_stride = width;
    if (!layer.k_eq_v) {
      args.v = args.k + static_cast<DevicePtr>(kv_width) * kBytesPerElement;
      args.v_token_stride = width;
    }
  }
  if (is_prefill) {
    session.prefill(layer_idx, num_tokens, args, stream);
  } else if (num_tokens == 1) {
    session.decode(layer_idx, args, stream);
  } else {
    session.verify(layer_idx, num_tokens, args, stream);
  }
  linear({hidden, q_width}, w.o_proj, attended.ptr(), branch.ptr(), num_tokens, stream);
  const ResidualParams p = branch_params(w.post_attention_norm, 0, w.pre_feedforward_norm, -1);
  if (experts) return experts->enter(p, w, num_tokens, stream);
  add_branch(p, num_tokens, stream);
}

void Gemma4Model::State::feed_forward(int layer_idx, int num_tokens, StreamHandle stream) const {
  const Gemma4LayerWeights& w = weights.layers[static_cast<std::size_t>(layer_idx)];
  const int hidden = config.hidden_size();
  const int width = config.mlp_width(layer_idx);
  linear({width, hidden, LinearEpilogue::kGeglu}, w.gate_up_proj, normed.ptr(), activated.ptr(),
         num_tokens, stream);
  linear({hidden, width}, w.down_proj, activated.ptr(), branch.ptr(), num_tokens, stream);
  const ResidualParams p = per_layer ? branch_params(w.post_feedforward_norm, 0, 0, -1)
                                     : last_branch_params(layer_idx, w.post_feedforward_norm);
  if (experts) {
    experts->leave(p, w, num_tokens, stream);
  } else {
    add_branch(p, num_tokens, stream);
  }
  if (!per_layer) return;
  per_layer->run(linears, w, layer_idx, stream_rows.ptr(), branch.ptr(), num_tokens, stream);
  add_branch(last_branch_params(layer_idx, w.post_per_layer_input_norm), num_tokens, stream);
}

void Gemma4Model::State::head(int first_token, int num_tokens, StreamHandle stream) const {
  const int hidden = config.hidden_size();
  const DevicePtr input =
      normed.ptr() + static_cast<DevicePtr>(first_token) * hidden * kBytesPerElement;
  linear({config.vocab_size, hidden, LinearEpilogue::kLogits}, weights.lm_head, input, logits.ptr(),
         num_tokens, stream);
  const ArgmaxParams p{pointer<const float>(logits.ptr()), config.vocab_size, config.vocab_size,
                       nullptr, pointer<int>(best.ptr())};
  device.launch(kernels.argmax, plan_argmax(num_tokens), &p, stream);
}

void Gemma4Model::State::step(Gemma4Session& session, bool is_prefill, int num_tokens,
                              StreamHandle stream) {
  const int most = is_prefill ? options.attention.max_prefill : options.attention.max_verify;
  if (num_tokens < 1 || num_tokens > most) {
    throw InvalidArgument(is_prefill ? "cannot run a prefill" : "cannot run a verify",
                          fmt::format("num_tokens={}", num_tokens),
                          fmt::format("it takes 1 to {} tokens", most));
  }
  embed(num_tokens, stream);
  if (per_layer) {
    per_layer->prepare(linears, weights, ids.ptr(), stream_rows.ptr(), num_tokens, stream);
  }
  for (int idx = 0; idx < config.num_layers(); ++idx) {
    attend(session, idx, is_prefill, num_tokens, stream);
    feed_forward(idx, num_tokens, stream);
  }
  if (is_prefill) {
    head(num_tokens - 1, 1, stream);
  } else {
    head(0, num_tokens, stream);
  }
}

Gemma4Model::Gemma4Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Gemma4Model::Gemma4Model(Gemma4Model&&) noexcept = default;
Gemma4Model::~Gemma4Model() = default;

Gemma4Model::Gemma4Model(Engine& engine, const ModelConfig& config,
                         const ModelTensors<TensorView>& weights, Gemma4ModelOptions options)
    : state_(std::make_unique<State>(
          engine, config, std::move(options),
          [&](const Source& source) { return engine.load_module(source); },
          [&](const MatrixFormat& format) {
            return upload_weights(engine.device(), weights, format);
          })) {}

Gemma4Model Gemma4Model::random(Engine& engine, const ModelConfig& config,
                                Gemma4ModelOptions options, std::uint64_t seed) {
  const auto load = [&](const Source& source) { return engine.load_module(source); };
  return Gemma4Model(std::make_unique<State>(
      engine, config, std::move(options), load, [&](const MatrixFormat& format) {
        const auto probe = load(probe_source(engine.device().info().arch));
        const Kernel fill = engine.device().kernel(probe->module, "fill_noise", 0);
        return random_weights(engine.device(), config, fill, format, seed);
      }));
}

Gemma4Session Gemma4Model::open_session() { return state_->attention.open_session(); }

void Gemma4Model::set_tokens(std::span<const int> tokens, StreamHandle stream) {
  const int longest = state_->longest_step();
  if (tokens.empty() || tokens.size() > static_cast<std::size_t>(longest)) {
    throw InvalidArgument("cannot take these tokens", fmt::format("count={}", tokens.size()),
                          fmt::format("a step has 1 to {}", longest));
  }
  for (const int id : tokens) {
    if (id >= 0 && id < state_->config.vocab_size) continue;
    throw InvalidArgument("no such token", fmt::format("id={}", id),
                          fmt::format("the vocabulary has {}", state_->config.vocab_size));
  }
  state_->ids.set(state_->device, tokens, stream);
}

void Gemma4Model::prefill(Gemma4Session& session, int num_tokens, StreamHandle stream) {
  state_->step(session, true, num_tokens, stream);
}
void Gemma4Model::verify(Gemma4Session& session, int num_tokens, StreamHandle stream) {
  state_->step(session, false, num_tokens, stream);
}

const ModelConfig& Gemma4Model::config() const { return state_->config; }
const Gemma4ModelOptions& Gemma4Model::options() const { return state_->options; }
Engine& Gemma4Model::engine() const { return state_->engine; }
Device& Gemma4Model::device() const { return state_->device; }
DevicePtr Gemma4Model::embed_tokens() const { return state_->weights.embed_tokens; }
DevicePtr Gemma4Model::logits() const { return state_->logits.ptr(); }
DevicePtr Gemma4Model::best() const { return state_->best.ptr(); }
TargetFeatures Gemma4Model::features() const {
  const auto width =
      static_cast<std::int64_t>(state_->options.taps.size()) * state_->config.hidden_size();
  return {state_->tapped.ptr(), width};
}
std::size_t Gemma4Model::weight_bytes() const { return state_->weights.bytes(); }
std::size_t Gemma4Model::activation_bytes() const {
  const State& s = *state_;
  return s.stream_rows.bytes() + s.normed.bytes() + s.branch.bytes() + s.qkv.bytes() +
         s.attended.bytes() + s.activated.bytes() + s.tapped.bytes() + s.ids.bytes() +
         s.logits.bytes() + s.best.bytes() + s.attention.workspace_bytes() +
         s.linears.prefill_bytes() + (s.per_layer ? s.per_layer->bytes() : 0) +
         (s.experts ? s.experts->bytes() : 0);
}
std::size_t Gemma4Model::cache_bytes() const { return state_->attention.cache_bytes(); }
std::string Gemma4Model::explain() const {
  return fmt::format("{}linear layers of prefill: {}\n", state_->attention.explain(),
                     prefill_text(options().attention.max_prefill));
}
std::string Gemma4Model::prefill_text(int num_tokens) const {
  return state_->linears.prefill_text(num_tokens);
}

}  // namespace attune
