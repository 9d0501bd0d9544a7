#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/file_system.h"
#include "cli/interrupt.h"
#include "cli/model_bench.h"
#include "cli/model_flags.h"
#include "common/error.h"
#include "jit/model_source.h"
#include "runtime/dispatch.h"
#include "tuner/select.h"
#include "tuner/space.h"
#include "tuner/timestamp.h"
#include "tuner/verify.h"

namespace attune {
namespace {

constexpr const char* kExamples = R"(Examples:
  attune bench decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16
  attune bench PROBLEM --kv 1024,8192,131072 --csv bench/results/h200.csv
  attune bench --preset gemma4-31b --json
  attune bench decode/b4/q1/kv1-65536/h32x4/d512/unified/bf16 --lengths 512,2048,8192,65536
  attune bench PROBLEM --device host                without a GPU
  attune bench PROBLEM --kv 8192 --register-rule    what the register rule drops, timed
  attune bench PROBLEM --kv 8192 --candidate wgmma/m64n64s2w12/x33 --candidate wgmma/m64n32s3w12/x33
  attune bench --random-weights config.json --context 512,8192,127000 --tokens 1,8   steps of a model
  attune bench --model DIR --weights int4 --invariant     steps as attune generate takes them
  attune bench --model DIR --prefill 8192 --max-prefill 2048     a prompt too, in tokens/s
Exit codes: 0 done, 1 failed, 2 usage, 3 no usable GPU, 130 Ctrl-C.)";

constexpr std::uint64_t kVerifySeed = 1;

struct BenchFlags {
  ProblemFlags problems;
  std::string kv;
  std::string lengths;
  std::string csv;
  std::optional<DeviceChoice> device;
  std::vector<std::string> candidates;
  bool register_rule = false;
  bool json = false;
  // Of a whole model.
  ModelFlags model;
  std::string contexts = "512,8192,32768";
  std::string tokens = "1,8";
  bool invariant = false;
  int prefill = 0;
  int max_prefill = 512;
};

// Throws InvalidArgument for flags that would be ignored: those of problems where a model is timed,
// and the other way round.
void require_one_kind(const CLI::App& command, bool is_of_model) {
  const std::vector<const char*> of_problems = {"--problem",   "--preset",       "--tp",
                                                "--kv",        "--lengths",      "--csv",
                                                "--candidate", "--register-rule"};
  const std::vector<const char*> of_models = {"--context",   "--tokens",  "--weights",
                                              "--invariant", "--prefill", "--max-prefill"};
  for (const char* flag : is_of_model ? of_problems : of_models) {
    if (command.count(flag) == 0) continue;
    throw InvalidArgument(
        is_of_model ? "a flag of problems with a model" : "a flag of models without a model",
        fmt::format("flag={}", flag),
        is_of_model ? "leave it out, or --model and --random-weights"
                    : "leave it out, or pass --model DIR or --random-weights CONFIG");
  }
}

// --lengths for a problem. A sequence holds its query tokens, so it is no shorter than they are.
std::vector<int> parse_lengths(const std::string& text, const Problem& problem) {
  const std::vector<int> kv_lens = parse_kv_list(text);
  require_lengths(problem, kv_lens);
  const int shortest = *std::min_element(kv_lens.begin(), kv_lens.end());
  if (shortest < problem.seqlen_q) {
    throw InvalidArgument(
        "cannot time a sequence that is shorter than its query tokens",
        fmt::format("length={} seqlen_q={} problem={}", shortest, problem.seqlen_q, problem.text()),
        fmt::format("take lengths from {} to {}", problem.seqlen_q, problem.kv.max));
  }
  return kv_lens;
}

// What is measured of a problem: batches, each with the lengths of its sequences.
std::vector<std::vector<int>> batches_of(const BenchFlags& flags, const Problem& problem) {
  if (!flags.lengths.empty()) return {parse_lengths(flags.lengths, problem)};
  std::vector<std::vector<int>> batches;
  for (const int kv_len : flags.kv.empty() ? kv_points(problem.kv) : parse_kv_list(flags.kv)) {
    if (!problem.kv.contains({kv_len, kv_len})) continue;
    batches.emplace_back(static_cast<std::size_t>(problem.batch), kv_len);
  }
  return batches;
}

// All that one run measures with.
class Bench {
 public:
  Bench(const Workplace& workplace, const BenchFlags& flags, const DeviceChoice& choice,
        const Interrupt& interrupt)
      : flags_(flags),
        interrupt_(interrupt),
        device_(open_device(choice)),
        compiler_(open_compiler(workplace.compilers(), device_->info().arch)),
        store_(workplace.open_cache_if_present()),
        options_(workplace.serving_options(choice)),
        dispatcher_(options_, *device_),
        pool_options_(workplace.pool_options(0)),
        measure_options_(workplace.measure_options(choice)) {
    outcome_.gpu = device_->info();
    outcome_.ceilings = measure_ceilings(*device_, *compiler_);
  }

