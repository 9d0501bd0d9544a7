#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/file_system.h"
#include "cli/generate_report.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "common/error.h"
#include "runtime/chat_prompt.h"
#include "runtime/checkpoint.h"
#include "runtime/eagle3_drafter.h"
#include "runtime/ngram_drafter.h"
#include "runtime/token_file.h"
#include "runtime/tokenizer.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExamples = R"(Examples:
  attune generate --model gemma-4-31b-it --prompt "Why is the sky blue?" --draft ngram
  attune generate --model DIR --tokens-file prompt.txt --draft EAGLE3_DIR --chain 5 --json
  attune generate --random-weights config.json --tokens-file prompt.bin --ignore-eos
Greedy tokens are the same whatever is drafted, also with --draft none; docs/generate.md says why.
Exit codes: 0 done, 1 failed, 2 usage, 3 no usable GPU or driver, 130 Ctrl-C.)";

constexpr std::uint64_t kHeadSeed = 2;  // of random weights

struct GenerateFlags {
  ModelFlags model;
  std::string prompt, tokens_file, tokens_out;
  std::string draft = "none";
  std::optional<int> chain;  // 4
  int max_new_tokens = 128;
  int max_tokens = 0;
  int max_prefill = 512;
  bool ignore_eos = false, raw_prompt = false, json = false;
  SamplingOptions sampling;
  std::string cuda_graph = "on";
  std::optional<DeviceChoice> device;

  int chain_length() const { return chain.value_or(4); }
};

bool has_head(const GenerateFlags& flags) {
  return flags.draft != "none" && flags.draft != "ngram";
}

// What is read before the device is opened.
struct Inputs {
  ModelSource model;
  std::optional<Eagle3Checkpoint> head;  // none: random weights
  std::optional<Eagle3Config> head_config;
  std::unique_ptr<Tokenizer> tokenizer;  // none where tokens come from a file and it has none
  std::vector<std::int32_t> prompt;
};

std::vector<std::int32_t> read_prompt(const GenerateFlags& flags, const Inputs& inputs) {
  if (!flags.tokens_file.empty()) {
    return read_token_file(flags.tokens_file, inputs.model.config.vocab_size);
  }
  return prompt_tokens(*inputs.tokenizer, flags.prompt,
                       flags.raw_prompt ? PromptForm::kRaw : PromptForm::kChat);
}

Inputs read_inputs(const GenerateFlags& flags) {
  Inputs inputs;
  inputs.model = ModelSource::read(flags.model);
  if (has_head(flags)) {
    // A config alone gives a head of random weights, to a model of random weights.
    if (fs::is_regular_file(flags.draft) && !inputs.model.checkpoint) {
      inputs.head_config = Eagle3Config::from_file(flags.draft);
    } else {
      inputs.head = Eagle3Checkpoint::open(flags.draft);
      inputs.head_config = inputs.head->config;
    }
    inputs.head_config->check_fits(inputs.model.config);
  }
  const fs::path folder = flags.model.folder();
  const bool has_tokenizer =
      fs::exists(folder / "tokenizer.json") || fs::exists(folder / "tokenizer.model");
  if (has_tokenizer || flags.tokens_file.empty()) inputs.tokenizer = load_tokenizer(folder);
  inputs.prompt = read_prompt(flags, inputs);
  return inputs;
}

Gemma4ModelOptions model_options(const GenerateFlags& flags, const Inputs& inputs) {
  Gemma4ModelOptions options = inputs.model.options();
  const auto prompt = static_cast<int>(inputs.prompt.size());
  const int most = inputs.model.config.geometry.max_positions;
  const int asked = flags.max_tokens > 0 ? flags.max_tokens : prompt + flags.max_new_tokens;
  options.attention.max_tokens = std::min(asked, most);
  // Here, and not only after the weights are loaded.
  const StopRule fits({.prompt_length = prompt,
                       .max_new_tokens = flags.max_new_tokens,
                       .max_tokens = options.attention.max_tokens},
                      {});
  options.attention.max_prefill = std::min(flags.max_prefill, options.attention.max_tokens);
  options.attention.max_verify = flags.draft == "none" ? 1 : flags.chain_length() + 1;
  options.attention.invariant = true;  // what makes verify give the tokens of decode
  if (inputs.head_config) options.taps = inputs.head_config->taps;
  return options;
}

