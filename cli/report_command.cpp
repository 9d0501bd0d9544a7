// attune report: opens no device.
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/file_system.h"
#include "cli/tuning_report.h"
#include "cli/tuning_report_page.h"
#include "common/error.h"
#include "jit/host/host_info.h"

namespace attune {
namespace {

constexpr const char* kExamples = R"(Examples:
  attune report -o report.html
  attune report -o report.html --gpu H200 --preset gemma4-31b   also names what of the preset is missing
  attune bench PROBLEM --json > h200.json && attune report -o report.html --bench h200.json
  attune report --json
  attune report -o - > report.html
It opens no GPU and needs no driver.
Exit codes: 0 done, 1 the cache cannot be read or the file not be written, 2 usage.)";

struct ReportFlags {
  ProblemFlags problems;
  std::string gpu;
  std::string file;
  std::vector<std::string> bench;
  bool json = false;
};

// What this machine compares its own GPUs with.
std::vector<std::pair<std::string, Today>> today_here(const Workplace& workplace,
                                                      const TuneStore& store) {
  std::vector<DeviceInfo> devices = list_devices();
  devices.push_back(host_device_info());
  std::vector<std::pair<std::string, Today>> here;
  for (const DeviceInfo& device : devices) {
    if (store.winners(device.identity()).empty()) continue;
    const CompilerOrReason found = find_compiler(workplace.compilers(), device.arch);
    if (!found.compiler) continue;  // then its latest winner says more
    here.push_back({device.identity(), {device.driver_version, found.compiler->version(), true}});
  }
  return here;
}

TuningReport read_report(const Workplace& workplace, const ReportFlags& flags) {
  ReportScope scope;
  scope.gpu = flags.gpu;
  if (!flags.problems.is_default()) scope.problems = flags.problems.resolve();
  for (const std::string& file : flags.bench) scope.ceilings.push_back(read_ceilings(file));
  const auto store = workplace.open_cache_unchanged();
  scope.here = today_here(workplace, *store);
  TuningReport report = tuning_report(*store, scope);
  if (report.gpus.empty() && !flags.gpu.empty()) stored_gpus(*store, flags.gpu);  // throws
  report.cache_path = std::filesystem::absolute(workplace.cache_file()).string();
  return report;
}

std::string written_text(const TuningReport& report, const std::string& file) {
  std::size_t num_winners = 0, num_stale = 0, num_missing = 0;
  for (const ReportGpu& gpu : report.gpus) {
    num_winners += gpu.winners.size();
    num_missing += gpu.gaps.size();
    for (const ReportWinner& one : gpu.winners) num_stale += one.stale.empty() ? 0 : 1;
  }
  return fmt::format("{} of {}, {} stale, {} without one, in {}\n",
                     count_text(num_winners, "winner"), count_text(report.gpus.size(), "GPU"),
                     num_stale, count_text(num_missing, "problem"), file);
}

int report(const Workplace& workplace, const ReportFlags& flags) {
  if (flags.file.empty() && !flags.json) {
    throw InvalidArgument("no file is named for the report", "", "add -o report.html, or --json");
  }
  if (flags.file == "-" && flags.json) {
    throw InvalidArgument("two results for one output", "-o - --json",
                          "leave one out, or name a file with -o");
  }
  const TuningReport found = read_report(workplace, flags);
  if (flags.file == "-") {
    print_text(tuning_report_page(found, ATTUNE_VERSION));
    return kExitDone;
  }
  if (!flags.file.empty()) replace_file(flags.file, tuning_report_page(found, ATTUNE_VERSION));
  if (flags.json) {
    print_json(tuning_report_json(found));
  } else {
    print_text(written_text(found, flags.file));
  }
  return kExitDone;
}

}  // namespace

void add_report_command(CLI::App* app, Workplace* workplace, Action* action) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command =
      app->add_subcommand("report", "The whole cache as one HTML page: winners, times, rejections");
  command->add_option("-o,--output", flags->file, "File to write; - for stdout")->type_name("FILE");
  flags->problems.add_to(command);
  workplace->add_cache_flag(command);
  command->add_option("--gpu", flags->gpu, "GPUs of the cache, by part of their name");
  command
      ->add_option("--bench", flags->bench,
                   "Output of attune bench --json, whose rates give the floor; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("FILE");
  command->add_flag("--json", flags->json, "Print the result as one JSON document");
  command->footer(kExamples);
  command->callback([=] { *action = [=] { return report(*workplace, *flags); }; });
}

}  // namespace attune