  // What is served. `batches` as batches_of gives them, at least one.
  void add(const Problem& problem, const std::vector<std::vector<int>>& batches) {
    const Dispatched dispatched = dispatcher_.dispatch(problem, *store_);
    add(problem, batches, dispatched.choice.candidate, *dispatched.kernels,
        std::string(name_of(dispatched.choice.served)));
  }
  // A candidate that the caller names.
  void add(const Problem& problem, const std::vector<std::vector<int>>& batches,
           const Candidate& candidate) {
    add(problem, batches, candidate, load(problem, candidate), "named");
  }

  const BenchOutcome& outcome() const { return outcome_; }

 private:
  void add(const Problem& problem, const std::vector<std::vector<int>>& batches,
           const Candidate& timed, const AttentionKernels& timed_kernels, std::string match) {
    BenchRow row;
    row.problem = problem;
    row.match = std::move(match);
    row.candidate = timed.text();
    const Candidate fallback = default_candidate(problem, device_->info());
    row.default_candidate = fallback.text();
    const bool is_default = timed == fallback;
    const AttentionKernels kernels = is_default ? AttentionKernels{} : load(problem, fallback);
    require_right(problem, timed_kernels, timed);
    if (!is_default) require_right(problem, kernels, fallback);
    const std::vector<int>& last = batches.back();
    const int longest = flags_.lengths.empty() ? 0 : *std::max_element(last.begin(), last.end());
    const Measure measure = measure_of(problem, longest);
    for (const std::vector<int>& kv_lens : batches) {
      BenchPoint point{kv_lens, measure(timed_kernels, timed, kv_lens), {}};
      point.fallback = is_default ? point.served : measure(kernels, fallback, kv_lens);
      row.points.push_back(std::move(point));
    }
    if (flags_.register_rule) audit(last.front(), &row);
    outcome_.rows.push_back(std::move(row));
  }

  // Times a candidate of the problem at lengths up to `longest`, which a linear layer has none of.
  using Measure = std::function<Timing(const AttentionKernels&, const Candidate&,
                                       const std::vector<int>& kv_lens)>;
  Measure measure_of(const Problem& problem, int longest) {
    const std::string& arch = device_->info().arch;
    if (problem.is_linear()) {
      const std::shared_ptr<CandidateTimer> timer =
          make_timer(*device_, compiler_->compile(probe_source(arch), arch), problem);
      return [timer](const auto& kernels, const auto& candidate, const auto& kv_lens) {
        return timer->judge(kernels, candidate, kv_lens.front(), {});
      };
    }
    const auto timer = std::make_shared<AttentionTimer>(*device_, *compiler_, problem, longest);
    return [timer](const auto& kernels, const auto& candidate, const auto& kv_lens) {
      return timer->measure(kernels, candidate, kv_lens);
    };
  }

