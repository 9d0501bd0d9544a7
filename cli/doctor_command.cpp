#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "cache/cache_directory.h"
#include "cli/commands.h"
#include "cli/doctor_report.h"
#include "cli/file_system.h"
#include "common/error.h"
#include "jit/cublaslt_library.h"
#include "jit/gemm.h"
#include "jit/host/host_info.h"
#include "jit/host_device.h"
#include "jit/machine_limits.h"
#include "jit/source.h"
#include "jit/worker_process.h"
#include "templates/params.h"

namespace attune {
namespace {

constexpr const char* kExamples = R"(Examples:
  attune doctor
  attune doctor --no-gpu --json
  attune doctor --device host     is everything here that the host device needs?
Exit codes: 0 all is well, 1 something is broken, 3 no usable GPU.)";

constexpr const char* kVariables[] = {"ATTUNE_CACHE",
                                      "ATTUNE_CACHE_DIR",
                                      "ATTUNE_CACHE_BASE",
                                      "ATTUNE_CACHE_MAX_SIZE",
                                      "ATTUNE_GPU_ALIAS",
                                      "ATTUNE_NVRTC",
                                      "ATTUNE_CUBLASLT",
                                      "ATTUNE_CXX",
                                      "ATTUNE_DEVICE",
                                      "ATTUNE_WORKER",
                                      "ATTUNE_MEASURE_WORKER",
                                      "ATTUNE_TUNE_WORKER",
                                      "ATTUNE_DISABLE_FAMILIES",
                                      "ATTUNE_PRESETS",
                                      "XDG_CACHE_HOME",
                                      "HOME",
                                      "CUDA_VISIBLE_DEVICES",
                                      "LD_LIBRARY_PATH",
                                      "NO_COLOR"};

struct DoctorFlags {
  std::optional<DeviceChoice> device;
  bool no_gpu = false;
  bool json = false;
};

void check_gpu(Diagnosis* diagnosis) {
  diagnosis->driver = query_driver();
  if (diagnosis->driver.loaded) diagnosis->devices = list_devices();
}

// One small compile through a worker process, as a tune does it.
void try_compile(const CompilePoolOptions& options, Diagnosis* diagnosis) {
  diagnosis->compile_arch =
      diagnosis->devices.empty() ? kDefaultArch : diagnosis->devices.front().arch;
  const auto start = std::chrono::steady_clock::now();
  try {
    CompilePool pool(options);
    diagnosis->num_workers = pool.num_workers();
    std::vector<CompileJob> jobs;
    jobs.push_back({0, probe_source(diagnosis->compile_arch), diagnosis->compile_arch});
    pool.run(std::move(jobs), [&](const CompileOutcome& outcome) {
      if (!outcome.binary) diagnosis->compile_problem = outcome.error;
    });
  } catch (const Error& error) {
    diagnosis->compile_problem = error.what();
  }
  diagnosis->compile_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The kernel writes memory that was zero.
void try_launch(const HostTarget& target, const Binary& binary) {
  constexpr std::size_t kBytes = 4096;
  const auto device = open_host_device({.target = target});
  const DeviceMem memory = device->allocate(kBytes);
  device->fill_bytes(memory.ptr(), 0, kBytes, nullptr);
  const Module module = device->load(binary);
  const FillParams params{reinterpret_cast<void*>(memory.ptr()), kBytes, 1};
  device->launch(device->kernel(module, "fill_noise", 0), {{1, 1, 1}, {256, 1, 1}, 0}, &params,
                 nullptr);
  std::vector<std::byte> written(kBytes);
  device->copy_to_host(written, memory.ptr(), nullptr);
  if (std::all_of(written.begin(), written.end(), [](std::byte b) { return b == std::byte{0}; })) {
    throw Error("a kernel of the host device wrote nothing");
  }
}

void check_host(const Workplace& workplace, const HostTarget& target, Diagnosis* diagnosis) {
  HostDiagnosis& host = diagnosis->host;
  host.num_cores = host_device_info(target).num_sms;
  const auto start = std::chrono::steady_clock::now();
  try {
    const auto compiler = open_compiler(workplace.compilers(), target.text());
    host.compiler = compiler->version();
    host.compiler_path = compiler->path();
    try_launch(target, compiler->compile(probe_source(target.text()), target.text()));
  } catch (const Error& error) {
    host.problem = error.what();
  }
  host.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void check_nvrtc(const Workplace& workplace, Diagnosis* diagnosis) {
  const CompilerOrReason found = find_compiler(workplace.compilers(), kDefaultArch);
  diagnosis->nvrtc_problem = found.reason;
  if (!found.compiler) return;
  diagnosis->nvrtc_path = found.compiler->path();
  diagnosis->nvrtc_version = found.compiler->version();
}

void check_cublaslt(const Workplace& workplace, Diagnosis* diagnosis) {
  if (workplace.options.cublaslt_path == kNoGemm) {
    diagnosis->cublaslt_problem = "ATTUNE_CUBLASLT=off";
    return;
  }
  try {
    const CublasLtLibrary library = open_cublaslt({workplace.options.cublaslt_path});
    diagnosis->cublaslt_path = library.path;
    diagnosis->cublaslt_version = library.version;
  } catch (const DeviceUnavailable& error) {
    diagnosis->cublaslt_problem = error.what();
  }
}

void check_workers(const Workplace& workplace, Diagnosis* diagnosis) {
  const MachineLimits limits = machine_limits();
  diagnosis->num_cores = limits.cores;
  diagnosis->free_bytes = limits.free_bytes;
  diagnosis->num_workers = worker_count(limits.cores, limits.free_bytes);
  CompilePoolOptions options = workplace.pool_options(0);
  try {
    if (options.worker_path.empty()) options.worker_path = find_worker_program().string();
    CompilePool pool(options);
    diagnosis->worker_path = options.worker_path;
    IsolatedMeasure(workplace.measure_options({}), {});  // its program
  } catch (const DeviceUnavailable& error) {
    diagnosis->worker_problem = error.what();
  }
  const bool has_nvrtc = !diagnosis->nvrtc_version.empty();
  if (has_nvrtc && diagnosis->worker_problem.empty()) try_compile(options, diagnosis);
}

// Looks without creating the file.
void check_cache(const Workplace& workplace, Diagnosis* diagnosis) {
  try {
    const std::filesystem::path file = workplace.cache_file();
    diagnosis->cache_path = file.string();
    diagnosis->cache_file_system = file_system_of(file);
    diagnosis->cache_writable = may_write(file);
    std::error_code error;
    diagnosis->cache_exists = std::filesystem::exists(file, error);
    if (diagnosis->cache_exists) {
      diagnosis->cache_stats = TuneStore::open_unchanged(file)->stats();
    } else if (!diagnosis->cache_writable) {
      diagnosis->cache_problem = "it cannot be created there; name a file with --cache";
    }
  } catch (const Error& error) {
    diagnosis->cache_problem = error.what();
  }
}

BaseDiagnosis diagnose_base(const std::string& path, const std::filesystem::path& cache) {
  BaseDiagnosis base;
  base.path = path;
  const auto identity = file_identity(path);
  if (identity && identity == file_identity(cache)) {
    base.problem = "it is the cache itself, and left out as a base";
    return base;
  }
  try {
    const auto store =
        TuneStore::open_base(path, [&](const std::string& text) { base.remark = text; });
    base.stats = store->stats();
  } catch (const Error& error) {
    base.problem = error.what();
  }
  return base;
}

int doctor(const Workplace& workplace, const DoctorFlags& flags) {
  Diagnosis diagnosis;
  const auto asked = flags.device ? flags.device : workplace.device_of_environment();
  const std::optional<HostTarget> host = asked.value_or(DeviceChoice{}).host;
  diagnosis.host_asked = host.has_value();
  diagnosis.gpu_checked = !flags.no_gpu && !host;
  if (diagnosis.gpu_checked) check_gpu(&diagnosis);
  if (!host) {
    check_nvrtc(workplace, &diagnosis);
    check_cublaslt(workplace, &diagnosis);
  }
  check_workers(workplace, &diagnosis);
  check_host(workplace, host.value_or(HostTarget{}), &diagnosis);
  check_cache(workplace, &diagnosis);
  for (const std::string& base : workplace.options.cache_bases) {
    diagnosis.bases.push_back(diagnose_base(base, diagnosis.cache_path));
  }
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) diagnosis.environment.emplace_back(name, value);
  }
  if (flags.json) {
    print_json(doctor_json(diagnosis));
  } else {
    print_text(doctor_text(diagnosis));
  }
  return doctor_exit_code(diagnosis);
}

}  // namespace

void add_doctor_command(CLI::App* app, Workplace* workplace, Action* action) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* command =
      app->add_subcommand("doctor", "Check driver, GPUs, compiler, cache and environment");
  workplace->add_cache_flag(command);
  auto* device = add_device_flag(command, &flags->device,
                                 "With host: look at what the host device needs, at no GPU");
  command->add_flag("--no-gpu", flags->no_gpu, "Do not look for a driver or a GPU")
      ->excludes(device);
  command->add_flag("--json", flags->json, "Print the result as one JSON document");
  command->footer(kExamples);
  command->callback([=] { *action = [=] { return doctor(*workplace, *flags); }; });
}

}  // namespace attune
