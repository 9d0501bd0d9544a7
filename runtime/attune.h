// attune: serves tuned attention kernels. The public header: Engine prepares, Attention launches.
//
//   attune::Engine engine(attune::Options::from_environment());
//   attune::Attention decode =
//       engine.prepare("decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16");
//   engine.seal();                // from here on: no compile, load, allocation or database access
//   decode.launch(args, stream);  // safe in CUDA graph capture
//
// Every error is an attune::Error (common/error.h). docs/embedding.md says what a launch expects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/error.h"

namespace attune {

class Device;
struct LoadedModule;
struct Source;

// There is no winner (OnMiss::kError), or a strict engine was asked for a new problem after seal().
class NotPrepared : public Error {
 public:
  using Error::Error;
};

enum class OnMiss {
  kDefault,  // serve the default candidate, compile it if need be, and warn with the command that
             // tunes it
  kTune,     // tune now, inside prepare
  kError,    // throw
};

struct Options {
  int device_ordinal = 0;   // the GPU, where `device` is empty
  std::string device;       // "0", "host", "host+checks", ... (docs/cli.md); ATTUNE_DEVICE
  std::string cache_path;   // the SQLite file; empty: memory alone, nothing outlives the process
  std::string nvrtc_path;   // library or folder; ATTUNE_NVRTC
  std::string cxx_path;     // C++ compiler of the host device; ATTUNE_CXX
  std::string worker_path;  // attune-compile-worker; empty: beside the library
  OnMiss on_miss = OnMiss::kDefault;
  double tune_budget_s = 60;  // of one prepare with OnMiss::kTune
  bool strict = false;        // after seal(), prepare() throws instead of doing late work
  std::function<void(const std::string&)> log;  // warnings; none when empty. Never called by launch

  // Reads ATTUNE_CACHE, ATTUNE_CACHE_DIR, XDG_CACHE_HOME, HOME, ATTUNE_DEVICE,
  // ATTUNE_NVRTC, ATTUNE_CXX, ATTUNE_WORKER. The only place of the library that reads the
  // environment.
  static Options from_environment();
};

// What one launch reads and writes. Device pointers; strides in elements, head_dim is contiguous;
// every pointer to bf16 data is 16-byte aligned and every stride a multiple of 8 elements. A stride
// of 0 means the dense default: what the shape in the comment gives.
struct AttentionArgs {
  std::uint64_t q = 0;    // bf16 [batch, seqlen_q, num_q_heads, head_dim]
  std::uint64_t k = 0;    // bf16 [sequences, capacity, num_kv_heads, head_dim]; paged layouts:
                          // [pages, page_size, ...]; unified ones: rows of 640 (templates/config.h)
  std::uint64_t v = 0;    // bf16, as k; 0 for unified layouts
  std::uint64_t out = 0;  // bf16, as q
  std::uint64_t lse = 0;  // float [batch, seqlen_q, num_q_heads], natural log; 0: not written
  std::uint64_t kv_len =
      0;  // int32 [batch] in device memory: cached tokens including the query tokens
  std::uint64_t workspace =
      0;  // workspace_bytes(), 256-byte aligned, any content; not shared by concurrent launches
  std::int64_t capacity =
      0;  // KV rows per sequence: dense batch stride, the ring's modulus for the
          // ring layout, rows that a block table's row names for paged ones
  std::int64_t q_strides[3] = {0, 0, 0};  // batch, token, head
  std::int64_t k_strides[3] = {0, 0, 0};  // batch is a sequence, or a page
  std::int64_t v_strides[3] = {0, 0, 0};
  std::int64_t out_strides[3] = {0, 0, 0};
  float sm_scale = 1.0f;
  float softcap = 0.0f;  // > 0 for problems with softcap, 0 otherwise
  int seqlen_q = 0;      // of a prefill chunk, at most the problem's; 0: the problem's
  int kv_len_add = 0;    // added to every kv_len: seqlen_q, where kv_len counts the tokens before
  std::uint64_t sequence = 0;  // int32 [batch] in device memory: whose K/V and block table each
                               // batch entry reads; 0: its own
  std::uint64_t block_table =
      0;  // int32 [sequences, block_table_stride] in device memory: page ids;
          // entries past a sequence's last token are not read
  std::int64_t block_table_stride = 0;  // 0: capacity / page_size
};

// How good a prepared answer is.
enum class Served { kExact, kNearest, kDefault };

// A prepared problem. Cheap to copy; keeps its device and kernel alive, also beyond its Engine.
class Attention {
 public:
  Attention() = default;

  // Enqueues on `stream` (CUstream; nullptr is the default stream). One table look-up and one or
  // two driver calls; no allocation, synchronisation or database access. Throws InvalidArgument
  // that names the argument and its value.
  void launch(const AttentionArgs& args, void* stream) const;

  std::size_t workspace_bytes() const;
  Served served() const;
  std::string problem_text() const;
  std::string candidate_text() const;
  // Some lines for a person: what is served, since when, how fast it was measured, what it beat.
  std::string explain() const;

 private:
  friend class Engine;
  struct Prepared;
  explicit Attention(std::shared_ptr<const Prepared> prepared);
  const Prepared& prepared() const;
  std::shared_ptr<const Prepared> prepared_;
};

struct Counters {
  std::uint64_t exact = 0, nearest = 0, defaults = 0;  // distinct problems prepared, by answer
  std::uint64_t compiles = 0;
  std::uint64_t late_prepares = 0;  // prepare calls after seal() that had to work
};

// Finds, loads and keeps kernels for one device. Thread-safe.
class Engine {
 public:
  // Opens the device and the cache. Throws DeviceUnavailable when the device is a GPU and there is
  // no driver or no such GPU.
  explicit Engine(Options options);
  // Serves on a device of the caller's.
  Engine(Options options, std::unique_ptr<Device> device);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Finds the winner of a problem (exact, else nearest, else default), loads it. Preparing the same
  // text again is a look-up.
  Attention prepare(std::string_view problem_text);
  // Ends preparation: closes the cache. Later prepare calls of known problems are look-ups; others
  // do late work, or throw when `strict`.
  void seal();
  bool sealed() const;

  Counters counters() const;
  Device& device();
  // Digest of all prepared choices: equal on two ranks that serve from the same cache.
  std::string choices_digest() const;

 private:
  friend class Gemma4Attention;
  // A kernel that is not tuned, from the cache or compiled. Throws as prepare does.
  std::shared_ptr<const LoadedModule> load_module(const Source& source);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
