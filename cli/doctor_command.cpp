#include <chrono>
#include <cstdlib>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/doctor_report.h"
#include "cli/file_system.h"
#include "common/error.h"
#include "jit/machine_limits.h"
#include "jit/source.h"
#include "jit/worker_process.h"

namespace attune {
namespace {

constexpr const char* kExamples = R"(Examples:
  attune doctor
  attune doctor --no-gpu --json
Exit codes: 0 all is well, 1 something is broken, 3 no usable GPU.)";

constexpr const char* kVariables[] = {
    "ATTUNE_CACHE",         "ATTUNE_CACHE_DIR", "ATTUNE_NVRTC",   "ATTUNE_CXX",
    "ATTUNE_WORKER",        "ATTUNE_PRESETS",   "XDG_CACHE_HOME", "HOME",
    "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH",  "NO_COLOR"};

struct DoctorFlags {
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

void check_compiler(const Workplace& workplace, Diagnosis* diagnosis) {
  const CompilerOrReason found = find_compiler(workplace.compilers(), kDefaultArch);
  diagnosis->nvrtc_problem = found.reason;
  if (found.compiler) {
    diagnosis->nvrtc_path = found.compiler->path();
    diagnosis->nvrtc_version = found.compiler->version();
  }
  const MachineLimits limits = machine_limits();
  diagnosis->num_cores = limits.cores;
  diagnosis->free_bytes = limits.free_bytes;
  diagnosis->num_workers = worker_count(limits.cores, limits.free_bytes);
  CompilePoolOptions options = workplace.pool_options(0);
  try {
    if (options.worker_path.empty()) options.worker_path = find_worker_program().string();
    CompilePool pool(options);
    diagnosis->worker_path = options.worker_path;
  } catch (const DeviceUnavailable& error) {
    diagnosis->worker_problem = error.what();
  }
  if (found.compiler && diagnosis->worker_problem.empty()) try_compile(options, diagnosis);
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
      diagnosis->cache_stats = TuneStore::open(file, [&](const std::string& warning) {
                                 diagnosis->cache_problem = warning;
                               })->stats();
    } else if (!diagnosis->cache_writable) {
      diagnosis->cache_problem = "it cannot be created there; name a file with --cache";
    }
  } catch (const Error& error) {
    diagnosis->cache_problem = error.what();
  }
}

int doctor(const Workplace& workplace, const DoctorFlags& flags) {
  Diagnosis diagnosis;
  diagnosis.gpu_checked = !flags.no_gpu;
  if (diagnosis.gpu_checked) check_gpu(&diagnosis);
  check_compiler(workplace, &diagnosis);
  check_cache(workplace, &diagnosis);
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
  command->add_flag("--no-gpu", flags->no_gpu, "Do not look for a driver or a GPU");
  command->add_flag("--json", flags->json, "Print the result as one JSON document");
  command->footer(kExamples);
  command->callback([=] { *action = [=] { return doctor(*workplace, *flags); }; });
}

}  // namespace attune
