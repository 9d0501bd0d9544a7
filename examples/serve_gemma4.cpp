// Serves the attention of a Gemma 4 model: a prompt in chunks, some decoded tokens, then a verify
// of drafted tokens, captured as a graph once and replayed. Projections are random; results of a
// sliding and of a global layer are checked against the formula.
//
//   attune-serve-gemma4 [DEVICE [config.json]]
//
// The device is the argument, else ATTUNE_DEVICE, else GPU 0; "host" needs no GPU. Without a file
// the model is a small one. Exit code: 0 right, 1 an error or a wrong result, 3 no GPU.
//
// Memory, streams and graphs are those of Engine::device(), so that the host device has them too.
// An application uses its own: cuMemAlloc, a CUstream, a graph of cuStreamBeginCapture.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "gemma4_reference.h"
#include "jit/device.h"
#include "runtime/attune.h"
#include "runtime/gemma4_attention.h"

namespace {

constexpr const char* kSmallModel = R"({
  "model_type": "gemma4_text", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "num_global_key_value_heads": 1, "attention_k_eq_v": true,
  "head_dim": 64, "global_head_dim": 128, "sliding_window": 32, "max_position_embeddings": 4096,
  "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
  "rms_norm_eps": 1e-6})";

constexpr int kChunk = 64;    // tokens of a prefill chunk
constexpr int kPrompt = 150;  // three chunks, the last one shorter; the small model's rings wrap
constexpr int kDecoded = 3;   // tokens decoded one by one
constexpr int kDrafted = 4;   // tokens of a verify
constexpr int kAccepted[] = {2, 4, 1, 3};  // of them, in each replay
constexpr int kMaxTokens = 192;

// One layer's buffers for a step, which the application's own GEMMs would write and read.
struct LayerBuffers {
  attune::DeviceMem q, k, v, out;
  attune::Gemma4LayerArgs args;
};

class Server {
 public:
  Server(attune::Engine& engine, const attune::Gemma4Geometry& geometry)
      : device_(engine.device()),
        geometry_(geometry),
        model_(engine, geometry,
               {.max_tokens = kMaxTokens, .max_prefill = kChunk, .max_verify = kDrafted}),
        session_(model_.open_session()),
        stream_(device_.create_stream()) {
    for (int i = 0; i < num_layers(); ++i) {
      add_inputs(i);
      add_buffers(i);
      const Gemma4Inputs& inputs = inputs_of(i);
      const bool owns = layer(i).owns_cache(i);
      model_.set_norm_weights(
          i, inputs.q_norm,
          owns ? std::span<const std::uint16_t>(inputs.k_norm) : std::span<const std::uint16_t>());
    }
  }
  std::string explain() const { return model_.explain(); }
  std::size_t cache_bytes() const { return session_.cache_bytes(); }
  int length() const { return session_.length(); }

  void prefill(int num_tokens) {
    write_tokens(num_tokens, num_tokens);
    for (int i = 0; i < num_layers(); ++i) {
      session_.prefill(i, num_tokens, buffers_[i].args, stream_.get());
    }
    finish_step(num_tokens);
  }

  void decode() {
    write_tokens(1, 1);
    for (int i = 0; i < num_layers(); ++i) session_.decode(i, buffers_[i].args, stream_.get());
    finish_step(1);
  }

  // Nothing runs in a capture, so none of its tokens is committed. With a paged layout the capture
  // needs pages of its step before it begins: session_.reserve(kDrafted, stream).
  void capture_verify() {
    graph_ = device_.capture(stream_.get(), [&] {
      for (int i = 0; i < num_layers(); ++i) {
        session_.verify(i, kDrafted, buffers_[i].args, stream_.get());
      }
    });
    session_.commit(0, stream_.get());
  }

  // The graph reads the length in device memory, so it serves every step.
  void replay_verify(int accepted) {
    write_tokens(kDrafted, accepted);
    session_.begin_step(kDrafted, stream_.get());
    device_.launch(graph_, stream_.get());
    finish_step(accepted);
  }

  void rollback(int num_tokens) { session_.rollback(num_tokens, stream_.get()); }
  double worst_error() const { return worst_error_; }

 private:
  int num_layers() const { return static_cast<int>(geometry_.layers.size()); }
  const attune::LayerGeometry& layer(int i) const { return geometry_.layers[i]; }
  // Layers of the same shape get the same projections: memory for a model of 60 layers.
  static auto shape_of(const attune::LayerGeometry& layer) {
    return std::tuple(layer.kind, layer.num_q_heads, layer.num_kv_heads, layer.head_dim,
                      layer.k_eq_v);
  }
  const Gemma4Inputs& inputs_of(int i) const { return inputs_.at(shape_of(layer(i))); }

  void add_inputs(int i) {
    const attune::LayerGeometry& shape = layer(i);
    Gemma4Inputs& inputs = inputs_[shape_of(shape)];
    if (!inputs.q.empty()) return;
    std::uint64_t seed = 10 * inputs_.size();
    const auto fill = [&](std::vector<std::uint16_t>* to, std::size_t count) {
      to->resize(count);
      step_fill(to->data(), count, 1.0f, ++seed);
    };
    const std::size_t dim = shape.head_dim;
    fill(&inputs.q, kMaxTokens * shape.num_q_heads * dim);
    fill(&inputs.k, kMaxTokens * shape.num_kv_heads * dim);
    if (!shape.k_eq_v) fill(&inputs.v, kMaxTokens * shape.num_kv_heads * dim);
    fill(&inputs.q_norm, dim);
    fill(&inputs.k_norm, dim);
  }

