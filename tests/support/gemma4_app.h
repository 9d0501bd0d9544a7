// An app around Gemma4Attention whose projections are made up: its tokens in the device's memory,
// and the same sequences in double.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "jit/device.h"
#include "runtime/gemma4_attention.h"
#include "tests/support/gemma4_oracle.h"

namespace attune {

// Its projections follow from its id. A wild one's keys and values are nothing like the others'.
struct Token {
  std::uint32_t id = 0;
  bool is_wild = false;
};

enum class Projection { kQ, kK, kV };

// A geometry, and norm weights with which scores have a standard deviation of about 1.5.
struct AppModel {
  explicit AppModel(Gemma4Geometry model);

  // bf16 [num_heads * head_dim] of a token, before any norm.
  std::vector<std::uint16_t> raw(int layer, Projection projection, Token token) const;

  void set_norm_weights(Gemma4Attention& attention) const;
  int num_layers() const { return static_cast<int>(geometry.layers.size()); }
  const LayerGeometry& layer(int idx) const {
    return geometry.layers[static_cast<std::size_t>(idx)];
  }

  Gemma4Geometry geometry;
  std::vector<std::vector<std::uint16_t>> q_norm, k_norm;  // bf16, of each layer
  // Real projections, in the place of noise.
  std::function<std::vector<std::uint16_t>(int layer, Projection projection, Token token)> given;
};

// A sequence in double: the rows that its caches should hold, and what attention over them gives.
class AppSequence {
 public:
  explicit AppSequence(const AppModel& model)
      : model_(&model), rows_(model.geometry.layers.size()) {}

  int length() const { return static_cast<int>(tokens_.size()); }
  void push(Token token);
  void cut(int length);
  // Of a layer for the token at `position`: [num_q_heads * head_dim], and the log-sum-exp of each
  // head's scores.
  oracle::Rows expected(int layer, int position) const;
  oracle::Rows expected_lse(int layer, int position) const;

 private:
  struct CacheRows {
    oracle::Rows k, v;
  };
  // A query and the rows that it sees.
  struct Seen {
    oracle::Rows q;
    std::span<const double> k, v;
  };
  Seen seen(int layer, int position) const;
  const AppModel* model_;
  std::vector<Token> tokens_;
  std::vector<CacheRows> rows_;  // of each layer that owns a cache
};

// Where the projections of a step lie in device memory: each in a buffer of its own, or as a fused
// projection gives them, with outputs that are apart too.
enum class Projections { kDense, kFused };

// Device buffers of the projections and outputs of every layer, at addresses that stay.
class StepBuffers {
 public:
  StepBuffers(Device& device, const AppModel& model, int batch, int max_tokens,
              Projections projections);

  // `tokens` has an entry of equally many tokens for each sequence. Poisons the outputs.
  void upload(const std::vector<std::vector<Token>>& tokens, StreamHandle stream);
  Gemma4LayerArgs args(int layer) const;
  // bf16 [batch, num_tokens, num_q_heads * head_dim] of the last upload. Waits.
  std::vector<std::uint16_t> output(int layer, StreamHandle stream) const;
  // [batch, num_tokens, num_q_heads]. Waits.
  std::vector<float> lse(int layer, StreamHandle stream) const;

 private:
  struct LayerBuffers {
    std::int64_t q_size, kv_size;  // elements of a token
    int num_kv;                    // projections of K and V: 2, 1 where they are one, 0
    std::int64_t raw_stride, out_stride;
    int num_q_heads;
    DeviceMem raw, out, lse;
  };
  std::int64_t offset(const LayerBuffers& layer, int projection) const;

  Device& device_;
  const AppModel& model_;
  int batch_, max_tokens_, num_tokens_ = 0;
  bool is_fused_;
  std::vector<LayerBuffers> layers_;
};

enum class Way { kPrefill, kDecode, kVerify };

// One layer's call of a session or a batch.
template <typename Sequences>
void run_layer(Sequences& sequences, Way way, int layer, int num_tokens,
               const Gemma4LayerArgs& args, StreamHandle stream) {
  if (way == Way::kPrefill) sequences.prefill(layer, num_tokens, args, stream);
  if (way == Way::kDecode) sequences.decode(layer, args, stream);
  if (way == Way::kVerify) sequences.verify(layer, num_tokens, args, stream);
}

// Largest error of the log-sum-exp of some of a sequence's rows; as output_error.
double lse_error(const std::vector<float>& lse, const AppSequence& sequence, int layer,
                 int batch_idx, int num_tokens, int first, const std::vector<int>& rows);

// Relative L2 error of some of a sequence's rows in an output: `rows` are tokens of the step, the
// first of which is at position `first` of `sequence`. Infinite when any row is not finite.
double output_error(const std::vector<std::uint16_t>& output, const AppSequence& sequence,
                    int layer, int batch_idx, int num_tokens, int first,
                    const std::vector<int>& rows);

}  // namespace attune