  // No time without a passed correctness check. Its cases serve the next problem too where that
  // differs in batch and lengths alone.
  void require_right(const Problem& problem, const AttentionKernels& kernels,
                     const Candidate& candidate) {
    Problem shape = problem;
    shape.batch = 1;
    shape.kv = {1, 1};
    if (verifier_ == nullptr || shape != verified_shape_) {
      verifier_.reset();
      verifier_ = make_verifier(*device_, problem, kVerifySeed);
      verified_shape_ = shape;
    }
    const auto outcome = verifier_->verify(kernels, candidate);
    if (const auto* rejection = std::get_if<Rejection>(&outcome)) {
      throw Error("the kernel is wrong",
                  fmt::format("candidate={} {}", candidate.text(), rejection->detail),
                  "tune the problem again with --refresh; wrong candidates are left out");
    }
  }

  AttentionKernels load(const Problem& problem, const Candidate& candidate) {
    const Variant variant = candidate.variant(problem);
    const Source source = variant_source(variant);
    const std::string& arch = device_->info().arch;
    auto binary = store_->find_binary(compiler_->key(source, arch));
    if (!binary) binary = compiler_->compile(source, arch);
    return load_attention(*device_, *binary, variant, plan_launch(problem, candidate));
  }

  void audit(int kv_len, BenchRow* row) {
    CompilePool pool(pool_options_);
    IsolatedMeasure measure(measure_options_, device_->info());
    Tuner tuner(&measure, *store_, *compiler_, pool);
    row->audit_kv_len = kv_len;
    row->audit =
        tuner.audit_register_rule(row->problem, kv_len, [this] { return interrupt_.requested(); });
  }

  const BenchFlags& flags_;
  const Interrupt& interrupt_;
  std::unique_ptr<Device> device_;
  const std::unique_ptr<Compiler> compiler_;
  std::unique_ptr<TuneStore> store_;
  const Options options_;
  Dispatcher dispatcher_;
  CompilePoolOptions pool_options_;
  IsolatedMeasureOptions measure_options_;
  Problem verified_shape_;
  std::unique_ptr<CandidateVerifier> verifier_;
  BenchOutcome outcome_;
};

void write_csv(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) {
    throw Error("cannot write the CSV file", fmt::format("file={}", path),
                "name a file in a folder that exists and may be written");
  }
}

std::string csv_text(const BenchFlags& flags, const BenchOutcome& outcome) {
  const std::string taken = utc_timestamp();
  return flags.register_rule ? audit_csv(outcome, taken) : bench_csv(outcome, taken);
}

DeviceChoice device_of(const Workplace& workplace, const BenchFlags& flags) {
  if (flags.device) return *flags.device;
  return workplace.device_of_environment().value_or(DeviceChoice{});
}

// --candidate: each has to be able to compute every problem.
std::vector<Candidate> candidates_of(const BenchFlags& flags,
                                     const std::vector<Problem>& problems) {
  std::vector<Candidate> candidates;
  for (const std::string& text : flags.candidates) {
    const Candidate candidate = Candidate::parse(text);
    const Family& family = known_family(candidate.family);
    for (const Problem& problem : problems) {
      const auto unsupported = family.supports(problem, candidate.config);
      if (!unsupported) continue;
      throw InvalidArgument(
          "the candidate cannot compute the problem",
          fmt::format("candidate={} problem={}: {}", text, problem.text(), unsupported->detail),
          "attune explain PROBLEM lists its candidates");
    }
    candidates.push_back(candidate);
  }
  return candidates;
}

// Ascending.
std::vector<int> parse_counts(const std::string& text) {
  std::vector<int> counts = parse_kv_list(text);
  std::sort(counts.begin(), counts.end());
  return counts;
}

int bench_model(const Workplace& workplace, const BenchFlags& flags) {
  const ModelBenchWish wish{parse_counts(flags.contexts), parse_counts(flags.tokens),
                            flags.prefill};
  const ModelSource source = ModelSource::read(flags.model);
  require_possible(source.config, wish);
  Gemma4ModelOptions options = source.options();
  options.attention.max_tokens =
      std::max(wish.contexts.back() + wish.num_tokens.back(), wish.prefill);
  options.attention.max_prefill = std::min(flags.max_prefill, options.attention.max_tokens);
  options.attention.max_verify = wish.num_tokens.back();
  options.attention.invariant = flags.invariant;
  const DeviceChoice choice = device_of(workplace, flags);
  Engine engine(workplace.serving_options(choice));
  Gemma4Model model = source.load(engine, options);
  const auto compiler = open_compiler(workplace.compilers(), engine.device().info().arch);
  const ModelBenchOutcome outcome = bench_model(model, *compiler, wish);
  if (flags.json) {
    print_json(model_bench_json(outcome));
  } else {
    print_text(model_bench_text(outcome));
  }
  return kExitDone;
}

