// The config.json of an EAGLE-3 draft head, in the form of vLLM's speculators.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "runtime/model_config.h"

namespace attune {

struct Eagle3Config {
  int hidden_size = 1;
  int target_hidden_size = 1;  // width of a tap
  int intermediate_size = 1;
  int num_q_heads = 1;
  int num_kv_heads = 1;
  int head_dim = 256;
  double rope_theta = 10000;
  double rms_norm_eps = 1e-6;
  int draft_vocab_size = 1;
  int target_vocab_size = 1;
  bool norm_before_residual = false;
  std::vector<int> taps;  // ascending; 0 is the scaled embedding, k the stream after layer k - 1

  int num_taps() const { return static_cast<int>(taps.size()); }
  // All pairs turn.
  RopeGeometry rope() const { return {rope_theta, head_dim / 2, head_dim, 1}; }

  // Throws InvalidArgument that names the key, its value and what is allowed.
  static Eagle3Config from_json(std::string_view text);
  // `path` is a config.json or a folder that has one. Throws as from_json does; the file is named.
  static Eagle3Config from_file(const std::filesystem::path& path);

  // Throws InvalidArgument, with both numbers, where the head was made for another model.
  void check_fits(const ModelConfig& target) const;

  friend bool operator==(const Eagle3Config&, const Eagle3Config&) = default;
};

}  // namespace attune
