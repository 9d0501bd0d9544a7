#include "runtime/eagle3_weights.h"

#include <cmath>

#include "runtime/checkpoint.h"
#include "runtime/weight_memory.h"

namespace attune {

Eagle3Weights upload_weights(Device& device, const Eagle3Tensors<TensorView>& tensors,
                             DevicePtr target_embedding) {
  Eagle3Weights w;
  WeightUploader upload(device, {}, &w.memory);
  w.embed_tokens =
      tensors.embed_tokens.bytes.empty() ? target_embedding : upload.plain(tensors.embed_tokens);
  w.fc = upload.matrix({&tensors.fc});
  w.norm = upload.plain(tensors.norm);
  w.lm_head = upload.matrix({&tensors.lm_head});
  w.input_norm = upload.plain(tensors.input_norm);
  w.hidden_norm = upload.plain(tensors.hidden_norm);
  w.post_attention_norm = upload.plain(tensors.post_attention_norm);
  w.qkv_proj = upload.matrix({&tensors.q_proj, &tensors.k_proj, &tensors.v_proj});
  w.o_proj = upload.matrix({&tensors.o_proj});
  w.gate_up_proj = upload.matrix({&tensors.gate_proj, &tensors.up_proj});
  w.down_proj = upload.matrix({&tensors.down_proj});
  for (const std::int64_t token : target_tokens(tensors.d2t)) {
    w.target_tokens.push_back(static_cast<std::int32_t>(token));
  }
  device.synchronize(nullptr);
  return w;
}

int qkv_width(const Eagle3Config& config) {
  return config.head_dim * (config.num_q_heads + 2 * config.num_kv_heads);
}

Eagle3Weights random_weights(Device& device, const Eagle3Config& config, const Kernel& fill,
                             std::uint64_t seed) {
  Eagle3Weights w;
  WeightInventor make(device, fill, {}, seed, &w.memory);
  const int hidden = config.hidden_size;
  w.embed_tokens = make.plain(config.target_vocab_size, hidden);
  w.fc = make.matrix(hidden, std::int64_t{1} * config.num_taps() * config.target_hidden_size);
  w.norm = make.vector(hidden, 0, 3 / std::sqrt(hidden));
  w.lm_head = make.matrix(config.draft_vocab_size, hidden);
  w.input_norm = make.vector(hidden, 1, 0.2);
  w.hidden_norm = make.vector(hidden, 1, 0.2);
  w.post_attention_norm = make.vector(hidden, 1, 0.2);
  w.qkv_proj = make.matrix(qkv_width(config), 2 * hidden);
  w.o_proj = make.matrix(hidden, std::int64_t{1} * config.num_q_heads * config.head_dim);
  w.gate_up_proj = make.matrix(std::int64_t{2} * config.intermediate_size, hidden);
  w.down_proj = make.matrix(hidden, config.intermediate_size);
  const int step = config.target_vocab_size / config.draft_vocab_size;
  for (int id = 0; id < config.draft_vocab_size; ++id) w.target_tokens.push_back(id * step);
  device.synchronize(nullptr);
  return w;
}

}  // namespace attune
