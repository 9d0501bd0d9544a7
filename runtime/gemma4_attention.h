// The attention of a Gemma 4 model, for an app that has its own GEMMs and scheduler: caches, and
// for each layer one call from the raw q, k, v projections to the input of the output projection.
//
//   attune::Engine engine(attune::Options::from_environment());
//   attune::Gemma4Attention model(engine, attune::Gemma4Geometry::from_file("config.json"),
//                                 {.max_tokens = 32768, .max_prefill = 512, .max_verify = 8});
//   for (...) model.set_norm_weights(layer, q_norm, k_norm);
//   engine.seal();
//   attune::Gemma4Session session = model.open_session();
//   for (layer...) session.prefill(layer, 300, args, stream);   session.commit(300, stream);
//   for (layer...) session.decode(layer, args, stream);         session.commit(1, stream);
//   for (layer...) session.verify(layer, 5, args, stream);      session.commit(n, stream);
//
// A step is one such call for every layer, with the same number of tokens. Its tokens are in the
// caches at once and part of the sequence once they are committed; those that are not are forgotten
// without moving data. docs/gemma4-attention.md has graphs, batches and layouts.
//
// Calls enqueue on the caller's stream and never wait. One model's calls are made by one thread at
// a time, and its sessions' on one stream: they share a workspace. A Gemma4Batch has one of its
// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/attune.h"
#include "runtime/gemma4_geometry.h"
#include "templates/config.h"

namespace attune {

struct Gemma4Options {
  int max_tokens = 8192;               // longest sequence, its uncommitted tokens included
  int max_sequences = 1;               // sessions that are open at a time
  int max_prefill = 512;               // longest chunk of a prefill
  int max_verify = 8;                  // most tokens of a verify, 1 to 16
  std::vector<int> batch_sizes = {1};  // of batches; 1 is always there, for sessions
  // Of the global layers: contiguous or paged; unified or unified-paged where the model makes K and
  // V of one projection (attention_k_eq_v): 640 instead of 1024 numbers a token and KV head.
  KvLayout global_layout = KvLayout::kContiguous;
  int page_size = 64;  // of paged layouts: 16, 32, 64, 128 or 256
  int num_pages = 0;   // of all sequences together; 0: enough for max_sequences of max_tokens
  // decode and verify give a token the same bits whatever else is in its step
  // (templates/problem.h). Prefill is not part of it.
  bool invariant = false;
};

// What one layer's call reads and writes; device pointers to bf16, 16-byte aligned. A token's heads
// are contiguous; strides are in elements, multiples of 8; 0 is the dense default. Batch entry b
// has its tokens at b * num_tokens * token stride.
struct Gemma4LayerArgs {
  std::uint64_t q = 0;    // [batch, num_tokens, num_q_heads * head_dim]: q_proj, before its norm
  std::uint64_t k = 0;    // [batch, num_tokens, num_kv_heads * head_dim]: k_proj, before its norm;
                          // 0 for layers that read another layer's cache
  std::uint64_t v = 0;    // as k: v_proj; 0 for those layers and where K and V are one projection
  std::uint64_t out = 0;  // [batch, num_tokens, num_q_heads * head_dim]: the input of o_proj
  std::uint64_t lse = 0;  // float [batch, num_tokens, num_q_heads], natural log; 0: not written
  std::int64_t q_token_stride = 0, k_token_stride = 0, v_token_stride = 0, out_token_stride = 0;
  // Attention may read the lengths, the block table and older keys before the kernel in front of the step
  // has ended. Only where that kernel is the caller's own (none of begin, commit or assign came behind it),
  // and was launched in plain stream order or waits (griddepcontrol.wait) before it lets others start.
  bool overlap = false;
};

class Gemma4Session;
class Gemma4Batch;
enum class StepKind;

// One object per model shape: kernels, caches and norm weights. Has to outlive its sessions.
class Gemma4Attention {
 public:
  // Allocates the caches and prepares every kernel that the options allow. `engine` has to outlive
  // it. Throws InvalidArgument that names the option, and what Engine::prepare throws.
  Gemma4Attention(Engine& engine, Gemma4Geometry geometry, Gemma4Options options);
  ~Gemma4Attention();
  Gemma4Attention(const Gemma4Attention&) = delete;
  Gemma4Attention& operator=(const Gemma4Attention&) = delete;

