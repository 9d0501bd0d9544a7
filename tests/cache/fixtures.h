// Made-up rows and temporary folders for the tests of the cache.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <SQLiteCpp/SQLiteCpp.h>

#include "cache/tune_store.h"
#include "common/error.h"
#include "tests/support/temporary_folder.h"

namespace attune::testing {

using TempDir = TemporaryFolder;

// Collects warnings; usable from several threads.
class Warnings {
 public:
  Warn sink() {
    return [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      texts_.push_back(text);
    };
  }
  std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  std::size_t count() const { return texts().size(); }
  void clear() {
    const std::lock_guard lock(mutex_);
    texts_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

inline DeviceInfo sample_gpu() {
  DeviceInfo gpu;
  gpu.name = "Sample GPU";
  gpu.arch = "sm_90a";
  gpu.compute_major = 9;
  gpu.compute_minor = 0;
  gpu.num_sms = 132;
  gpu.memory_bytes = std::size_t{140} << 30;
  gpu.driver_version = "13.0";
  return gpu;
}

inline Toolchain sample_toolchain() {
  return {digest_of("template text"), "13.0", "--std=c++20 -default-device"};
}

inline Problem sample_problem() {
  return Problem::parse("verify/b1/q8/kv1-4096/h32x16/d256/w1024/ring/bf16");
}

inline Candidate sample_candidate() { return Candidate::parse("splitkv/m16n64s2w8/x33"); }

// A binary whose bytes and key follow from `name`.
inline Binary sample_binary(const std::string& name = "one") {
  Binary binary;
  binary.key = digest_of("inputs of " + name);
  for (int i = 0; i < 1000; ++i) {
    for (const char c : name) binary.cubin.push_back(static_cast<std::byte>(c + i % 7));
  }
  binary.content = digest_of(binary.cubin);
  binary.arch = "sm_90a";
  binary.compiler_version = "13.0";
  binary.options = "--std=c++20";
  binary.kernels = {{"splitkv_" + name, 128, 0, 0, 0, 1024}, {"combine_" + name, 40, 16, 8, 4, 0}};
  binary.notes = {"C7510: first", "C7511: second"};
  binary.log = "ptxas info: line 1\nptxas info: line 2";
  binary.compile_ms = 321.5;
  return binary;
}

inline Measurement sample_measurement(int kv_len, double median_us) {
  Measurement point;
  point.kv_len = kv_len;
  point.median_us = median_us;
  point.spread_us = 0.25;
  point.low_us = median_us - 0.5;
  point.high_us = median_us + 0.375;
  point.num_samples = 9;
  point.num_dropped = 2;
  point.sm_clock_mhz = 1980;
  point.memory_clock_mhz = 3201;
  point.throttle = "power+thermal";
  point.provisional = true;
  point.method = 1;
  point.driver_version = "13.0";
  point.created_at = "2026-01-02T03:04:05Z";
  return point;
}

inline Winner sample_winner(const Problem& problem = sample_problem()) {
  Winner winner;
  winner.problem = problem;
  winner.candidate = sample_candidate();
  winner.toolchain = sample_toolchain();
  winner.binary = sample_binary();
  winner.admission = {"cpu-double-1", 17, 1.5e-3, 4e-3, 0.02, "2026-01-02T03:04:05Z"};
  winner.measurements = {sample_measurement(problem.kv.min, 4.5),
                         sample_measurement(problem.kv.max, 12.25)};
  if (problem.kv.min == problem.kv.max) winner.measurements.pop_back();
  winner.worst_regret = 0.03;
  winner.runner_up = "splitkv/m16n32s2w4/x8";
  winner.margin_runner_up = 0.02;
  winner.default_candidate = "splitkv/m16n64s2w4/x1";
  winner.margin_default = 0.4;
  winner.margin_default_low = 0.375;
  winner.effort = "quick";
  winner.candidates = "0123456789abcdef";
  winner.method = 1;
  winner.driver_version = "13.0";
  winner.created_at = "2026-01-02T03:04:05Z";
  return winner;
}

// Whether the sample winner is found.
inline bool serves(const TuneStore& store) {
  return store.find_winner(sample_gpu(), sample_problem(), sample_toolchain()).has_value();
}

// Writes a cache file with the sample winner.
inline void make_cache(const std::filesystem::path& path) {
  TuneStore::open(path)->put_winner(sample_gpu(), sample_winner());
}

// The rows of every table as text, ids included: equal before and after a call that changes
// nothing.
// Only columns that another file has too, when it is given.
inline std::string dump(const std::filesystem::path& path,
                        const std::filesystem::path& columns_of = {}) {
  SQLite::Database db(path.string(), SQLite::OPEN_READWRITE, 10'000);
  SQLite::Database other(columns_of.empty() ? path.string() : columns_of.string());
  std::string text;
  for (const char* table :
       {"gpus", "problems", "candidates", "toolchains", "binaries", "binary_kernels", "admissions",
        "measurements", "winners", "rejections"}) {
    SQLite::Statement rows(db, std::string("SELECT * FROM ") + table);
    while (rows.executeStep()) {
      text += table;
      for (int i = 0; i < rows.getColumnCount(); ++i) {
        // The time of a use is this machine's own.
        if (std::string(rows.getColumnName(i)) == "used_at") continue;
        SQLite::Statement known(other, "SELECT count(*) FROM pragma_table_info(?) WHERE name = ?");
        known.bind(1, table);
        known.bind(2, rows.getColumnName(i));
        known.executeStep();
        if (known.getColumn(0).getInt() == 0) continue;
        text += "|" + rows.getColumn(i).getString();
      }
      text += "\n";
    }
  }
  return text;
}

// Runs statements on the file behind the store's back, without its rules.
inline void tamper(const std::filesystem::path& path, const std::string& sql) {
  SQLite::Database db(path.string(), SQLite::OPEN_READWRITE, 10'000);
  db.exec(sql);
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Names, modes and bytes of all files in a folder.
inline std::map<std::string, std::string> snapshot(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto mode = static_cast<int>(entry.status().permissions());
    files[entry.path().filename().string()] = std::to_string(mode) + read_file(entry.path());
  }
  return files;
}

// Names of the files in a folder that contain `part`.
inline std::vector<std::string> files_with(const std::filesystem::path& folder,
                                           const std::string& part) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.find(part) != std::string::npos) names.push_back(name);
  }
  return names;
}

// The damaged databases that were moved aside, without their logs.
inline std::vector<std::string> moved_aside(const std::filesystem::path& folder) {
  std::vector<std::string> names = files_with(folder, ".damaged-");
  std::erase_if(names, [](const std::string& name) { return name.ends_with("-wal"); });
  return names;
}

// The message of the CacheError that `work` throws, or what happened instead.
template <typename Work>
std::string cache_error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace attune::testing
