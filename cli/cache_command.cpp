// attune cache: opens no device and needs no driver.
#include <ctime>
#include <memory>

#include <fmt/format.h>

#include "cli/cache_report.h"
#include "cli/cache_ship.h"
#include "cli/commands.h"
#include "cli/winner_choice.h"
#include "common/error.h"
#include "runtime/dispatch.h"

namespace attune {
namespace {

constexpr const char* kExamples = R"(Examples:
  attune cache list
  attune cache list --gpu H200 --preset gemma4-31b --state "older method" --sort gain
  attune cache show decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16
  attune cache stats --json
  attune cache export tune.db      one file to copy to other machines
  attune cache import tune.db --dry-run
  attune cache merge shard-*.db --into tune.db
  attune cache verify tune.db
  attune cache prune --older-templates --dry-run
  attune cache path
None of them opens a GPU or needs a driver.)";

struct CacheFlags {
  bool json = false;
  std::string problem;
  std::string file;
  ProblemFlags problems;  // of list
  WinnerChoice choice;
};

void output(const CacheFlags& flags, const Json& json, const std::string& text) {
  if (flags.json) {
    print_json(json);
  } else {
    print_text(text);
  }
}

int list(const Workplace& workplace, const CacheFlags& flags) {
  const auto store = workplace.open_cache_if_present();
  WinnerChoice choice = flags.choice;
  if (!flags.problems.is_default()) choice.problems = flags.problems.resolve();
  if (!choice.gpu.empty()) stored_gpus(*store, choice.gpu);  // throws when there is none
  const auto winners = choose_winners(store->winners(), choice);
  output(flags, list_json(winners), list_text(winners, std::time(nullptr)));
  return kExitDone;
}

int show(const Workplace& workplace, const CacheFlags& flags) {
  const Problem problem = Problem::parse(flags.problem);
  const auto store = workplace.open_cache_if_present();
  std::vector<StoredProblem> stored;
  for (auto& [identity, winner] : store->winners()) {
    if (winner.problem != problem) continue;
    StoredProblem& one = stored.emplace_back();
    // The cache finds rows by the identity, which is all that is needed of the GPU.
    if (const auto gpu = device_of_identity(identity)) {
      one.rejections = store->rejections(*gpu, problem, winner.toolchain);
      one.num_measured = store->measurements(*gpu, problem, winner.toolchain).size();
    }
    one.identity = std::move(identity);
    one.winner = std::move(winner);
  }
  if (stored.empty()) {
    throw CacheError(
        "no winner for this problem",
        fmt::format("problem={} path={}", problem.text(), workplace.cache_file().string()),
        fmt::format("tune it with {}", tune_command(problem, {})));
  }
  output(flags, show_json(stored), show_text(stored, std::time(nullptr)));
  return kExitDone;
}

int stats(const Workplace& workplace, const CacheFlags& flags) {
  const auto store = workplace.open_cache_if_present();
  CacheStats all = store->stats();
  all.path = workplace.cache_file().string();
  output(flags, stats_json(all), stats_text(all));
  return kExitDone;
}

int export_file(const Workplace& workplace, const CacheFlags& flags) {
  const auto store = workplace.open_cache_if_present();
  if (store->is_in_memory()) {  // a file of nothing would go for a tuned one
    throw CacheError("there is no tuning cache to export",
                     fmt::format("path={}", workplace.cache_file().string()),
                     "tune first, or name another file with --cache");
  }
  store->export_to(flags.file);
  const CacheStats all = store->stats();
  const Json json = {
      {"file", flags.file}, {"winners", all.num_winners}, {"binaries", all.num_binaries}};
  output(flags, json,
         fmt::format("exported {} and {} to {}\n", count_text(all.num_winners, "winner"),
                     count_text(all.num_binaries, "binary"), flags.file));
  return kExitDone;
}

int path(const Workplace& workplace, const CacheFlags& flags) {
  const std::string file = workplace.cache_file().string();
  // The file alone, so that it can be handed to another program.
  output(flags, Json{{"path", file}, {"bases", workplace.options.cache_bases}}, file + "\n");
  return kExitDone;
}

}  // namespace

void add_cache_command(CLI::App* app, Workplace* workplace, Action* action) {
  auto flags = std::make_shared<CacheFlags>();
  CLI::App* group = app->add_subcommand("cache", "Inspect, ship and clean the tuning cache");
  group->require_subcommand(1);
  group->footer(kExamples);
  const auto add = [&](const char* name, const char* about, auto run) {
    CLI::App* command = group->add_subcommand(name, about);
    workplace->add_cache_flag(command);
    command->add_flag("--json", flags->json, "Print the result as one JSON document");
    command->callback([=] { *action = [=] { return run(*workplace, *flags); }; });
    return command;
  };
  CLI::App* listing = add("list", "Winners with their times and ages", list);
  flags->problems.add_to(listing);
  listing->add_option("--gpu", flags->choice.gpu, "Of GPUs whose name contains this");
  listing->add_option("--state", flags->choice.state, "In this state, or provisional")
      ->check(CLI::IsMember(winner_states()));
  listing
      ->add_option("--sort", flags->choice.order,
                   "By gpu (default), problem, time, gain, age (youngest first) or state")
      ->check(CLI::IsMember(winner_orders()));
  listing->add_flag("--reverse", flags->choice.reverse, "The other way round");
  add("show", "Everything about one problem", show)
      ->add_option("PROBLEM", flags->problem, "Problem text")
      ->required();
  add("stats", "Counts and sizes", stats);
  add("export", "Copy the whole cache to one new file", export_file)
      ->add_option("FILE", flags->file, "File to create")
      ->required();
  add("path", "Where the cache is", path);
  add_cache_ship_commands(group, workplace, action);
}

}  // namespace attune
