#include "cli/cache_ship.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/report.h"
#include "common/error.h"
#include "jit/source.h"
#include "runtime/store_options.h"
#include "tuner/timer.h"

namespace attune {
namespace {

struct ShipFlags {
  bool json = false;
  bool dry_run = false;
  std::vector<std::string> files;
  std::string into;
  bool older_templates = false;
  bool no_backup = false;
  std::string max_size;
  std::optional<double> unused_days;
  PruneRequest prune;
};

void output(const ShipFlags& flags, const Json& json, const std::string& text) {
  if (flags.json) {
    print_json(json);
  } else {
    print_text(text);
  }
}

ImportOptions import_options() {
  return {.timing_method = kTimingMethod, .driver_version = query_driver().version};
}

Json counts_json(const ImportResult& result) {
  return {{"winners_added", result.winners_added},
          {"winners_replaced", result.winners_replaced},
          {"winners_kept", result.winners_kept},
          {"binaries_added", result.binaries_added}};
}

std::string import_text(const std::string& file, const ImportResult& result) {
  return fmt::format("{}: winners: {} added, {} replaced by better ones, {} kept; {} added\n", file,
                     result.winners_added, result.winners_replaced, result.winners_kept,
                     count_text(static_cast<std::size_t>(result.binaries_added), "binary"));
}

// Adds all files to the store, in their order.
int add_files(TuneStore& store, const std::string& into, const ShipFlags& flags) {
  Json files = Json::array();
  std::string text;
  ImportResult total;
  for (const std::string& file : flags.files) {
    const ImportResult result = store.import_from(file, import_options());
    Json json = counts_json(result);
    json["file"] = file;
    files.push_back(std::move(json));
    total.winners_added += result.winners_added;
    total.winners_replaced += result.winners_replaced;
    total.winners_kept += result.winners_kept;
    total.binaries_added += result.binaries_added;
    text += import_text(file, result);
  }
  text += fmt::format("{} {} into {}\n",
                      flags.dry_run ? "dry run, nothing was changed: would import" : "imported",
                      count_text(flags.files.size(), "file"), into);
  Json json = counts_json(total);
  json["cache"] = into;
  json["dry_run"] = flags.dry_run;
  json["files"] = files;
  output(flags, json, text);
  return kExitDone;
}

int import_files(const Workplace& workplace, const ShipFlags& flags) {
  const auto file = workplace.cache_file();
  const auto store = flags.dry_run ? workplace.open_copy(file) : workplace.open_cache();
  return add_files(*store, file.string(), flags);
}

int merge(const Workplace& workplace, const ShipFlags& flags) {
  for (const std::string& file : flags.files) {  // nothing is created for a mistyped name
    std::error_code error;
    if (std::filesystem::exists(file, error)) continue;
    throw CacheError("there is no such cache to merge", fmt::format("path={}", file),
                     "name files made by attune tune or attune cache export");
  }
  const Warn warn = [&](const std::string& text) { workplace.log.warn(text); };
  const auto store =
      flags.dry_run ? workplace.open_copy(flags.into) : TuneStore::open(flags.into, warn);
  return add_files(*store, flags.into, flags);
}

// A base that cannot be opened would be left out: a fault of it.
VerifyReport verify_base(const std::string& base, const Warn& warn) {
  try {
    return TuneStore::open_base(base, warn)->verify();
  } catch (const CacheError& error) {
    return {.path = base, .problems = {error.what()}};
  }
}

std::string report_text(const VerifyReport& report) {
  std::string text;
  for (const std::string& problem : report.problems) text += problem + "\n";
  return text + fmt::format("{}: {} and {} read, {}\n", report.path,
                            count_text(static_cast<std::size_t>(report.num_binaries), "binary"),
                            count_text(static_cast<std::size_t>(report.num_winners), "winner"),
                            report.problems.empty() ? "all sound"
                                                    : count_text(report.problems.size(), "fault"));
}

Json report_json(const VerifyReport& report) {
  return {{"path", report.path},
          {"binaries", report.num_binaries},
          {"winners", report.num_winners},
          {"sound", report.problems.empty()},
          {"problems", report.problems}};
}

// The named file alone, or the cache with its bases; one that is not there yet beneath a base is no
// fault.
int verify(const Workplace& workplace, const ShipFlags& flags) {
  const Warn warn = [&](const std::string& text) { workplace.log.warn(text); };
  const bool is_named = !flags.files.empty();
  const std::string file = is_named ? flags.files.front() : workplace.cache_file().string();
  const auto bases = is_named ? std::vector<std::string>() : workplace.options.cache_bases;
  std::error_code error;
  Json json = {{"path", nullptr}, {"sound", true}, {"problems", Json::array()}};
  std::string text;
  if (bases.empty() || std::filesystem::exists(file, error) || error) {
    const VerifyReport report = TuneStore::open_unchanged(file, warn)->verify();
    json = report_json(report);
    text = report_text(report);
  }
  bool is_sound = json["sound"];
  json["bases"] = Json::array();
  for (const std::string& base : bases) {
    const VerifyReport report = verify_base(base, warn);
    is_sound = is_sound && report.problems.empty();
    json["bases"].push_back(report_json(report));
    text += report_text(report);
  }
  json["sound"] = is_sound;
  output(flags, json, text);
  return is_sound ? kExitDone : kExitFailed;
}

// Of every family on every architecture that the cache has binaries of.
std::set<Digest> current_templates(const TuneStore& store) {
  std::set<std::string> archs = {kDefaultArch};
  for (const BinaryRow& row : store.binaries()) archs.insert(row.arch);
  std::set<Digest> digests;
  for (const Family& family : families()) {
    for (const std::string& arch : archs) digests.insert(template_digest(family, arch));
  }
  return digests;
}

// What the flags say; --older-templates needs the cache.
PruneRequest prune_request(const ShipFlags& flags) {
  PruneRequest request = flags.prune;
  request.unused_days = flags.unused_days;
  if (!request.problem.empty()) request.problem = Problem::parse(request.problem).text();
  if (!flags.max_size.empty()) request.max_bytes = parse_size(flags.max_size);
  const bool selects = !request.gpu.empty() || !request.problem.empty() || request.failures ||
                       request.unused_days || request.max_bytes || flags.older_templates;
  if (selects) return request;
  throw InvalidArgument("nothing is selected to be pruned", {},
                        "say what: --older-templates, --gpu, --problem, --failures, --unused, "
                        "--max-size");
}

std::string free_backup_name(const std::string& path) {
  std::error_code error;
  std::string name = path + ".backup";
  for (int copy = 2; std::filesystem::exists(name, error); ++copy) {
    name = fmt::format("{}.backup-{}", path, copy);
  }
  return name;
}

int prune(const Workplace& workplace, const ShipFlags& flags) {
  PruneRequest request = prune_request(flags);
  const std::filesystem::path file = workplace.cache_file();
  std::error_code error;
  if (!std::filesystem::exists(file, error) && !error) {
    throw CacheError("there is no cache to prune", fmt::format("path={}", file.string()),
                     "name another file with --cache");
  }
  const auto store = flags.dry_run ? workplace.open_copy(file, store_options(workplace.options))
                                   : workplace.open_cache();
  if (flags.older_templates) request.current_templates = current_templates(*store);
  std::string backup;
  if (!flags.dry_run && !flags.no_backup) {
    backup = free_backup_name(store->path());
    store->export_to(backup);
  }
  const PruneResult result = store->prune(request);
  output(flags,
         {{"cache", store->path()},
          {"dry_run", flags.dry_run},
          {"backup", backup.empty() ? Json() : Json(backup)},
          {"winners", result.winners},
          {"measurements", result.measurements},
          {"rejections", result.rejections},
          {"binaries", result.binaries},
          {"failures", result.failures},
          {"bytes", result.bytes}},
         fmt::format(
             "{} winners, {} measurements, {} rejections, {} binaries ({}), {} compile "
             "failures\n{} {}{}\n",
             result.winners, result.measurements, result.rejections, result.binaries,
             bytes_text(result.bytes), result.failures,
             flags.dry_run ? "dry run, nothing was changed: would be deleted from" : "deleted from",
             store->path(), backup.empty() ? "" : fmt::format("; what was there: {}", backup)));
  return kExitDone;
}

void add_prune_flags(CLI::App* command, ShipFlags* flags) {
  command->add_flag("--older-templates", flags->older_templates,
                    "Results of kernels that this attune has in another form");
  command->add_option("--gpu", flags->prune.gpu,
                      "Results of GPUs whose name contains this; with --problem that of theirs");
  command->add_option("--problem", flags->prune.problem, "Results of one problem");
  command->add_flag("--failures", flags->prune.failures, "Remembered compile failures");
  command
      ->add_option("--unused", flags->unused_days,
                   "Binaries of no winner that were not used for so many days")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--max-size", flags->max_size,
                      "The longest unused binaries, until the others fit: 500M, 2G");
  command->add_flag("--dry-run", flags->dry_run, "Say what would go, change nothing");
  command->add_flag("--no-backup", flags->no_backup, "Keep no copy as <cache>.backup");
}

}  // namespace