  void add_buffers(int i) {
    const attune::LayerGeometry& shape = layer(i);
    const std::size_t q_bytes = std::size_t{2} * kChunk * shape.num_q_heads * shape.head_dim;
    const std::size_t kv_bytes = std::size_t{2} * kChunk * shape.num_kv_heads * shape.head_dim;
    LayerBuffers& made = buffers_.emplace_back();
    const auto allocate = [&](attune::DeviceMem* mem, std::size_t bytes) {
      *mem = device_.allocate(bytes);
      return mem->ptr();
    };
    made.args.q = allocate(&made.q, q_bytes);
    made.args.out = allocate(&made.out, q_bytes);
    if (!shape.owns_cache(i)) return;  // it reads another layer's keys and values
    made.args.k = allocate(&made.k, kv_bytes);
    if (!shape.k_eq_v) made.args.v = allocate(&made.v, kv_bytes);
  }

  // Projections of the next num_tokens positions, of which `true_tokens` are the sequence's; the
  // others are drafts that will be rejected, and must leave no trace.
  void write_tokens(int num_tokens, int true_tokens) {
    const auto write = [&](const attune::DeviceMem& to, const std::vector<std::uint16_t>& rows) {
      if (to.bytes() == 0) return;
      const std::size_t row = rows.size() / kMaxTokens;
      std::vector<std::uint16_t> step(rows.begin() + length() * row,
                                      rows.begin() + (length() + num_tokens) * row);
      std::fill(step.begin() + true_tokens * row, step.end(), step_to_bf16(0.5f));
      device_.copy_to_device(to.ptr(), std::as_bytes(std::span(step)), stream_.get());
      device_.synchronize(stream_.get());  // before `step` goes
    };
    for (int i = 0; i < num_layers(); ++i) {
      write(buffers_[i].q, inputs_of(i).q);
      write(buffers_[i].k, inputs_of(i).k);
      write(buffers_[i].v, inputs_of(i).v);
    }
  }

  // Commits, then checks the last token that became part of the sequence.
  void finish_step(int num_tokens) {
    session_.commit(num_tokens, stream_.get());
    const int last_layer = num_layers() - 1;  // a global one in every Gemma 4
    for (const int i : {0, last_layer}) check(i, num_tokens - 1, length() - 1);
  }

  void check(int i, int row, int position) {
    const attune::LayerGeometry& shape = layer(i);
    std::vector<std::uint16_t> out(buffers_[i].out.bytes() / sizeof(std::uint16_t));
    device_.copy_to_host(std::as_writable_bytes(std::span(out)), buffers_[i].out.ptr(),
                         stream_.get());
    for (const int head : {0, shape.num_q_heads - 1}) {
      const auto expected =
          gemma4_attention_row(shape, geometry_.rms_norm_eps, inputs_of(i), position, head);
      const std::size_t at = (std::size_t{1} * row * shape.num_q_heads + head) * shape.head_dim;
      const double error = gemma4_row_error(&out[at], expected);
      if (!(error <= worst_error_)) worst_error_ = error;  // keeps a NaN
    }
  }

  attune::Device& device_;
  const attune::Gemma4Geometry geometry_;
  attune::Gemma4Attention model_;
  attune::Gemma4Session session_;
  attune::Stream stream_;
  attune::Graph graph_;
  std::map<std::tuple<attune::LayerKind, int, int, int, bool>, Gemma4Inputs> inputs_;
  std::vector<LayerBuffers> buffers_;
  double worst_error_ = 0;
};

int run(const char* device, const char* config) {
  attune::Options options = attune::Options::from_environment();
  if (device != nullptr) options.device = device;
  options.log = [](const std::string& message) { std::cerr << "attune: " << message << '\n'; };
  options.strict = true;
  attune::Engine engine(options);

  const auto geometry = config != nullptr ? attune::Gemma4Geometry::from_file(config)
                                          : attune::Gemma4Geometry::from_json(kSmallModel);
  Server server(engine, geometry);
  engine.seal();
  std::cout << server.explain();
  std::printf("caches     %.2f MiB for one sequence of %d tokens, %zu layers\n",
              server.cache_bytes() / 1048576.0, kMaxTokens, geometry.layers.size());

  for (int done = 0; done < kPrompt; done += kChunk) {
    server.prefill(std::min(kChunk, kPrompt - done));
  }
  std::printf("prefill    %d tokens in chunks of %d\n", server.length(), kChunk);
  for (int i = 0; i < kDecoded; ++i) server.decode();
  server.rollback(1);
  server.decode();
  std::printf("decode     %d tokens, the last one twice, length %d\n", kDecoded, server.length());
  server.capture_verify();
  for (const int accepted : kAccepted) {
    server.replay_verify(accepted);
    std::printf("verify     %d of %d drafts accepted, length %d\n", accepted, kDrafted,
                server.length());
  }

  const bool right = server.worst_error() <= kMaxRowError;
  std::printf("result     %s: largest relative error of a row %.2e, limit %.2e\n",
              right ? "right" : "WRONG", server.worst_error(), kMaxRowError);
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : nullptr, argc > 2 ? argv[2] : nullptr);
  } catch (const attune::DeviceUnavailable& error) {
    std::cerr << error.what() << '\n';
    return 3;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
