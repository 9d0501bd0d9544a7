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
#include <vector>

#include "common/error.h"

namespace attune {

class Device;
class Gemm;
struct LoadedModule;
struct Source;

// There is no winner (OnMiss::kError), or a strict engine was asked for a new problem after seal().
class NotPrepared : public Error {
 public:
  using Error::Error;
};

// What prepare does without an exact winner. A nearest one is served by every policy, and so is one
// of the GPU that gpu_alias names; but kTune tunes in place of the latter.
enum class OnMiss {
  kDefault,     // never tune: serve the default candidate, compile it if need be, and warn with the
                // command that tunes it
  kTune,        // tune now, inside prepare, with kernels running in worker processes
  kError,       // throw
  kBackground,  // serve the nearest or the default now; a worker process tunes, and Engine::swap()
                // takes the winner over
};

struct Options {
  int device_ordinal = 0;  // the GPU, where `device` is empty
  std::string device;      // "0", "host", "host+checks", ... (docs/cli.md); ATTUNE_DEVICE
  std::string cache_path;  // the SQLite file; empty: memory alone, nothing outlives the process
  // Caches beneath it that are only read, asked in this order after the file; ATTUNE_CACHE_BASE.
  std::vector<std::string> cache_bases;
  // Of the kernels in the file: more than that, and the longest unused go. 0: no limit.
  std::size_t cache_max_bytes = std::size_t{2} << 30;
  // A GPU of the same architecture, by name or identity, whose winners serve provisionally where
  // this one has none; ATTUNE_GPU_ALIAS.
  std::string gpu_alias;
  std::string nvrtc_path;  // library or folder; ATTUNE_NVRTC
  // libcublasLt, which multiplies a model's prefills on a GPU: library or folder, or "off";
  // ATTUNE_CUBLASLT. Empty: it is looked for, and missing costs speed and a warning; one that is named
  // has to be there.
  std::string cublaslt_path;
  std::string cxx_path;     // C++ compiler of the host device; ATTUNE_CXX
  std::string worker_path;  // attune-compile-worker; empty: beside the library
  OnMiss on_miss = OnMiss::kDefault;
  double tune_budget_s = 60;  // of one problem with OnMiss::kTune or kBackground
  // Kernel families ("splitkv", "swapab", "oneround", "wgmma", "wgrows", "tiled", "slices") that are
  // never picked: not as a winner, not as the nearest one, not as the default, and not by tuning. For
  // comparisons, or to be rid of one.
  std::vector<std::string> disabled_families;
  std::string tune_worker_path;     // attune-tune-worker; empty: beside the library
  std::string measure_worker_path;  // attune-measure-worker; empty: beside the library
  bool strict = false;              // after seal(), prepare() throws instead of doing late work
  // Warnings; none when empty. Called by one thread at a time, never by Attention::launch or by a
  // thread of the library; by a model's prefill where cuBLASLt refuses a product.
  std::function<void(const std::string&)> log;

  // Reads ATTUNE_CACHE, ATTUNE_CACHE_DIR, XDG_CACHE_HOME, HOME, ATTUNE_CACHE_BASE (paths separated
  // by colons), ATTUNE_CACHE_MAX_SIZE (500M, 2G), ATTUNE_GPU_ALIAS, ATTUNE_DEVICE, ATTUNE_NVRTC,
  // ATTUNE_CUBLASLT, ATTUNE_CXX,
  // ATTUNE_WORKER, ATTUNE_TUNE_WORKER, ATTUNE_MEASURE_WORKER, ATTUNE_DISABLE_FAMILIES (separated by
  // commas). The only place of the library that reads the environment.
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
  // The launch may begin before the kernel in front of it on the stream ends, and reads kv_len,
  // sequence, block_table and the keys older than the query tokens before that end. Only where that
  // kernel writes none of them, and every kernel behind those that do was launched in plain stream
  // order or waits for the one before it (griddepcontrol.wait) before it lets others start.
  bool overlap = false;
};

// How good a prepared answer is. A winner of the GPU that gpu_alias names is a nearest one at best.
enum class Served { kExact, kNearest, kDefault };

// A prepared problem. Cheap to copy; keeps its device and kernel alive, also beyond its Engine.
// Engine::swap() exchanges the kernel behind every copy; nothing else does.
class Attention {
 public:
  Attention() = default;