// What drafts, if anything does, and what it takes on the device.
struct Drafting {
  std::unique_ptr<Drafter> drafter;
  std::size_t weight_bytes = 0, cache_bytes = 0;
};

Drafting make_drafter(const GenerateFlags& flags, const Inputs& inputs, Engine& engine,
                      const Gemma4Model& model, StreamHandle stream) {
  if (flags.draft == "none") return {};
  if (flags.draft == "ngram") return {std::make_unique<NgramDrafter>()};
  const Gemma4Options& limits = model.options().attention;
  const Eagle3Options options{.max_tokens = limits.max_tokens,
                              .max_rows = limits.max_prefill,
                              .max_round = limits.max_verify};
  Eagle3Head head = inputs.head
                        ? Eagle3Head(engine, inputs.head->config, inputs.head->weights,
                                     model.embed_tokens(), options)
                        : Eagle3Head::random(engine, *inputs.head_config, options, kHeadSeed);
  const std::size_t weight_bytes = head.weight_bytes(), cache_bytes = head.cache_bytes();
  return {std::make_unique<Eagle3Drafter>(std::move(head), engine.device(), stream), weight_bytes,
          cache_bytes};
}

// Writes tokens as they come: text where there is a tokenizer, else ids.
class Writer {
 public:
  Writer(const Tokenizer* tokenizer, bool quiet) : quiet_(quiet) {
    if (tokenizer != nullptr) stream_.emplace(*tokenizer);
  }
  void write(std::span<const std::int32_t> tokens) {
    std::string piece;
    for (const std::int32_t id : tokens) {
      piece += stream_ ? stream_->append(id) : fmt::format("{} ", id);
    }
    put(piece);
  }
  // All of the text; empty without a tokenizer.
  std::string finish() {
    put(stream_ ? stream_->finish() + "\n" : "\n");
    return stream_ ? text_.substr(0, text_.size() - 1) : std::string();
  }

 private:
  void put(const std::string& piece) {
    text_ += piece;
    if (!quiet_) std::cout << piece << std::flush;
  }
  std::optional<TextStream> stream_;
  std::string text_;
  bool quiet_;
};

void check(const GenerateFlags& flags) {
  if (!flags.model.is_given()) {
    throw InvalidArgument("no model", {}, "pass one of --model DIR and --random-weights CONFIG");
  }
  if (flags.prompt.empty() && flags.tokens_file.empty()) {
    throw InvalidArgument("no prompt", {}, "pass one of --prompt TEXT and --tokens-file FILE");
  }
  if (flags.chain && flags.draft == "none") {
    throw InvalidArgument("a chain without a drafter", fmt::format("chain={}", *flags.chain),
                          "leave --chain out, or pass --draft ngram or --draft DIR");
  }
  check_sampling(flags.sampling);
}

GenerateOptions run_options(const GenerateFlags& flags, const Inputs& inputs) {
  GenerateOptions run;
  run.sampling = flags.sampling;
  run.chain = flags.chain_length();
  run.max_new_tokens = flags.max_new_tokens;
  run.cuda_graph = flags.cuda_graph == "on";
  if (!flags.ignore_eos) {
    run.stop_tokens = stop_tokens(inputs.tokenizer.get(), inputs.model.config.eos_token_ids);
  }
  return run;
}

void print(const GenerateFlags& flags, const GenerateReport& report) {
  if (flags.json) {
    print_json(generate_json(report));
  } else {
    std::cerr << generate_summary(report);
  }
}

