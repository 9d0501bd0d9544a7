// Flags that several commands share, and the parsers of their values.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "jit/device_choice.h"
#include "templates/problem.h"

namespace attune {

// What a finished command line asks for; returns the exit code.
using Action = std::function<int()>;

constexpr const char* kDefaultPreset = "gemma4-31b";
constexpr const char* kDefaultArch = "sm_90a";

// Seconds of "90", "90s", "5m", "1h", "1.5h", "250ms". Throws InvalidArgument.
double parse_duration(const std::string& text);

// Numbers of "1024,8192,131072", each within 1 to kMaxKvLen. Throws InvalidArgument.
std::vector<int> parse_kv_list(const std::string& text);

// --device N|host...; `choice` stays empty where it is not given.
CLI::Option* add_device_flag(CLI::App* app, std::optional<DeviceChoice>* choice,
                             const std::string& description);

// PROBLEM..., --problem, --preset and --tp.
struct ProblemFlags {
  std::vector<std::string> problems;
  std::string preset;
  int tensor_parallel = 1;

  void add_to(CLI::App* app);
  bool is_default() const { return problems.empty() && preset.empty(); }
  // What was asked for, without repetitions; the default preset when nothing was. Throws
  // InvalidArgument.
  std::vector<Problem> resolve() const;
};

}  // namespace attune
