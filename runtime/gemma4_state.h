// What the classes of runtime/gemma4_attention.h hold.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "jit/device.h"
#include "runtime/gemma4_attention.h"
#include "runtime/page_pool.h"
#include "runtime/state_buffer.h"
#include "templates/params.h"
#include "templates/problem.h"

namespace attune {

enum class StepKind { kPrefill, kDecode, kVerify };
// A verify of one token is a decode.
constexpr StepKind kind_of_verify(int num_tokens) {
  return num_tokens == 1 ? StepKind::kDecode : StepKind::kVerify;
}

// What a handle of the public interface holds; InvalidArgument where it holds nothing.
template <typename T>
T& required(const std::shared_ptr<T>& state, const char* what) {
  if (state == nullptr) {
    throw InvalidArgument(std::string("this ") + what + " is empty", {},
                          "get one from Gemma4Attention");
  }
  return *state;
}

// Kernels of all layers of one shape.
struct LayerKernels {
  LayerGeometry geometry;  // without kv_layer
  KvLayout layout;
  bool owns_cache;
  int ring_rows = 0;  // of sliding layers
  std::shared_ptr<const LoadedModule> prologue_module;
  Kernel prologue;
  DeviceMem inverse_frequencies;                   // float [num_pairs]
  std::map<std::pair<int, int>, Attention> steps;  // decode and verify, by batch size and tokens
  std::map<int, Attention> prefills;               // by batch size
};

// K and V rows of one layer, of all sequences.
struct LayerCache {
  DeviceMem k, v;  // v is empty where rows are unified
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;  // elements; batch: or page
  std::size_t sequence_bytes = 0;  // that one sequence occupies; 0 where it has pages instead
  std::size_t page_bytes = 0;      // of one page, K and V
};

struct Layer {
  int kernels_idx = 0;
  int cache_layer = 0;
  std::vector<float> q_norm,
      k_norm;                    // as they were set; k_norm is empty where it is another layer's
  DeviceMem q_weight, k_weight;  // float [head_dim], as the prologue takes them
  bool has_weights = false;
};

// Memory of the launches of a batch size.
struct StepMemory {
  DeviceMem queries;  // of the attention kernels, as the prologue writes them
  DeviceMem workspace;
  std::size_t bytes() const { return queries.bytes() + workspace.bytes(); }
};

// One batch of sequences as a launch sees it.
struct StepTarget {
  int batch = 1;
  DevicePtr lengths = 0;    // int [batch], committed tokens
  DevicePtr sequences = 0;  // int [batch]
  const StepMemory* memory = nullptr;
};

struct Gemma4Attention::State {
  State(Engine& engine, Gemma4Geometry geometry, Gemma4Options options);

  void prepare_kernels();
  void allocate_caches();
  void upload_norm_weights(Layer& layer);
  StepMemory make_step_memory(int batch) const;
  const Attention& attention_of(const LayerKernels& kernels, StepKind kind, int batch,
                                int num_tokens) const;
  void run(const StepTarget& target, int layer, StepKind kind, int num_tokens,
           const Gemma4LayerArgs& args, StreamHandle stream) const;

  // Each throws InvalidArgument that says what is allowed.
  void require_layer(int layer) const;
  void require_prefill(int num_tokens) const;
  void require_verify(int num_tokens) const;
  // Throws InvalidArgument on a stream that is being captured.
  void require_no_capture(StreamHandle stream) const;
  // Most tokens of any step, by the options alone.
  int max_step() const;
  // Of a sequence with so many committed tokens.
  int largest_step(int length) const;
  int num_pages_of(int tokens) const;
  bool is_paged() const { return attune::is_paged(options.global_layout) && has_global; }
  std::size_t page_bytes() const;  // of all layers

  Engine& engine;
  Device& device;
  const Gemma4Geometry geometry;
  const Gemma4Options options;
  bool has_global = false;
  int smallest_ring_slack = 0;  // tokens that a step may have for the rings; 0: no rings

  std::vector<LayerKernels> kernels;
  std::vector<Layer> layers;
  std::map<int, LayerCache> caches;  // by the layer that owns it

  // Integers: the block table [max_sequences, pages_per_sequence], then of each place the committed
  // tokens, then the places themselves.
  int pages_per_sequence = 0;
  std::shared_ptr<const StateWriter> writer;
  std::unique_ptr<StateBuffer> integers;
  std::size_t length_at(int place) const;
  std::size_t place_at(int place) const;
  std::size_t page_at(int place, int page) const;  // of the block table

  PagePool pages{0};
  std::vector<bool> places_in_use;
  StepMemory memory;  // of the sessions
};

struct Gemma4Session::State {
  explicit State(std::shared_ptr<Gemma4Attention::State> of, int at);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Gives the place and the pages back; a batch that holds it still takes no more steps.
  void end() noexcept;
  // Checks and opens a step of the session's or batch's state `by`; its pages are in the block
  // table once the model's integers are flushed.
  void open(int num_tokens, const void* by);
  // Takes an open step back of which nothing has been launched.
  void abandon() noexcept;
  void require_opener(const void* by) const;
  void require_step(int num_tokens, const void* by) const;
  void require_not_ended() const;
  // Throws unless so many tokens of the open step can be committed.
  void require_commit(int num_tokens, const void* by) const;
  // Ends the open step; require_commit has passed.
  void close(int num_tokens);
  // All pages or none.
  void hold_pages_for(int tokens);
  // The pages behind the first `kept`, and what no flush has launched of their block table.
  void give_back_pages(int kept) noexcept;

  std::shared_ptr<Gemma4Attention::State> model;
  int place = 0;
  int length = 0;
  int written = 0;      // positions that were written since the sequence was empty, exclusive
  int open_tokens = 0;  // of the step that is open; 0: none
  const void* opened_by = nullptr;
  int written_before_step = 0;
  int pages_before_step = 0;
  bool has_ended = false;
  std::vector<int> pages;
};

struct Gemma4Batch::State {
  std::shared_ptr<Gemma4Attention::State> model;
  int size = 0;
  StepMemory memory;
  std::unique_ptr<StateBuffer> integers;  // lengths [size], then places [size]
  std::vector<std::shared_ptr<Gemma4Session::State>> sessions;

  StepTarget target() const;
  void write_lengths(StreamHandle stream);
};

}  // namespace attune
