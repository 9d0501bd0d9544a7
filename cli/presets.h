// Presets: the problems of one model as a YAML file (docs/presets.md).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "templates/problem.h"

namespace attune {

struct PresetLayer {
  std::string name;
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int window = 0;  // 0: all
  KvLayout kv_layout = KvLayout::kContiguous;
  int page_size = 0;  // of the paged layouts
  bool invariant = false;
  std::vector<KvRange> kv_ranges;
  std::vector<int> prefill;  // longest chunks of prefills; empty: none
};

// Linear layers: each with every number of tokens and format of weights.
struct PresetLinearLayer {
  LinearShape shape;
  std::vector<LinearWeights> weights;  // those of all layers, or its own
};
struct PresetLinear {
  std::vector<int> tokens;
  std::vector<PresetLinearLayer> layers;
};

struct Preset {
  std::string model;
  DataType dtype = DataType::kBf16;
  std::vector<int> batch;
  std::vector<int> seqlen_q;
  std::vector<PresetLayer> layers;
  PresetLinear linear = {};
};

// Parses the text of a preset. Throws InvalidArgument that names `file`, the line and the key.
Preset parse_preset(const std::string& text, const std::string& file);

// Reads and parses a file. Throws InvalidArgument.
Preset read_preset(const std::filesystem::path& file);

// One problem for each combination of layer, batch, seqlen_q and kv range, then for each of layer,
// batch, prefill chunk and kv range, without repetitions, in the order of the file. A chunk counts
// among the tokens in the cache: ranges that end before it are left out, others begin at it at the
// earliest. Linear layers follow. `tensor_parallel` GPUs share the heads; where they outnumber the KV
// heads each holds a copy of one. Throws InvalidArgument when the heads cannot be shared like that, and
// where there are linear layers, which are not shared.
std::vector<Problem> expand(const Preset& preset, int tensor_parallel = 1);

// Where presets are looked for by name: ATTUNE_PRESETS, then the installation that the program is
// part of (the build tree is laid out like one).
std::vector<std::filesystem::path> preset_folders();

// The file of a preset: `name_or_file` itself when it has a '/' or ends in .yaml or .yml, else
// <name>.yaml in one of `folders`. Throws InvalidArgument that lists the known names and the places
// looked at.
std::filesystem::path find_preset(const std::string& name_or_file,
                                  const std::vector<std::filesystem::path>& folders);

}  // namespace attune