int bench(const Workplace& workplace, const BenchFlags& flags) {
  if (flags.model.is_given()) return bench_model(workplace, flags);
  const std::vector<Problem> problems = flags.problems.resolve();
  const auto is_measured = [&](const Problem& problem) {
    return !batches_of(flags, problem).empty();
  };
  if (std::count_if(problems.begin(), problems.end(), is_measured) == 0) {
    throw InvalidArgument("nothing to measure", fmt::format("kv={}", flags.kv),
                          "name lengths within the kv range of a problem");
  }
  const std::vector<Candidate> candidates = candidates_of(flags, problems);
  const Interrupt interrupt(workplace.log);
  if (!flags.csv.empty()) require_writable(flags.csv);
  Bench run(workplace, flags, device_of(workplace, flags), interrupt);
  for (const Problem& problem : problems) {
    if (interrupt.requested()) break;
    if (!is_measured(problem)) continue;
    if (candidates.empty()) run.add(problem, batches_of(flags, problem));
    for (const Candidate& candidate : candidates) {
      if (interrupt.requested()) break;
      run.add(problem, batches_of(flags, problem), candidate);
    }
  }
  if (!flags.csv.empty()) write_csv(flags.csv, csv_text(flags, run.outcome()));
  if (flags.json) {
    print_json(bench_json(run.outcome()));
  } else {
    print_text(bench_text(run.outcome()));
  }
  return interrupt.requested() ? interrupt.exit_code() : kExitDone;
}

}  // namespace

void add_bench_command(CLI::App* app, Workplace* workplace, Action* action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command =
      app->add_subcommand("bench", "Time what is served against the default and the floor");
  flags->problems.add_to(command);
  workplace->add_cache_flag(command);
  add_device_flag(command, &flags->device, "Device to measure on (default: GPU 0)");
  command->add_option("--kv", flags->kv,
                      "Lengths, such as 1024,8192 (default: powers of two of the range)");
  command->add_flag("--register-rule", flags->register_rule,
                    "Also time what the register rule drops, at the last length");
  command
      ->add_option("--lengths", flags->lengths,
                   "Time one batch: a length for each of its sequences, such as 512,8192")
      ->excludes("--kv")
      ->excludes("--register-rule");
  command
      ->add_option("--candidate", flags->candidates,
                   "Time this one instead of what is served; may be repeated")
      ->excludes("--register-rule");
  flags->model.add_to(command);
  command->add_option("--context", flags->contexts,
                      "Of a model: tokens in front of the step (default 512,8192,32768)");
  command->add_option("--tokens", flags->tokens, "Of a model: tokens of a step (default 1,8)");
  command->add_flag("--invariant", flags->invariant,
                    "Of a model: with the attention that generate uses");
  command
      ->add_option("--prefill", flags->prefill, "Of a model: also time a prompt of so many tokens")
      ->check(CLI::Range(1, kMaxKvLen));
  command
      ->add_option("--max-prefill", flags->max_prefill,
                   "Of a model: tokens of a prompt's chunk (default 512)")
      ->check(CLI::Range(1, kMaxPrefillTokens));
  command->add_option("--csv", flags->csv, "Write the rows to this file");
  command->add_flag("--json", flags->json, "Print the result as one JSON document");
  command->footer(kExamples);
  command->callback([=] {
    *action = [=] {
      require_one_kind(*command, flags->model.is_given());
      return bench(*workplace, *flags);
    };
  });
}

}  // namespace attune
