// A whole Gemma 4 text model: from token ids to logits. Weights, activations and caches are on the
// device; a step is launches alone, so that it can be captured.
//
//   Gemma4Model model(engine, checkpoint.config, checkpoint.weights, {.attention = {...}});
//   Gemma4Session session = model.open_session();
//   model.set_tokens(prompt, stream);  model.prefill(session, prompt.size(), stream);
//   session.commit(prompt.size(), stream);
//   model.set_tokens(next, stream);  model.verify(session, 1, stream);  session.commit(1, stream);
//
// runtime/generate.h is the loop of it.
//
// Calls enqueue on the caller's stream and do not wait, but for those that say so. A model is used by
// one thread at a time and on one stream: it has one set of activations.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "jit/device.h"
#include "runtime/drafter.h"
#include "runtime/gemma4_attention.h"
#include "runtime/model_config.h"
#include "runtime/weights.h"
#include "templates/linear_config.h"

namespace attune {

struct Gemma4ModelOptions {
  Gemma4Options attention;  // batch_sizes stay {1}
  // Residual streams that are kept for a drafter, ascending: 0 is the scaled embedding, k the stream
  // behind layer k - 1.
  std::vector<int> taps;
  // Of linear layers and the head; packed ones are made of a checkpoint's bf16 while it is loaded.
  LinearWeights weights = LinearWeights::kBf16;
};

class Gemma4Model {
 public:
  // Copies the weights to the device, and waits for it. `engine` has to outlive the model and must
  // not be sealed. Throws InvalidArgument for sizes that no kernel admits and for taps out of range, and
  // what Gemma4Attention throws.
  Gemma4Model(Engine& engine, const ModelConfig& config, const ModelTensors<TensorView>& weights,
              Gemma4ModelOptions options);
  // A model of this shape with random weights, the same for a seed on every device: for
  // measurements and tests. Matrices are made on the device.
  static Gemma4Model random(Engine& engine, const ModelConfig& config, Gemma4ModelOptions options,
                            std::uint64_t seed);
  Gemma4Model(Gemma4Model&&) noexcept;
  ~Gemma4Model();

  Gemma4Session open_session();

  // The ids of the next step's tokens, from host memory of any kind, page-locked too: they have been read
  // when it returns, so the memory is the caller's again. On the device they are replaced in the stream's
  // order, and stay until the next call. Not inside of a capture. Throws
  // InvalidArgument for ids out of the vocabulary, and for more than the longest step has.
  void set_tokens(std::span<const int> ids, StreamHandle stream);

  // A step of the session with the first num_tokens ids. Logits and best tokens are those behind
  // each of them, of a prefill behind the last one alone. The caller commits.
  void prefill(Gemma4Session& session, int num_tokens, StreamHandle stream);
  void verify(Gemma4Session& session, int num_tokens, StreamHandle stream);  // 1: a decode

  const ModelConfig& config() const;
  const Gemma4ModelOptions& options() const;
  Engine& engine() const;
  Device& device() const;
  DevicePtr embed_tokens() const;  // bf16 [vocab_size, hidden_size]
  DevicePtr logits() const;        // float [max_verify, vocab_size], after the softcap
  DevicePtr best() const;          // int [max_verify]: the first of the largest logits, or -1: NaN
  // The residual streams of the last step; no rows where none are kept.
  TargetFeatures features() const;
  std::size_t weight_bytes() const;
  std::size_t activation_bytes() const;
  std::size_t cache_bytes() const;
  // What serves each kind of layer, for a person; and what multiplies the linear layers of prefills, of
  // so many tokens.
  std::string explain() const;
  std::string prefill_text(int num_tokens) const;

 private:
  struct State;
  explicit Gemma4Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attune