  // bf16 weights [head_dim] of a layer's q_norm and k_norm on the host; k_norm is empty for layers
  // that read another layer's cache. Waits for the copy.
  void set_norm_weights(int layer, std::span<const std::uint16_t> q_norm,
                        std::span<const std::uint16_t> k_norm);

  // A sequence without tokens. Throws InvalidArgument when max_sequences are open.
  Gemma4Session open_session();
  // `size` is one of Options::batch_sizes. Allocates.
  Gemma4Batch make_batch(int size);

  const Gemma4Geometry& geometry() const;
  const Gemma4Options& options() const;
  std::size_t cache_bytes() const;      // of all sequences, allocated
  std::size_t workspace_bytes() const;  // of the sessions
  int free_pages() const;               // 0 for layouts without pages
  // What serves each kind of layer and number of tokens, for a person.
  std::string explain() const;

 private:
  friend class Gemma4Session;
  friend class Gemma4Batch;
  struct State;
  std::shared_ptr<State> state_;
};

// One sequence. Move-only; closing gives its place and pages back, also while it is in a batch:
// that has to be assigned anew.
class Gemma4Session {
 public:
  Gemma4Session() = default;
  Gemma4Session(Gemma4Session&&) noexcept;
  Gemma4Session& operator=(Gemma4Session&&) noexcept;
  ~Gemma4Session();

  // One layer of a step of num_tokens (decode: 1; verify: 2 to max_verify; prefill: 1 to the
  // largest chunk). The first layer's call of a step checks the limits and opens the step. Throws
  // InvalidArgument with the shapes; nothing is enqueued then.
  void prefill(int layer, int num_tokens, const Gemma4LayerArgs& args, void* stream);
  void decode(int layer, const Gemma4LayerArgs& args, void* stream);
  void verify(int layer, int num_tokens, const Gemma4LayerArgs& args, void* stream);

  // Opens a step whose layers a captured graph runs: checks the limits and gives the sequence the
  // pages it needs. Launches at most a few small kernels, not inside of a capture.
  void begin_step(int num_tokens, void* stream);
  // Ends the step: its first num_tokens tokens become part of the sequence, the others are
  // forgotten. 0 after a capture, which runs nothing. One small launch, not inside of a capture.
  void commit(int num_tokens, void* stream);
  // Cuts the sequence by its last num_tokens committed tokens. With sliding layers only as far as
  // their rings still hold the window; the error says how far. Pages that it needs no longer go
  // back, reserved ones too.
  void rollback(int num_tokens, void* stream);
  // Pages for num_tokens more than the sequence has, ahead of a capture.
  void reserve(int num_tokens, void* stream);

  int length() const;               // committed tokens
  int largest_step() const;         // tokens that the next step may have at most
  std::size_t cache_bytes() const;  // that this sequence occupies

 private:
  friend class Gemma4Attention;
  friend class Gemma4Batch;
  struct State;
  void run(int layer, StepKind kind, int num_tokens, const Gemma4LayerArgs& args, void* stream);
  std::shared_ptr<State> state_;
};

// Sequences of any lengths that take a step together, with the same number of tokens each. The
// object that graphs are captured on: its sequences may change between replays.
class Gemma4Batch {
 public:
  Gemma4Batch() = default;

  // `sessions` are as many as the batch has, all different. One small launch.
  void assign(std::span<Gemma4Session* const> sessions, void* stream);
  // As of a session.
  void prefill(int layer, int num_tokens, const Gemma4LayerArgs& args, void* stream);
  void decode(int layer, const Gemma4LayerArgs& args, void* stream);
  void verify(int layer, int num_tokens, const Gemma4LayerArgs& args, void* stream);
  void begin_step(int num_tokens, void* stream);
  // num_tokens of each sequence.
  void commit(std::span<const int> num_tokens, void* stream);

  int size() const;
  int largest_step() const;
  std::size_t workspace_bytes() const;

 private:
  friend class Gemma4Attention;
  struct State;
  void run(int layer, StepKind kind, int num_tokens, const Gemma4LayerArgs& args, void* stream);
  std::shared_ptr<State> state_;
};

}  // namespace attune
