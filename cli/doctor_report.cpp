#include "cli/doctor_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/json_forms.h"
#include "templates/linear_config.h"

namespace attune {
namespace {

bool has_gpu(const Diagnosis& diagnosis) {
  return diagnosis.driver.loaded && !diagnosis.devices.empty();
}

bool is_broken(const Diagnosis& diagnosis) {
  const bool host = diagnosis.host_asked && !diagnosis.host.problem.empty();
  const bool gpu = !diagnosis.host_asked &&
                   (!diagnosis.nvrtc_problem.empty() || !diagnosis.compile_problem.empty());
  const bool base = std::any_of(diagnosis.bases.begin(), diagnosis.bases.end(),
                                [](const auto& one) { return !one.problem.empty(); });
  return host || gpu || base || !diagnosis.worker_problem.empty() ||
         !diagnosis.cache_problem.empty();
}

std::string gpu_lines(const Diagnosis& diagnosis) {
  if (diagnosis.host_asked) return "driver       not checked (--device host)\n";
  if (!diagnosis.gpu_checked) return "driver       not checked (--no-gpu)\n";
  const DriverStatus& driver = diagnosis.driver;
  if (!driver.loaded) return fmt::format("driver       {}\n", driver.problem);
  std::string lines = fmt::format("driver       CUDA {} in {}\n", driver.version, driver.library);
  if (!driver.problem.empty()) lines += fmt::format("             {}\n", driver.problem);
  for (std::size_t i = 0; i < diagnosis.devices.size(); ++i) {
    const DeviceInfo& gpu = diagnosis.devices[i];
    lines += fmt::format("gpu {}        {} ({}), {} SMs, {}, driver {}{}\n", i, gpu.name, gpu.arch,
                         gpu.num_sms, bytes_text(gpu.memory_bytes), gpu.driver_version,
                         gpu.mig ? ", MIG" : "");
  }
  if (diagnosis.devices.empty()) lines += "gpu          none\n";
  return lines;
}

std::string host_lines(const HostDiagnosis& host) {
  if (!host.problem.empty()) return fmt::format("host         {}\n", host.problem);
  return fmt::format("host         {} in {}, {}; a compile and a launch work, {:.1f} s\n",
                     host.compiler, host.compiler_path,
                     count_text(static_cast<std::size_t>(host.num_cores), "core"), host.seconds);
}

std::string nvrtc_lines(const Diagnosis& diagnosis) {
  if (diagnosis.host_asked) return "";
  return diagnosis.nvrtc_problem.empty()
             ? fmt::format("nvrtc        {} in {}\n", diagnosis.nvrtc_version, diagnosis.nvrtc_path)
             : fmt::format("nvrtc        {}\n", diagnosis.nvrtc_problem);
}

// Nothing is broken without it.
std::string cublaslt_lines(const Diagnosis& diagnosis) {
  if (diagnosis.host_asked) return "";
  return diagnosis.cublaslt_problem.empty()
             ? fmt::format("cublaslt     {} in {}\n", diagnosis.cublaslt_version,
                           diagnosis.cublaslt_path)
             : fmt::format("cublaslt     models prefill {} tokens a pass over their weights: {}\n",
                           kMaxLinearTokens, diagnosis.cublaslt_problem);
}

std::string compiler_lines(const Diagnosis& diagnosis) {
  std::string lines = nvrtc_lines(diagnosis);
  lines +=
      fmt::format("worker       {}\n", diagnosis.worker_problem.empty() ? diagnosis.worker_path
                                                                        : diagnosis.worker_problem);
  lines += fmt::format("workers      {} at once, of {} with {} free\n", diagnosis.num_workers,
                       count_text(static_cast<std::size_t>(diagnosis.num_cores), "core"),
                       bytes_text(diagnosis.free_bytes));
  if (diagnosis.compile_arch.empty()) return lines;
  return lines + (diagnosis.compile_problem.empty()
                      ? fmt::format("compile      works for {}, {:.1f} s\n", diagnosis.compile_arch,
                                    diagnosis.compile_s)
                      : fmt::format("compile      {}\n", diagnosis.compile_problem));
}

std::string stats_line(const CacheStats& stats) {
  return fmt::format("             schema {}, {}: {}, {}, {}\n", stats.schema_version,
                     bytes_text(stats.file_bytes),
                     count_text(static_cast<std::size_t>(stats.num_winners), "winner"),
                     count_text(static_cast<std::size_t>(stats.num_binaries), "binary"),
                     count_text(static_cast<std::size_t>(stats.num_measurements), "measurement"));
}

std::string base_lines(const BaseDiagnosis& base) {
  std::string lines = fmt::format("base         {}\n", base.path);
  for (const std::string& text : {base.problem, base.remark}) {
    if (!text.empty()) lines += fmt::format("             {}\n", text);
  }
  return base.stats ? lines + stats_line(*base.stats) : lines;
}

std::string cache_lines(const Diagnosis& diagnosis) {
  if (diagnosis.cache_path.empty()) {
    return fmt::format("cache        {}\n", diagnosis.cache_problem);
  }
  std::string lines =
      fmt::format("cache        {}{}, {}\nfile system  {}\n", diagnosis.cache_path,
                  diagnosis.cache_exists ? "" : " (not there yet)",
                  diagnosis.cache_writable ? "writable" : "read-only", diagnosis.cache_file_system);
  if (!diagnosis.cache_problem.empty()) {
    lines += fmt::format("             {}\n", diagnosis.cache_problem);
  }
  if (diagnosis.cache_stats) lines += stats_line(*diagnosis.cache_stats);
  return lines;
}

Json base_json(const BaseDiagnosis& base) {
  const auto& stats = base.stats;
  return {{"path", base.path},
          {"problem", base.problem},
          {"remark", base.remark},
          {"schema", stats ? Json(stats->schema_version) : Json()},
          {"winners", stats ? Json(stats->num_winners) : Json()},
          {"binaries", stats ? Json(stats->num_binaries) : Json()}};
}

}  // namespace

int doctor_exit_code(const Diagnosis& diagnosis) {
  if (is_broken(diagnosis)) return kExitFailed;
  return diagnosis.gpu_checked && !has_gpu(diagnosis) ? kExitNoDevice : kExitDone;
}

std::string doctor_text(const Diagnosis& diagnosis) {
  std::string text = gpu_lines(diagnosis) + compiler_lines(diagnosis) + cublaslt_lines(diagnosis) +
                     host_lines(diagnosis.host) + cache_lines(diagnosis);
  for (const BaseDiagnosis& base : diagnosis.bases) text += base_lines(base);
  for (const auto& [name, value] : diagnosis.environment) {
    text += fmt::format("environment  {}={}\n", name, value);
  }
  switch (doctor_exit_code(diagnosis)) {
    case kExitFailed:
      return text + "something is broken: see above\n";
    case kExitNoDevice:
      return text +
             (diagnosis.host.problem.empty()
                  ? "no usable GPU: --device host works, and attune tune --compile-only\n"
                  : "no usable GPU: attune tune --compile-only works, timing and serving do not\n");
    default:
      return text + "all is well\n";
  }
}

Json doctor_json(const Diagnosis& diagnosis) {
  Json gpus = Json::array();
  for (const DeviceInfo& gpu : diagnosis.devices) gpus.push_back(to_json(gpu));
  Json cache = {{"path", diagnosis.cache_path},
                {"exists", diagnosis.cache_exists},
                {"writable", diagnosis.cache_writable},
                {"file_system", diagnosis.cache_file_system},
                {"problem", diagnosis.cache_problem},
                {"schema", Json()},
                {"winners", Json()},
                {"binaries", Json()}};
  if (diagnosis.cache_stats) {
    cache["schema"] = diagnosis.cache_stats->schema_version;
    cache["winners"] = diagnosis.cache_stats->num_winners;
    cache["binaries"] = diagnosis.cache_stats->num_binaries;
  }
  cache["bases"] = Json::array();
  for (const BaseDiagnosis& base : diagnosis.bases) cache["bases"].push_back(base_json(base));
  Json environment = Json::object();
  for (const auto& [name, value] : diagnosis.environment) environment[name] = value;
  return {{"gpu_checked", diagnosis.gpu_checked},
          {"driver",
           {{"loaded", diagnosis.driver.loaded},
            {"library", diagnosis.driver.library},
            {"version", diagnosis.driver.version},
            {"problem", diagnosis.driver.problem}}},
          {"gpus", gpus},
          {"nvrtc",
           {{"path", diagnosis.nvrtc_path},
            {"version", diagnosis.nvrtc_version},
            {"problem", diagnosis.nvrtc_problem}}},
          {"cublaslt",
           {{"path", diagnosis.cublaslt_path},
            {"version", diagnosis.cublaslt_version},
            {"problem", diagnosis.cublaslt_problem}}},
          {"worker",
           {{"path", diagnosis.worker_path},
            {"problem", diagnosis.worker_problem},
            {"workers", diagnosis.num_workers},
            {"cores", diagnosis.num_cores},
            {"free_bytes", diagnosis.free_bytes}}},
          {"compile",
           {{"arch", diagnosis.compile_arch},
            {"seconds", diagnosis.compile_s},
            {"problem", diagnosis.compile_problem}}},
          {"host",
           {{"compiler", diagnosis.host.compiler},
            {"path", diagnosis.host.compiler_path},
            {"cores", diagnosis.host.num_cores},
            {"seconds", diagnosis.host.seconds},
            {"problem", diagnosis.host.problem}}},
          {"cache", cache},
          {"environment", environment},
          {"exit_code", doctor_exit_code(diagnosis)}};
}

}  // namespace attune