int generate(const Workplace& workplace, const GenerateFlags& flags) {
  check(flags);
  const Inputs inputs = read_inputs(flags);
  const Gemma4ModelOptions options = model_options(flags, inputs);
  if (!flags.tokens_out.empty()) require_writable(flags.tokens_out);
  Progress progress(std::cerr, isatty(STDERR_FILENO) == 1);
  const ClearedFor cleared(workplace.log, progress);
  const Interrupt interrupt(workplace.log);
  const auto start = std::chrono::steady_clock::now();
  const DeviceChoice choice =
      flags.device ? *flags.device : workplace.device_of_environment().value_or(DeviceChoice{});
  const std::size_t num_loads = has_head(flags) ? 2 : 1;
  progress.update({"load", "weights and kernels of the model", 0, num_loads});
  Engine engine(workplace.serving_options(choice));
  Gemma4Model model = inputs.model.load(engine, options);
  if (interrupt.requested()) return interrupt.exit_code();
  if (has_head(flags)) progress.update({"load", "the draft head", 1, num_loads});
  const Stream stream = engine.device().create_stream();
  const Drafting drafting = make_drafter(flags, inputs, engine, model, stream.get());
  engine.seal();
  progress.clear();
  if (interrupt.requested()) return interrupt.exit_code();

  GenerateReport report;
  report.device = engine.device().info().name;
  report.draft = flags.draft;
  report.chain = flags.chain_length();
  report.num_prompt_tokens = static_cast<int>(inputs.prompt.size());
  report.load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.weight_bytes = model.weight_bytes();
  report.cache_bytes = model.cache_bytes();
  report.activation_bytes = model.activation_bytes();
  report.draft_weight_bytes = drafting.weight_bytes;
  report.draft_cache_bytes = drafting.cache_bytes;
  Generator generator(model, drafting.drafter.get(), stream.get());
  Writer writer(inputs.tokenizer.get(), flags.json);
  GenerateOptions run = run_options(flags, inputs);
  run.on_tokens = [&](std::span<const std::int32_t> tokens) {
    writer.write(tokens);
    return !interrupt.requested();
  };
  report.result = generator.run(inputs.prompt, run);
  report.text = writer.finish();
  print(flags, report);
  if (!flags.tokens_out.empty()) write_token_file(flags.tokens_out, report.result.tokens);
  return interrupt.requested() ? interrupt.exit_code() : kExitDone;
}

}  // namespace

void add_generate_command(CLI::App* app, Workplace* workplace, Action* action) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app->add_subcommand("generate", "Generate tokens with a Gemma 4 checkpoint");
  flags->model.add_to(command);
  CLI::Option* text =
      command->add_option("--prompt", flags->prompt, "Text; the checkpoint's tokenizer reads it");
  command
      ->add_option("--tokens-file", flags->tokens_file,
                   "Token ids: text, or .bin of little-endian int32")
      ->excludes(text);
  command->add_option("--tokens-out", flags->tokens_out, "Write the new ids in one of these forms");
  command->add_flag("--raw-prompt", flags->raw_prompt, "The text alone, without the chat form")
      ->needs(text);
  command->add_option("--draft", flags->draft,
                      "ngram, or the folder of an EAGLE-3 head (with random weights also its "
                      "config.json); default: none");
  command->add_option("--chain", flags->chain, "Tokens drafted a round (default 4)")
      ->check(CLI::Range(1, kMaxVerifyTokens - 1));
  command->add_option("--max-new-tokens", flags->max_new_tokens, "Default 128")
      ->check(CLI::Range(1, kMaxKvLen));
  command
      ->add_option("--max-tokens", flags->max_tokens,
                   "Room for prompt and new tokens (default: what they need)")
      ->check(CLI::Range(1, kMaxKvLen));
  command
      ->add_option("--max-prefill", flags->max_prefill, "Tokens of a prompt's chunk (default 512)")
      ->check(CLI::Range(1, kMaxPrefillTokens));
  command->add_flag("--ignore-eos", flags->ignore_eos, "Emit --max-new-tokens, whatever they are");
  command->add_option("--temperature", flags->sampling.temperature, "0 is greedy (default)");
  command->add_option("--top-k", flags->sampling.top_k, "0 is all (default)");
  command->add_option("--top-p", flags->sampling.top_p, "Default 1");
  command->add_option("--seed", flags->sampling.seed, "Of sampling (default 0)");
  command->add_option("--cuda-graph", flags->cuda_graph, "Replay captured steps (default on)")
      ->check(CLI::IsMember({"on", "off"}));
  add_device_flag(command, &flags->device, "GPU number, or host for the CPU (default: GPU 0)");
  workplace->add_cache_flag(command);
  command->add_flag("--json", flags->json, "Print the result as one JSON document");
  command->footer(kExamples);
  command->callback([=] { *action = [=] { return generate(*workplace, *flags); }; });
}

}  // namespace attune
