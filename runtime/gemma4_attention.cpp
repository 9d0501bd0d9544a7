#include "runtime/gemma4_attention.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "jit/source.h"
#include "runtime/gemma4_state.h"
#include "runtime/kv_rules.h"
#include "templates/prologue_config.h"
#include "templates/prologue_plan.h"
#include "tuner/reference.h"

namespace attune {
namespace {

[[noreturn]] void refuse_options(const std::string& values, const std::string& what_to_do) {
  throw InvalidArgument("cannot make the attention of this model", values, what_to_do);
}

void require_option(bool holds, const char* name, int value, const std::string& allowed) {
  if (!holds) {
    refuse_options(fmt::format("{}={}", name, value), fmt::format("{} is {}", name, allowed));
  }
}

Gemma4Options checked(Gemma4Options options, const Gemma4Geometry& geometry) {
  const int most_tokens = std::min(geometry.max_positions, kMaxRopePositions);
  require_option(options.max_tokens >= 1 && options.max_tokens <= most_tokens, "max_tokens",
                 options.max_tokens,
                 fmt::format("1 to the model's {} positions, at most {}", geometry.max_positions,
                             kMaxRopePositions));
  require_option(options.max_sequences >= 1 && options.max_sequences <= 65535, "max_sequences",
                 options.max_sequences, "1 to 65535");
  require_option(options.max_prefill >= 1 && options.max_prefill <= kMaxPrefillTokens,
                 "max_prefill", options.max_prefill, fmt::format("1 to {}", kMaxPrefillTokens));
  require_option(options.max_verify >= 1 && options.max_verify <= kMaxVerifyTokens, "max_verify",
                 options.max_verify, fmt::format("1 to {}", kMaxVerifyTokens));
  for (const int size : options.batch_sizes) {
    require_option(size >= 1 && size <= options.max_sequences, "batch_sizes", size,
                   "1 to max_sequences each");
  }
  require_option(options.num_pages >= 0, "num_pages", options.num_pages,
                 "0 (enough for all sequences), or a number of pages");
  if (options.global_layout == KvLayout::kRing) {
    refuse_options("global_layout=ring", "global layers see every key: they have no ring");
  }
  if (is_paged(options.global_layout)) {
    const auto size = static_cast<unsigned>(options.page_size);
    require_option(options.page_size >= kMinPageSize && options.page_size <= kMaxPageSize &&
                       std::has_single_bit(size),
                   "page_size", options.page_size, "16, 32, 64, 128 or 256");
  }
  options.batch_sizes.push_back(1);
  std::sort(options.batch_sizes.begin(), options.batch_sizes.end());
  options.batch_sizes.erase(std::unique(options.batch_sizes.begin(), options.batch_sizes.end()),
                            options.batch_sizes.end());
  if (!is_paged(options.global_layout)) {
    options.page_size = 0;
    options.num_pages = 0;
  }
  return options;
}

// Into the memory that is there already, where it is: captured graphs read it.
void upload(Device& device, const std::vector<float>& values, DeviceMem* to) {
  const std::size_t bytes = values.size() * sizeof(float);
  if (to->bytes() != bytes) *to = device.allocate(bytes);
  device.copy_to_device(to->ptr(), std::as_bytes(std::span(values)), nullptr);
  device.synchronize(nullptr);
}

std::vector<float> to_floats(std::span<const std::uint16_t> bf16) {
  std::vector<float> values;
  for (const std::uint16_t bits : bf16) values.push_back(bf16_to_float(bits));
  return values;
}

void require_tokens(const char* call, int num_tokens, int most) {
  if (num_tokens >= 1 && num_tokens <= most) return;
  throw InvalidArgument(fmt::format("cannot run a {}", call),
                        fmt::format("num_tokens={}", num_tokens),
                        fmt::format("it takes 1 to {} tokens (max_{})", most, call));
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace

Gemma4Attention::State::State(Engine& of, Gemma4Geometry model, Gemma4Options asked)
    : engine(of),
      device(of.device()),
      geometry(std::move(model)),
      options(checked(std::move(asked), geometry)),
      places_in_use(static_cast<std::size_t>(options.max_sequences)) {
  if (geometry.layers.empty()) refuse_options("layers=0", "read the geometry from a config.json");
  for (const LayerGeometry& layer : geometry.layers) {
    const bool global = layer.kind == LayerKind::kGlobal;
    has_global |= global;
    if (global && is_unified(options.global_layout) && !layer.k_eq_v) {
      refuse_options(fmt::format("global_layout={}", name_of(options.global_layout)),
                     "unified rows need K and V of one projection (attention_k_eq_v): use "
                     "contiguous or paged");
    }
    if (!global) {
      const int slack = largest_ring_step(ring_rows(layer.window, max_step()), layer.window);
      smallest_ring_slack = smallest_ring_slack == 0 ? slack : std::min(smallest_ring_slack, slack);
    }
  }
  prepare_kernels();
  allocate_caches();
  const int num_places = options.max_sequences;
  integers = std::make_unique<StateBuffer>(device, writer,
                                           std::size_t{1} * num_places * (pages_per_sequence + 2));
  for (int place = 0; place < num_places; ++place) {
    integers->set(place_at(place), place);
    integers->set(length_at(place), 0);
  }
  integers->flush(nullptr);
  memory = make_step_memory(1);
  device.synchronize(nullptr);
}

std::size_t Gemma4Attention::State::length_at(int place) const {
  return std::size_t{1} * options.max_sequences * pages_per_sequence + place;
}
std::size_t Gemma4Attention::State::page_at(int place, int page) const {
  return std::size_t{1} * place * pages_per_sequence + page;
}
std::size_t Gemma4Attention::State::place_at(int place) const {
  return length_at(place) + options.max_sequences;
}

void Gemma4Attention::State::require_layer(int layer) const {
  if (layer >= 0 && layer < static_cast<int>(layers.size())) return;
  throw InvalidArgument("no such layer", fmt::format("layer={}", layer),
                        fmt::format("the model has {}", layers.size()));
}

void Gemma4Attention::State::require_prefill(int num_tokens) const {
  require_tokens("prefill", num_tokens, options.max_prefill);
}

void Gemma4Attention::State::require_verify(int num_tokens) const {
  require_tokens("verify", num_tokens, options.max_verify);
}

void Gemma4Attention::State::require_no_capture(StreamHandle stream) const {
  if (!device.is_capturing(stream)) return;
  throw InvalidArgument("cannot change lengths inside a capture", {},
                        "a graph would set the same length at every replay: commit and roll back "
                        "after each replay, and commit(0) after the capture");
}

int Gemma4Attention::State::max_step() const {
  return std::max(options.max_prefill, options.max_verify);
}

int Gemma4Attention::State::largest_step(int length) const {
  int largest = std::min(max_step(), options.max_tokens - length);
  if (smallest_ring_slack > 0) largest = std::min(largest, smallest_ring_slack);
  return std::max(largest, 0);
}

int Gemma4Attention::State::num_pages_of(int tokens) const {
  return is_paged() ? ceil_div(tokens, options.page_size) : 0;
}

std::size_t Gemma4Attention::State::page_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [layer, cache] : caches) bytes += cache.page_bytes;
  return bytes;
}

void Gemma4Attention::State::prepare_kernels() {
  writer = [&] {
    auto loaded = std::make_shared<StateWriter>();
    const Source source = state_source();
    loaded->module = engine.load_module(source);
    loaded->kernel = device.kernel(loaded->module->module, source.symbols.front(), 0);
    return loaded;
  }();
  for (std::size_t idx = 0; idx < geometry.layers.size(); ++idx) {
    LayerGeometry shape = geometry.layers[idx];
    const bool owns_cache = shape.owns_cache(static_cast<int>(idx));
    layers.emplace_back().cache_layer = shape.kv_layer;
    shape.kv_layer = 0;
    const auto same = std::find_if(kernels.begin(), kernels.end(), [&](const LayerKernels& one) {
      return one.geometry == shape && one.owns_cache == owns_cache;
    });
    layers.back().kernels_idx = static_cast<int>(same - kernels.begin());
    if (same != kernels.end()) continue;

    LayerKernels& made = kernels.emplace_back();
    made.geometry = shape;
    made.owns_cache = owns_cache;
    const bool global = shape.kind == LayerKind::kGlobal;
    made.layout = global ? options.global_layout : KvLayout::kRing;
    if (!global) made.ring_rows = ring_rows(shape.window, max_step());
    // Refuses what the prologue cannot rotate, before anything is compiled.
    PrologueParams sizes{};
    sizes.batch = sizes.seqlen_q = 1;
    sizes.num_q_heads = shape.num_q_heads;
    sizes.num_kv_heads = shape.num_kv_heads;
    sizes.num_pairs = shape.rope.num_pairs;
    plan_prologue(shape.head_dim, made.layout, sizes);
    const Source source = prologue_source(shape.head_dim, made.layout);
    made.prologue_module = engine.load_module(source);
    made.prologue = device.kernel(made.prologue_module->module, source.symbols.front(), 0);
    std::vector<float> frequencies;
    for (int pair = 0; pair < shape.rope.num_pairs; ++pair) {
      frequencies.push_back(shape.rope.inverse_frequency(pair));
    }
    upload(device, frequencies, &made.inverse_frequencies);

    Problem problem;
    problem.num_q_heads = shape.num_q_heads;
    problem.num_kv_heads = shape.num_kv_heads;
    problem.head_dim = shape.head_dim;
    problem.window = shape.window;
    problem.kv_layout = made.layout;
    // Whole pages: an invariant problem serves contexts of its kv range, and is checked against
    // all rows that its pages have.
    const int pages_rows = num_pages_of(options.max_tokens) * options.page_size;
    const bool paged = attune::is_paged(made.layout);
    problem.kv = {1, paged ? std::min(pages_rows, kMaxKvLen) : options.max_tokens};
    problem.page_size = paged ? options.page_size : 0;
    for (const int batch : options.batch_sizes) {
      problem.batch = batch;
      problem.invariant = options.invariant;
      for (int tokens = 1; tokens <= options.max_verify; ++tokens) {
        problem.op = tokens == 1 ? Op::kDecode : Op::kVerify;
        problem.seqlen_q = tokens;
        made.steps.emplace(std::pair(batch, tokens), engine.prepare(problem.text()));
      }
      problem.op = Op::kPrefill;
      problem.invariant = false;
      problem.seqlen_q = options.max_prefill;
      made.prefills.emplace(batch, engine.prepare(problem.text()));
    }
  }
}

void Gemma4Attention::State::allocate_caches() {
  if (is_paged()) {
    pages_per_sequence = num_pages_of(options.max_tokens);
    const std::int64_t all = std::int64_t{1} * pages_per_sequence * options.max_sequences;
    const std::int64_t asked = options.num_pages > 0 ? options.num_pages : all;
    if (asked > std::numeric_limits<int>::max()) {
      refuse_options(fmt::format("num_pages={}", asked), "use larger pages, or fewer of them");
    }
    pages = PagePool(static_cast<int>(asked));
  }
  for (std::size_t idx = 0; idx < geometry.layers.size(); ++idx) {
    const LayerGeometry& layer = geometry.layers[idx];
    if (!layer.owns_cache(static_cast<int>(idx))) continue;
    const LayerKernels& shape = kernels[layers[idx].kernels_idx];
    const bool paged = attune::is_paged(shape.layout);
    const int rows = paged                             ? options.page_size
                     : shape.layout == KvLayout::kRing ? shape.ring_rows
                                                       : options.max_tokens;
    const std::size_t num_outer = paged ? static_cast<std::size_t>(pages.num_free())
                                        : static_cast<std::size_t>(options.max_sequences);
    LayerCache& cache = caches[static_cast<int>(idx)];
    cache.head_stride = kv_row_columns(shape.layout, layer.head_dim);
    cache.token_stride = cache.head_stride * layer.num_kv_heads;
    cache.batch_stride = cache.token_stride * rows;
    const std::size_t bytes = num_outer * cache.batch_stride * kBytesPerElement;
    cache.k = device.allocate(bytes);
    if (!is_unified(shape.layout)) cache.v = device.allocate(bytes);
    const std::size_t outer_bytes = (cache.k.bytes() + cache.v.bytes()) / num_outer;
    (paged ? cache.page_bytes : cache.sequence_bytes) = outer_bytes;
  }
}

StepMemory Gemma4Attention::State::make_step_memory(int batch) const {
  std::size_t query_elements = 0;
  std::size_t workspace_bytes = 0;
  for (const LayerKernels& one : kernels) {
    query_elements = std::max(query_elements, std::size_t{1} * batch * max_step() *
                                                  one.geometry.num_q_heads * one.geometry.head_dim);
    workspace_bytes = std::max(workspace_bytes, one.prefills.at(batch).workspace_bytes());
    for (int tokens = 1; tokens <= options.max_verify; ++tokens) {
      workspace_bytes = std::max(workspace_bytes, one.steps.at({batch, tokens}).workspace_bytes());
    }
  }
  StepMemory made;
  made.queries = device.allocate(query_elements * kBytesPerElement);
  if (workspace_bytes > 0) made.workspace = device.allocate(workspace_bytes);
  return made;
}

const Attention& Gemma4Attention::State::attention_of(const LayerKernels& one, StepKind kind,
                                                      int batch, int num_tokens) const {
  if (kind == StepKind::kPrefill) return one.prefills.at(batch);
  return one.steps.at({batch, num_tokens});
}

Gemma4Attention::Gemma4Attention(Engine& engine, Gemma4Geometry geometry, Gemma4Options options)
    : state_(std::make_shared<State>(engine, std::move(geometry), std::move(options))) {}

Gemma4Attention::~Gemma4Attention() = default;

void Gemma4Attention::set_norm_weights(int layer, std::span<const std::uint16_t> q_norm,
                                       std::span<const std::uint16_t> k_norm) {
  State& s = *state_;
  s.require_layer(layer);
  Layer& to = s.layers[layer];
  const LayerKernels& kernels = s.kernels[to.kernels_idx];
  const auto head_dim = static_cast<std::size_t>(kernels.geometry.head_dim);
  const std::size_t k_size = kernels.owns_cache ? head_dim : 0;
  if (q_norm.size() != head_dim || k_norm.size() != k_size) {
    throw InvalidArgument(
        "norm weights of the wrong size",
        fmt::format("layer={} q_norm={} k_norm={}", layer, q_norm.size(), k_norm.size()),
        fmt::format("q_norm has {} and k_norm {} numbers", head_dim, k_size));
  }
  to.q_norm = to_floats(q_norm);
  to.k_norm = to_floats(k_norm);
  if (!is_unified(kernels.layout)) return s.upload_norm_weights(to);
  // Queries carry the weights of the keys that they meet: those of the layer with the cache.
  for (Layer& reader : s.layers) {
    if (reader.cache_layer == to.cache_layer) s.upload_norm_weights(reader);
  }
}

// Waits until all that are needed have been set.
void Gemma4Attention::State::upload_norm_weights(Layer& layer) {
  if (layer.q_norm.empty()) return;
  std::vector<float> q_weight = layer.q_norm;
  if (is_unified(kernels[layer.kernels_idx].layout)) {
    const std::vector<float>& k_norm = layers[layer.cache_layer].k_norm;
    if (k_norm.empty()) return;
    q_weight = fold_unified_weights(q_weight, k_norm);
  }
  upload(device, q_weight, &layer.q_weight);
  if (!layer.k_norm.empty()) upload(device, layer.k_norm, &layer.k_weight);
  layer.has_weights = true;
}

const Gemma4Geometry& Gemma4Attention::geometry() const { return state_->geometry; }
const Gemma4Options& Gemma4Attention::options() const { return state_->options; }
std::size_t Gemma4Attention::workspace_bytes() const { return state_->memory.bytes(); }
int Gemma4Attention::free_pages() const { return state_->pages.num_free(); }

std::size_t Gemma4Attention::cache_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [layer, cache] : state_->caches) bytes += cache.k.bytes() + cache.v.bytes();
  return bytes;
}

std::string Gemma4Attention::explain() const {
  std::string lines;
  for (const LayerKernels& one : state_->kernels) {
    for (const auto& [key, attention] : one.steps) {
      lines += fmt::format("{}  {}\n", attention.problem_text(), attention.candidate_text());
    }
    for (const auto& [batch, attention] : one.prefills) {
      lines += fmt::format("{}  {}\n", attention.problem_text(), attention.candidate_text());
    }
  }
  return lines;
}

}  // namespace attune
