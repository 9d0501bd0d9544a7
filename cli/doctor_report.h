// The state of this machine as attune sees it, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/tune_store.h"
#include "cli/report.h"
#include "jit/cuda_device.h"

namespace attune {

// The host device, tried with one small kernel.
struct HostDiagnosis {
  std::string compiler, compiler_path;  // "g++ 12.2.0"
  std::string problem;                  // why it does not work
  int num_cores = 0;
  double seconds = 0;  // of the compile and the launch
};

// A base of the cache, opened as a store does.
struct BaseDiagnosis {
  std::string path;
  std::string problem;  // why it is left out
  std::string remark;
  std::optional<CacheStats> stats;
};

struct Diagnosis {
  bool gpu_checked = true;
  bool host_asked = false;  // --device host: only the host device has to work
  DriverStatus driver;
  std::vector<DeviceInfo> devices;

  std::string nvrtc_path, nvrtc_version, nvrtc_problem;
  std::string cublaslt_path, cublaslt_version, cublaslt_problem;
  std::string worker_path, worker_problem;
  int num_workers = 0;
  int num_cores = 0;
  std::size_t free_bytes = 0;
  std::string compile_arch, compile_problem;  // a trial compile through a worker
  double compile_s = 0;

  HostDiagnosis host;

  std::string cache_path, cache_file_system, cache_problem;
  bool cache_exists = false;
  bool cache_writable = false;
  std::optional<CacheStats> cache_stats;
  std::vector<BaseDiagnosis> bases;

  std::vector<std::pair<std::string, std::string>> environment;  // variables that are set
};

// 1 when something is broken, else 3 without a usable GPU, else 0. The host device may be missing
// where it was not asked for: a machine that serves needs no C++ compiler.
int doctor_exit_code(const Diagnosis& diagnosis);
std::string doctor_text(const Diagnosis& diagnosis);
Json doctor_json(const Diagnosis& diagnosis);

}  // namespace attune
