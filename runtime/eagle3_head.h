// An EAGLE-3 draft head on the device: one layer that joins a feature of the target with the token
// behind it. Slot p of its sequence is made of the feature of position p and of token p + 1, and
// proposes token p + 2.
// Source: Li et al., "EAGLE-3", 2025; vLLM's llama_eagle3 (Apache-2.0) has the same form.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "jit/device.h"
#include "runtime/attune.h"
#include "runtime/eagle3_config.h"
#include "runtime/weights.h"

namespace attune {

struct Eagle3Options {
  int max_tokens = 8192;  // slots
  int max_rows = 512;     // of an append
  int max_round = 16;     // rows of an append that is made ready as a step of its own, 1 to 16
};

// Enqueues on one stream and does not wait, but where it says so. One sequence.
class Eagle3Head {
 public:
  // Copies the weights to the device, and waits. `target_embedding` is the target's embed_tokens in
  // device memory, for heads that have none. `engine` has to outlive the head and must not be
  // sealed. Throws InvalidArgument for heads that the kernels do not serve, and what
  // Engine::prepare throws.
  Eagle3Head(Engine& engine, const Eagle3Config& config, const Eagle3Tensors<TensorView>& weights,
             DevicePtr target_embedding, const Eagle3Options& options);
  // A head of this shape with random weights, the same for a seed on every device; draft token i
  // is target token i * (target_vocab_size / draft_vocab_size).
  static Eagle3Head random(Engine& engine, const Eagle3Config& config, const Eagle3Options& options,
                           std::uint64_t seed);
  Eagle3Head(Eagle3Head&&) noexcept;
  ~Eagle3Head();

  // Slots with confirmed features: `taps` is bf16 [tokens, num_taps * target_hidden_size] at
  // `row_stride` elements, tokens[i] the token behind the position of row i. They follow the
  // confirmed slots, and take the place of those that extend() made.
  void append(std::span<const std::int32_t> tokens, DevicePtr taps, std::int64_t row_stride,
              StreamHandle stream);
  // A slot more, of the feature that the last slot left and of its best token, or of `token` where
  // that is not negative. At most kMaxChain - 1 times behind an append.
  void extend(std::int32_t token, StreamHandle stream);
  // Forgets all slots.
  void clear() { confirmed_ = length_ = 0; }

  static constexpr int kMaxChain = 64;

  int length() const { return length_; }        // slots
  int confirmed() const { return confirmed_; }  // of them, by append()
  int max_tokens() const;
  int max_rows() const;  // of an append
  const Eagle3Config& config() const;
  // Of the last slot.
  DevicePtr logits() const;  // float [draft_vocab_size]
  // Tokens of the target, of the first of the largest logits: that of the last append, then those of
  // the extends behind it.
  DevicePtr chain() const;
  // The target's token of each draft token.
  std::span<const std::int32_t> target_tokens() const;
  std::size_t weight_bytes() const;
  std::size_t cache_bytes() const;

 private:
  struct State;
  explicit Eagle3Head(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  int confirmed_ = 0;  // slots that append() made
  int length_ = 0;
};

}  // namespace attune
