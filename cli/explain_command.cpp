#include <memory>
#include <optional>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/explain_report.h"
#include "common/error.h"
#include "jit/host/host_info.h"

namespace attune {
namespace {

constexpr const char* kExamples = R"(Examples:
  attune explain decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16
  attune explain PROBLEM --arch sm_90a     limits of an architecture, without a GPU
  attune explain PROBLEM --gpu H200        a GPU that the cache has results of
  attune explain PROBLEM --device host     the CPU of this machine)";

struct ExplainFlags {
  std::string problem;
  std::string arch;
  std::string gpu;
  std::optional<DeviceChoice> device;
  bool json = false;
};

DeviceInfo find_gpu(const Workplace& workplace, const ExplainFlags& flags, const TuneStore& store) {
  if (!flags.gpu.empty()) return stored_gpu(store, flags.gpu);
  if (!flags.arch.empty()) return architecture_limits(flags.arch);
  const auto asked = flags.device ? flags.device : workplace.device_of_environment();
  const DeviceChoice choice = asked.value_or(DeviceChoice{});
  if (choice.host) return host_device_info(*choice.host);
  const auto devices = list_devices();
  if (devices.empty()) {
    workplace.log.note(fmt::format("no usable GPU: explaining for {}; --arch or --gpu name another",
                                   kDefaultArch));
    return architecture_limits(kDefaultArch);
  }
  if (choice.ordinal >= static_cast<int>(devices.size())) {
    throw DeviceUnavailable("there is no such GPU",
                            fmt::format("device={} devices={}", choice.ordinal, devices.size()),
                            "attune doctor lists them");
  }
  return devices[static_cast<std::size_t>(choice.ordinal)];
}

int explain(const Workplace& workplace, const ExplainFlags& flags) {
  const Problem problem = Problem::parse(flags.problem);
  if (!flags.arch.empty()) architecture_limits(flags.arch);  // a wrong one opens nothing
  const auto store = workplace.open_cache_if_present();
  const DeviceInfo gpu = find_gpu(workplace, flags, *store);
  const CompilerOrReason found = find_compiler(workplace.compilers(), gpu.arch);
  // The results of another machine were made with the compiler of that machine.
  const bool is_elsewhere = !flags.gpu.empty() || !found.compiler;
  const std::string version = is_elsewhere ? "" : found.compiler->version();
  const Explanation explanation = explain(Scene::of(*store, gpu, problem, version));
  if (flags.json) {
    print_json(explain_json(explanation));
  } else {
    print_text(explain_text(explanation));
  }
  return explanation.match == "none" ? kExitFailed : kExitDone;
}

}  // namespace

void add_explain_command(CLI::App* app, Workplace* workplace, Action* action) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command = app->add_subcommand(
      "explain", "What would be served for a problem and what became of every candidate");
  command->add_option("PROBLEM", flags->problem, "Problem text")->required();
  workplace->add_cache_flag(command);
  auto* arch = command->add_option("--arch", flags->arch, "An architecture instead of a GPU");
  auto* gpu = command->add_option("--gpu", flags->gpu, "A GPU of the cache, by part of its name");
  add_device_flag(command, &flags->device, "Device of this machine (default: GPU 0)")
      ->excludes(arch)
      ->excludes(gpu);
  arch->excludes(gpu);
  command->add_option("--alias", workplace->options.gpu_alias,
                      "A GPU of the cache whose winners serve where this one has none");
  command->add_flag("--json", flags->json, "Print the result as one JSON document");
  command->footer(kExamples);
  command->callback([=] { *action = [=] { return explain(*workplace, *flags); }; });
}

}  // namespace attune
