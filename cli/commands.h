// The commands of attune. Each adds its flags to `app` and sets `action` when it is asked for.
#pragma once

#include "cli/flags.h"
#include "cli/workplace.h"

namespace attune {

// Exit codes; docs/cli.md lists them.
constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNoDevice = 3;
constexpr int kExitPartial = 4;  // the budget ended before the work

void add_tune_command(CLI::App* app, Workplace* workplace, Action* action);
void add_cache_command(CLI::App* app, Workplace* workplace, Action* action);
void add_bench_command(CLI::App* app, Workplace* workplace, Action* action);
void add_explain_command(CLI::App* app, Workplace* workplace, Action* action);
void add_check_command(CLI::App* app, Workplace* workplace, Action* action);
void add_generate_command(CLI::App* app, Workplace* workplace, Action* action);
void add_report_command(CLI::App* app, Workplace* workplace, Action* action);
void add_doctor_command(CLI::App* app, Workplace* workplace, Action* action);

}  // namespace attune
