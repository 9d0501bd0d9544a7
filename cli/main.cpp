// attune: the command line. Flags in, tables out; errors become one line and an exit code.
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include <fmt/format.h>

#include "cli/commands.h"
#include "common/error.h"

namespace attune {
namespace {

constexpr const char* kExamples = R"(Examples:
  attune doctor                    is everything here that attune needs?
  attune tune --preset gemma4-31b  find and store the fastest kernels for this GPU
  attune cache export tune.db      one file with all results, to copy to other machines
  attune explain PROBLEM           what would be served, and why
  attune report -o report.html     the whole cache as one page
Exit codes: 0 done, 1 failed, 2 usage, 3 no usable GPU or driver, 4 the budget ended first.)";

std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  const CLI::App* asked = app;
  while (!asked->get_subcommands().empty()) asked = asked->get_subcommands().front();
  std::string name = asked->get_name();
  for (const CLI::App* parent = asked->get_parent(); parent != nullptr;
       parent = parent->get_parent()) {
    name = parent->get_name() + " " + name;
  }
  return fmt::format("attune: {}; see {} --help\n", error.what(), name);
}

int run(int argc, char** argv) {
  Workplace workplace;
  Action action;
  CLI::App app("attune tunes attention kernels for the GPU in front of it and serves the fastest.",
               "attune");
  app.set_version_flag("--version", "attune " ATTUNE_VERSION);
  app.require_subcommand(1);
  app.footer(kExamples);
  app.failure_message(usage_message);
  add_tune_command(&app, &workplace, &action);
  add_cache_command(&app, &workplace, &action);
  add_bench_command(&app, &workplace, &action);
  add_explain_command(&app, &workplace, &action);
  add_check_command(&app, &workplace, &action);
  add_generate_command(&app, &workplace, &action);
  add_report_command(&app, &workplace, &action);
  add_doctor_command(&app, &workplace, &action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? kExitDone : kExitUsage;
  }
  try {
    return action();
  } catch (const InvalidArgument& error) {
    workplace.log.note(error.what());
    return kExitUsage;
  } catch (const DeviceUnavailable& error) {
    workplace.log.note(error.what());
    return kExitNoDevice;
  } catch (const CompileError& error) {
    workplace.log.note(error.what());
    workplace.log.note(error.log());
    return kExitFailed;
  } catch (const std::bad_alloc&) {
    workplace.log.note("out of memory; use fewer workers with --jobs");
    return kExitFailed;
  } catch (const std::exception& error) {
    workplace.log.note(error.what());
    return kExitFailed;
  }
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) {
  try {
    return attune::run(argc, argv);
  } catch (const attune::InvalidArgument& error) {  // a variable of the environment
    std::cerr << "attune: " << error.what() << "\n";
    return attune::kExitUsage;
  } catch (const std::exception& error) {
    std::cerr << "attune: " << error.what() << "\n";
    return attune::kExitFailed;
  }
}
