#include "cli/presets.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// Of a preset file. What is longer is another file, or has no end.
constexpr std::size_t kMaxPresetBytes = std::size_t{1} << 20;

struct Heads {
  int num_q_heads;
  int num_kv_heads;
};

// The heads of one of `parts` GPUs.
Heads share_heads(const PresetLayer& layer, int parts) {
  const bool divides = layer.num_kv_heads % parts == 0;
  const bool replicates = parts % layer.num_kv_heads == 0;
  if (layer.num_q_heads % parts != 0 || (!divides && !replicates)) {
    throw InvalidArgument(
        "cannot share the heads of a layer",
        fmt::format("layer={} num_q_heads={} num_kv_heads={} tp={}", layer.name, layer.num_q_heads,
                    layer.num_kv_heads, parts),
        "--tp divides the q heads, and divides the KV heads or is a multiple of them");
  }
  return {layer.num_q_heads / parts, divides ? layer.num_kv_heads / parts : 1};
}

Problem problem_of(const PresetLayer& layer, const Heads& heads, Op op, int batch, int seqlen_q,
                   const KvRange& kv, DataType dtype) {
  return {.op = op,
          .batch = batch,
          .seqlen_q = seqlen_q,
          .kv = kv,
          .num_q_heads = heads.num_q_heads,
          .num_kv_heads = heads.num_kv_heads,
          .head_dim = layer.head_dim,
          .window = layer.window,
          .invariant = layer.invariant,
          .page_size = layer.page_size,
          .kv_layout = layer.kv_layout,
          .dtype = dtype};
}

// Problems without repetitions, in the order in which they come.
class ProblemList {
 public:
  void add(const Problem& problem) {
    problem.validate();
    if (seen_.insert(problem).second) problems_.push_back(problem);
  }
  std::vector<Problem> take() { return std::move(problems_); }

 private:
  std::vector<Problem> problems_;
  std::set<Problem> seen_;
};

bool is_file_name(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml");
}

std::set<std::string> preset_names(const std::vector<fs::path>& folders) {
  std::set<std::string> names;
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".yaml") names.insert(entry.path().stem().string());
    }
  }
  return names;
}

}  // namespace

Preset read_preset(const fs::path& file) {
  std::ifstream stream(file);
  if (!stream || fs::is_directory(file)) {
    throw InvalidArgument("cannot read the preset", fmt::format("file={}", file.string()),
                          "name a preset file that exists, or a preset of attune");
  }
  std::string text(kMaxPresetBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kMaxPresetBytes) {
    throw InvalidArgument(
        "cannot read the preset",
        fmt::format("file={} is longer than {} bytes", file.string(), kMaxPresetBytes),
        "name a preset file");
  }
  return parse_preset(text, file.string());
}

std::vector<Problem> expand(const Preset& preset, int tensor_parallel) {
  if (tensor_parallel < 1) {
    throw InvalidArgument("cannot share the heads", fmt::format("tp={}", tensor_parallel),
                          "--tp is 1 or more");
  }
  ProblemList problems;
  for (const PresetLayer& layer : preset.layers) {
    const Heads heads = share_heads(layer, tensor_parallel);
    for (const int batch : preset.batch) {
      for (const int seqlen_q : preset.seqlen_q) {
        const Op op = seqlen_q == 1 ? Op::kDecode : Op::kVerify;
        for (const KvRange& kv : layer.kv_ranges) {
          problems.add(problem_of(layer, heads, op, batch, seqlen_q, kv, preset.dtype));
        }
      }
      for (const int chunk : layer.prefill) {
        for (const KvRange& kv : layer.kv_ranges) {
          if (kv.max < chunk) continue;
          const KvRange holds_chunk{std::max(kv.min, chunk), kv.max};
          problems.add(
              problem_of(layer, heads, Op::kPrefill, batch, chunk, holds_chunk, preset.dtype));
        }
      }
    }
  }
  if (tensor_parallel > 1 && !preset.linear.layers.empty()) {
    throw InvalidArgument("cannot share linear layers",
                          fmt::format("model={} tp={}", preset.model, tensor_parallel),
                          "leave --tp out, or name a preset of attention alone");
  }
  for (const PresetLinearLayer& layer : preset.linear.layers) {
    LinearShape shape = layer.shape;
    for (const LinearWeights weights : layer.weights) {
      shape.weights = weights;
      for (const int tokens : preset.linear.tokens) {
        if (!shape.is_problem_of(tokens)) continue;
        problems.add(Problem::of_linear(tokens, shape));
      }
    }
  }
  return problems.take();
}

std::vector<fs::path> preset_folders() {
  std::vector<fs::path> folders;
  if (const char* named = std::getenv("ATTUNE_PRESETS"); named != nullptr && *named != '\0') {
    folders.emplace_back(named);
  }
  std::error_code error;
  const fs::path program = fs::canonical("/proc/self/exe", error);
  if (!error) {
    folders.push_back((program.parent_path() / "../share/attune/presets").lexically_normal());
  }
  return folders;
}

fs::path find_preset(const std::string& name_or_file, const std::vector<fs::path>& folders) {
  if (is_file_name(name_or_file)) return name_or_file;
  std::vector<std::string> looked_at;
  for (const fs::path& folder : folders) {
    const fs::path file = folder / (name_or_file + ".yaml");
    std::error_code error;
    if (fs::is_regular_file(file, error)) return file;
    looked_at.push_back(folder.string());
  }
  const std::set<std::string> known = preset_names(folders);
  throw InvalidArgument(
      "unknown preset",
      fmt::format("preset='{}' known={} looked at {}", name_or_file,
                  known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                  fmt::join(looked_at, ", ")),
      "use a known one, or a file: --preset path/to/mine.yaml");
}

}  // namespace attune