void add_cache_ship_commands(CLI::App* group, Workplace* workplace, Action* action) {
  auto flags = std::make_shared<ShipFlags>();
  const auto add = [&](const char* name, const char* about, auto run) {
    CLI::App* command = group->add_subcommand(name, about);
    command->add_flag("--json", flags->json, "Print the result as one JSON document");
    command->callback([=] { *action = [=] { return run(*workplace, *flags); }; });
    return command;
  };
  CLI::App* import_command = add("import", "Add what other caches have", import_files);
  workplace->add_cache_flag(import_command);
  import_command->add_option("FILE", flags->files, "Exported files or other caches")->required();
  import_command->add_flag("--dry-run", flags->dry_run, "Say what would come, change nothing");

  CLI::App* merge_command = add("merge", "Put several caches into one file", merge);
  merge_command->add_option("FILE", flags->files, "Caches, such as those of shards")->required();
  merge_command->add_option("--into", flags->into, "File to add to; created when missing")
      ->required();
  merge_command->add_flag("--dry-run", flags->dry_run, "Say what would come, change nothing");

  CLI::App* verify_command =
      add("verify", "Read all of a cache once and list what is broken", verify);
  workplace->add_cache_flag(verify_command);
  verify_command->add_option("FILE", flags->files, "Instead of the cache here")->expected(0, 1);

  CLI::App* prune_command = add("prune", "Delete what is selected, after a backup", prune);
  workplace->add_cache_flag(prune_command);
  add_prune_flags(prune_command, flags.get());
}

}  // namespace attune
