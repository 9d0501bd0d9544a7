// The tuning cache: winners, admissions, measurements, rejections and binaries in one SQLite file.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/records.h"

namespace attune {

struct WinnerHit {
  Winner winner;
  Match match;
  Freshness freshness;
  // Of the asked problem, and timed on the asked GPU.
  bool is_exact() const { return match == Match::kExact && freshness != Freshness::kOtherGpu; }
};

struct BinaryRow {
  Digest key;
  Digest content;
  std::string variant;  // text form
  std::string arch;
  std::string compiler_version;
  std::size_t cubin_bytes = 0;
  std::size_t stored_bytes = 0;  // zstd
  bool failed = false;           // a remembered compile failure
  double compile_ms = 0;
};

struct CacheStats {
  std::string path;
  int schema_version = 0;
  std::size_t file_bytes = 0;
  int num_gpus = 0, num_problems = 0, num_candidates = 0, num_binaries = 0, num_admissions = 0,
      num_measurements = 0, num_winners = 0, num_rejections = 0;
};

// What to open beside the file, and what limits it.
struct StoreOptions {
  // Read-only caches, asked in this order after the file; never written, no files appear beside
  // them. One that cannot be used is left out with one warning.
  std::vector<std::filesystem::path> bases = {};
  // Of all stored cubins; more than that and the longest unused go, winners' last. 0: no limit.
  std::size_t max_bytes = 0;
  // Name or identity of a GPU of the same architecture whose winners serve where the asked one has
  // none; they come back as Freshness::kOtherGpu.
  std::string gpu_alias = {};
};

struct ImportOptions {
  int timing_method = 0;            // today's; 0: the larger number is the better
  std::string driver_version = {};  // of the target; empty: not compared
};

// What VerifyReport names is broken or cannot be read by this program.
struct VerifyReport {
  std::string path;
  int num_binaries = 0, num_winners = 0;
  std::vector<std::string> problems;
};

// What to delete. Nothing is selected by an empty request.
struct PruneRequest {
  std::string gpu = {};                     // results of GPUs whose name contains it
  std::string problem = {};                 // text: results of this problem
  std::set<Digest> current_templates = {};  // if not empty: results of all other templates
  bool failures = false;                    // remembered compile failures
  std::optional<double> unused_days = {};   // binaries of no winner that were not used for so long
  std::optional<std::size_t> max_bytes =
      {};  // binaries until the rest fits, as StoreOptions::max_bytes
};
struct PruneResult {
  int winners = 0, measurements = 0, rejections = 0, binaries = 0, failures = 0;
  std::size_t bytes = 0;  // of cubins
};

struct ImportResult {
  int winners_added = 0;
  int winners_replaced = 0;
  int winners_kept = 0;
  int binaries_added = 0;
};

// Takes the text of one warning. The library prints nothing itself.
using Warn = std::function<void(const std::string&)>;

// Thread-safe: one connection behind a mutex. Several processes may share a file (WAL where the
// file system allows it, a rollback journal elsewhere). Throws CacheError for a file that cannot be
// used, never for a missing row. A file that turns out to be damaged is moved aside at any time, so
// damage reads as a miss. Each warning is given once; `warn` is called without a lock held.
class TuneStore {
 public:
  // Opens or creates `path` (folders too, mode 0700) and migrates it. A damaged file is moved aside
  // to <path>.damaged-<time> with one warning and a fresh one takes its place. A file that may not
  // be written is opened for reading: lookups work, every put throws CacheError. Throws CacheError
  // for a newer schema, a database of another program and a folder or file of another user.
  // An older schema is upgraded, after a copy as <path>.schema-<version>.
  static std::unique_ptr<TuneStore> open(const std::filesystem::path& path, Warn warn = {},
                                         StoreOptions options = {});
  static std::unique_ptr<TuneStore> open_in_memory(Warn warn = {}, StoreOptions options = {});
  // An existing file for a short look: it stays as it is byte for byte, and so do the files beside
  // it. An older schema is upgraded in memory. Throws CacheError.
  static std::unique_ptr<TuneStore> open_unchanged(const std::filesystem::path& path,
                                                   Warn warn = {}, StoreOptions options = {});
  // Its rows in memory, to try changes on them; the file stays as open_unchanged leaves it, and so do
  // those that are imported. path() is the file's. Throws CacheError.
  static std::unique_ptr<TuneStore> open_copy(const std::filesystem::path& path, Warn warn = {},
                                              StoreOptions options = {});
  // A file as the base of another cache, see StoreOptions::bases. Throws CacheError.
  static std::unique_ptr<TuneStore> open_base(const std::filesystem::path& path, Warn warn = {});
  // open(), and when that is not possible (missing, full, locked, newer) memory with one warning; the
  // same when the file fails later. What the file has is served as long as it can be read. A read-only file serves lookups and writes are
  // dropped with one warning. Never throws for a reason of the environment.
  static std::unique_ptr<TuneStore> open_or_memory(const std::filesystem::path& path,
                                                   Warn warn = {}, StoreOptions options = {});
  ~TuneStore();

