#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "cli/check_report.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "common/error.h"
#include "jit/host/host_info.h"
#include "jit/host_device.h"
#include "jit/model_source.h"
#include "tuner/space.h"
#include "tuner/verify.h"

namespace attune {
namespace {

constexpr const char* kExamples = R"(Examples:
  attune check decode/b1/q1/kv1-1024/h4x1/d64/contiguous/bf16
  attune check PROBLEM --candidate splitkv/m16n64s2w4/x2 --early-copies
  attune check PROBLEM --candidate CANDIDATE --debug --keep sources    for a debugger
Exit codes: 0 all candidates pass, 1 one fails, 3 no C++ compiler, 130 Ctrl-C.)";

constexpr std::uint64_t kVerifySeed = 1;

struct CheckFlags {
  std::string problem;
  std::string candidate;
  bool early_copies = false;
  std::string keep_folder;
  bool debug = false;
  int num_jobs = 0;
  bool json = false;
};

// A binary, or the log of a compile that failed.
struct Compiled {
  std::optional<Binary> binary;
  std::string log;
};
using CompiledVariants = std::map<Variant, Compiled>;

std::vector<Candidate> candidates_of(const Problem& problem, const CheckFlags& flags,
                                     const DeviceInfo& device) {
  if (flags.candidate.empty()) return candidate_space(problem, device).kept;
  const Candidate candidate = Candidate::parse(flags.candidate);
  const Family* family = find_family(candidate.family);
  if (family == nullptr) {
    throw InvalidArgument("unknown kernel family", fmt::format("candidate='{}'", candidate.text()));
  }
  if (const auto rejection = prune(problem, *family, candidate.config, device)) {
    throw InvalidArgument("the candidate cannot run the problem",
                          fmt::format("candidate={} {}", candidate.text(), rejection->detail),
                          "attune explain PROBLEM --device host lists those that can");
  }
  return {candidate};
}

CompiledVariants compile_all(const Workplace& workplace, const CheckFlags& flags,
                             const std::string& arch, const Problem& problem,
                             const std::vector<Candidate>& candidates, Progress& progress,
                             const Interrupt& interrupt) {
  CompilePoolOptions options = workplace.pool_options(flags.num_jobs);
  options.compilers.host.keep_folder = flags.keep_folder;
  open_compiler(options.compilers, arch);  // says here, not for each candidate, that there is none
  std::vector<Variant> variants;
  for (const Candidate& candidate : candidates) variants.push_back(candidate.variant(problem));
  std::sort(variants.begin(), variants.end());
  variants.erase(std::unique(variants.begin(), variants.end()), variants.end());
  std::vector<CompileJob> jobs;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    jobs.push_back({i, variant_source(variants[i]), arch});
  }
  CompiledVariants compiled;
  CompilePool pool(options);
  pool.run(
      std::move(jobs),
      [&](CompileOutcome outcome) {
        const Variant& variant = variants[outcome.id];
        compiled[variant] = {std::move(outcome.binary), outcome.error + "\n" + outcome.log};
        progress.update({"compile", variant.text(), compiled.size(), variants.size()});
      },
      [&] { return interrupt.requested(); });
  return compiled;
}

// One candidate on one device.
std::optional<CheckRow> check_one(Device& device, CandidateVerifier& verifier,
                                  const Problem& problem, const Candidate& candidate,
                                  const CompiledVariants& compiled) {
  const Variant variant = candidate.variant(problem);
  const auto found = compiled.find(variant);
  if (found == compiled.end()) return std::nullopt;  // interrupted
  CheckRow row;
  row.candidate = candidate;
  if (!found->second.binary) {
    row.failure = Rejection{RejectReason::kCompile, found->second.log};
    return row;
  }
  try {
    const AttentionKernels kernels =
        load_attention(device, *found->second.binary, variant, plan_launch(problem, candidate));
    const auto outcome = verifier.verify(kernels, candidate);
    if (const auto* rejection = std::get_if<Rejection>(&outcome)) {
      row.failure = *rejection;
    } else {
      row.admission = std::get<Admission>(outcome);
    }
  } catch (const CudaError& error) {
    row.failure = Rejection{RejectReason::kLaunch, error.what()};
  }
  return row;
}

int check(const Workplace& workplace, const CheckFlags& flags) {
  const auto start = std::chrono::steady_clock::now();
  const Problem problem = Problem::parse(flags.problem);
  const HostTarget target{.checks = HostChecks::kAccesses, .debug = flags.debug};
  const auto candidates = candidates_of(problem, flags, host_device_info(target));
  Progress progress(std::cerr, isatty(STDERR_FILENO) == 1);
  const Interrupt interrupt(workplace.log);
  CheckOutcome outcome;
  outcome.problem = problem;
  outcome.target = target.text();
  const auto compiled =
      compile_all(workplace, flags, target.text(), problem, candidates, progress, interrupt);
  const std::size_t total = candidates.size() * (flags.early_copies ? 2 : 1);
  for (const bool early : {false, true}) {
    if (early && !flags.early_copies) continue;
    // In a debugger one CTA after the other is easier to follow.
    const auto device = open_host_device(
        {.target = target, .num_workers = flags.debug ? 1 : 0, .early_copies = early});
    const auto verifier = make_verifier(*device, problem, kVerifySeed);
    for (const Candidate& candidate : candidates) {
      if (interrupt.requested()) break;
      auto row = check_one(*device, *verifier, problem, candidate, compiled);
      if (!row) continue;
      row->early_copies = early;
      outcome.rows.push_back(std::move(*row));
      progress.update({"check", candidate.text(), outcome.rows.size(), total});
    }
  }
  progress.clear();
  outcome.num_left = total - outcome.rows.size();
  outcome.total_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (flags.json) {
    print_json(check_json(outcome));
  } else {
    print_text(check_text(outcome));
  }
  if (interrupt.requested()) return interrupt.exit_code();
  return outcome.num_failed() == 0 ? kExitDone : kExitFailed;
}

}  // namespace

void add_check_command(CLI::App* app, Workplace* workplace, Action* action) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App* command = app->add_subcommand(
      "check", "Run the candidates of a problem on the CPU with every check, for kernel writers");
  command->add_option("PROBLEM", flags->problem, "Problem text")->required();
  command->add_option("--candidate", flags->candidate, "Only this one (default: all)");
  command->add_flag("--early-copies", flags->early_copies,
                    "Also with asynchronous copies that happen when they are issued");
  command->add_option("--keep", flags->keep_folder, "Leave the compiled sources in this folder");
  command->add_flag("--debug", flags->debug, "Not optimized, one CTA at a time, for a debugger");
  command->add_option("--jobs", flags->num_jobs, "Compile workers (default: by cores and memory)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--json", flags->json, "Print the result as one JSON document");
  command->footer(kExamples);
  command->callback([=] { *action = [=] { return check(*workplace, *flags); }; });
}

}  // namespace attune