  // Enqueues on `stream` (CUstream; nullptr is the default stream). One table look-up and one or
  // two driver calls; no allocation, synchronisation or database access. Throws InvalidArgument
  // that names the argument and its value.
  void launch(const AttentionArgs& args, void* stream) const;

  // Never changes. While a problem is tuned in the background it is what the largest candidate
  // needs, so that a swapped kernel fits.
  std::size_t workspace_bytes() const;
  Served served() const;
  std::string problem_text() const;
  std::string candidate_text() const;
  // Some lines for a person: what is served, since when, how fast it was measured, what it beat.
  std::string explain() const;

 private:
  friend class Engine;
  friend class LinearLayers;
  struct Prepared;
  struct Slot;
  explicit Attention(std::shared_ptr<const Slot> slot);
  const Slot& slot() const;
  std::shared_ptr<const Slot> slot_;
};

struct Counters {
  std::uint64_t exact = 0, nearest = 0, defaults = 0;  // distinct problems prepared, by answer
  std::uint64_t compiles = 0;
  std::uint64_t late_prepares = 0;  // prepare calls after seal() that had to work
  std::uint64_t background_tunes = 0, background_failures = 0;  // problems, by how the worker ended
  std::uint64_t swaps = 0;                                      // winners that swap() took over
};

// Problems of OnMiss::kBackground.
struct BackgroundProgress {
  std::size_t waiting = 0;  // for a worker; one runs at a time
  std::size_t running = 0;
  std::size_t ready = 0;  // tuned: swap() takes their winners over
};

// What swap() did to one problem.
struct Swap {
  std::string problem;
  std::string from, to;  // candidates; equal where the one that was served has won
};

// The kernels that an engine serves at a moment. While it lives release_replaced() unloads none of
// them: who keeps captured graphs keeps the hold that was taken before the capture.
struct KernelHold {
  std::uint64_t generation = 0;  // Engine::generation() then
  std::shared_ptr<const void> kernels;
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
  // text again is a look-up. Linear layers are prepared by the model that has them.
  Attention prepare(std::string_view problem_text);
  // Ends preparation: closes the cache. Later prepare calls of known problems are look-ups; others
  // do late work, or throw when `strict`.
  void seal();
  bool sealed() const;

  // How far the background is. Warns of problems for which a worker found no winner; they stay as
  // they are and are not tried again by this engine. Waits for nothing.
  BackgroundProgress poll();
  // The one place where a kernel is exchanged: takes over the winners that are ready, also after
  // seal(). Loads modules and reads the cache, so no stream of the device may capture; throws
  // InvalidArgument when `stream` (CUstream) does. Later launches of every Attention of such a
  // problem use the winner; launches that were enqueued and graphs that were captured keep the
  // replaced kernel, which stays loaded.
  std::vector<Swap> swap(void* stream);
  // Another number after every swap() that exchanged a kernel: graphs that were captured before
  // launch replaced kernels and have to be captured again. Waits for nothing.
  std::uint64_t generation() const;
  KernelHold hold() const;
  // Unloads replaced kernels that no KernelHold has and returns how many problems they had served. The
  // caller answers for it that no other graph launches them and that every launch that began before
  // the swap has ended.
  std::size_t release_replaced();

  Counters counters() const;
  Device& device();
  // Digest of all prepared choices and their workspaces: equal on two ranks that serve from the
  // same cache.
  std::string choices_digest() const;

 private:
  friend class Eagle3Head;
  friend class Gemma4Attention;
  friend class Gemma4Model;
  friend class LinearLayers;
  // What prepare() hands out, of any problem.
  std::shared_ptr<const Attention::Slot> prepare_slot(std::string_view problem_text);
  // A kernel that is not tuned, from the cache or compiled. Throws as prepare does.
  std::shared_ptr<const LoadedModule> load_module(const Source& source);
  // What multiplies the prefills of a model; nullptr where there is nothing, with one warning where a
  // library is missing. Throws DeviceUnavailable where it is one that the options name.
  std::unique_ptr<Gemm> open_gemm();
  void warn(const std::string& message) const;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