  // Absolute path of the opened file; ":memory:" for memory. The latter also once a store of
  // open_or_memory has lost its file.
  std::string path() const;
  // The bases in use.
  std::vector<std::string> base_paths() const;
  bool is_in_memory() const;
  bool is_read_only() const;

  // Binaries, by the key of their inputs. `cubin` is checked against its digest on load: a damaged
  // one is a miss with a warning, and the next put replaces it. An intact one stays as it is.
  // Throws InvalidArgument when `content` is not the digest of `cubin`.
  void put_binary(const Binary& binary, const std::string& variant);
  // Does not replace a binary that compiled.
  void put_compile_failure(const Digest& key, const std::string& variant, const std::string& arch,
                           const std::string& compiler_version, const std::string& log);
  std::optional<Binary> find_binary(const Digest& key) const;
  // The log of a remembered failure.
  std::optional<std::string> find_compile_failure(const Digest& key) const;
  std::vector<BinaryRow> binaries() const;

  // Replaces the winner of (gpu, winner.problem, winner.toolchain.template_digest ...) in one
  // transaction, with its binary, admission and measurements. An empty created_at is now, an empty
  // driver_version is the GPU's.
  void put_winner(const DeviceInfo& gpu, const Winner& winner);
  // Exact problem, or the tightest kv range around problem.kv with all else equal, or (verify) the
  // smallest tuned seqlen_q above the asked one within twice of it. Rows of another toolchain are
  // misses, and so are rows whose binary is damaged. An empty gpu.driver_version and a
  // `timing_method` of 0 leave the freshness of that kind unchecked.
  std::optional<WinnerHit> find_winner(const DeviceInfo& gpu, const Problem& problem,
                                       const Toolchain& toolchain, int timing_method = 0) const;
  // NVRTC versions of the winners that may serve `gpu`, those of an alias included.
  std::set<std::string> compiler_versions(const DeviceInfo& gpu) const;
  // All winners, of one GPU when `gpu_identity` is given. Without cubins. Of a base only those that
  // nothing before it has.
  std::vector<std::pair<std::string, Winner>> winners(const std::string& gpu_identity = {}) const;

  // Measurements of every candidate of a problem; each is filed under the problem at the single
  // point kv_len, so problems with overlapping ranges share them. put replaces the earlier ones
  // inside problem.kv of the same GPU and toolchain. Candidates come back in the order of their
  // text, points by kv_len.
  void put_measurements(const DeviceInfo& gpu, const Problem& problem, const Toolchain& toolchain,
                        std::span<const CandidateMeasurements> measurements);
  std::vector<CandidateMeasurements> measurements(const DeviceInfo& gpu, const Problem& problem,
                                                  const Toolchain& toolchain) const;

  // Rejections of a problem; put replaces the earlier ones of the same toolchain.
  void put_rejections(const DeviceInfo& gpu, const Problem& problem, const Toolchain& toolchain,
                      std::span<const RejectionRecord> rejections);
  std::vector<RejectionRecord> rejections(const DeviceInfo& gpu, const Problem& problem,
                                          const Toolchain& toolchain) const;
  // All rejections of all GPUs, by gpu and problem. Of a base only those of tunes that nothing
  // before it has.
  std::vector<StoredRejection> all_rejections() const;

  // Of the file alone.
  CacheStats stats() const;
  // A consistent copy of the file's database as one file, complete or not there. Refuses to
  // overwrite.
  void export_to(const std::filesystem::path& path) const;
  // Adds what `path` has, in one transaction, with its times, drivers and GPUs as they are. Where
  // both have a row the better evidence stays: timed by today's method, by a later one, under the
  // target's driver, with the smaller relative error of the median (spread over time and root of the
  // samples), and last the more recent. Binaries whose digest does not match are left out with a
  // warning, and their winners with them. Throws CacheError when `path` is not an attune cache, has a
  // newer schema or is this file.
  ImportResult import_from(const std::filesystem::path& path, const ImportOptions& options = {});
  // Reads everything once: pages, references, texts, digests of cubins.
  VerifyReport verify() const;
  // Deletes rows of the file in one transaction and gives the space back; never those of bases.
  PruneResult prune(const PruneRequest& request);

 private:
  friend class Tiers;
  struct State;
  explicit TuneStore(std::unique_ptr<State> state);
  template <typename OpenFile>
  static std::unique_ptr<TuneStore> around(OpenFile&& open_file, const std::filesystem::path& path,
                                           const Warn& warn, StoreOptions options);
  std::unique_ptr<State> state_;
};

// The paths of a list separated by colons, empty ones left out.
std::vector<std::filesystem::path> split_paths(const std::string& list);
// Bytes of "500M", "2G", "0": a number with K, M, G or T of 1024. Throws InvalidArgument.
std::size_t parse_size(const std::string& text);

// Where the cache lives: `explicit_path`, else cache_dir/tune.db (ATTUNE_CACHE_DIR), else
// xdg_cache_home/attune/tune.db, else home/.cache/attune/tune.db. Empty when nothing is set. The
// last two count only when absolute, so the cache never lands in the working directory. Pure.
std::filesystem::path cache_path(const std::string& explicit_path, const std::string& cache_dir,
                                 const std::string& xdg_cache_home, const std::string& home);

}  // namespace attune
