#include "cli/flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/presets.h"
#include "common/error.h"
#include "common/text.h"

namespace attune {

double parse_duration(const std::string& text) {
  constexpr std::array<std::pair<std::string_view, double>, 5> kUnits = {
      {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}};
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] =
      std::from_chars(text.data(), end, value, std::chars_format::fixed);  // locale-free
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const auto known = std::find_if(kUnits.begin(), kUnits.end(),
                                  [&](const auto& entry) { return entry.first == unit; });
  if (error != std::errc() || known == kUnits.end() || !std::isfinite(value) || value <= 0) {
    throw InvalidArgument("cannot read the duration", fmt::format("'{}'", text),
                          "write it as 90, 90s, 5m, 1.5h or 250ms, above 0");
  }
  return value * known->second;
}

std::vector<int> parse_kv_list(const std::string& text) {
  std::vector<int> values;
  for (const std::string_view part : split(text, ',')) {
    const auto value = parse_int(part);
    if (!value || *value < 1 || *value > kMaxKvLen) {
      throw InvalidArgument("cannot read the list of lengths",
                            fmt::format("'{}' in '{}'", part, text),
                            "write numbers from 1 to 2^29, as in 1024,8192");
    }
    values.push_back(static_cast<int>(*value));
  }
  return values;
}

CLI::Option* add_device_flag(CLI::App* app, std::optional<DeviceChoice>* choice,
                             const std::string& description) {
  const auto parse = [choice](const std::string& text) {
    try {
      *choice = DeviceChoice::parse(text);
    } catch (const InvalidArgument& error) {
      throw CLI::ValidationError("--device", error.what());
    }
  };
  return app->add_option_function<std::string>("--device", parse, description)->type_name("N|host");
}

void ProblemFlags::add_to(CLI::App* app) {
  auto* problem = app->add_option("--problem,PROBLEM", problems,
                                  "Problem text, such as "
                                  "decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16");
  auto* named =
      app->add_option("--preset", preset, "Name of a preset, or a file (docs/presets.md)");
  problem->excludes(named);
  app->add_option("--tp", tensor_parallel, "GPUs that share the heads of the preset")
      ->check(CLI::Range(1, 1024))
      ->excludes(problem);
}

std::vector<Problem> ProblemFlags::resolve() const {
  if (problems.empty()) {
    const auto file = find_preset(preset.empty() ? kDefaultPreset : preset, preset_folders());
    return expand(read_preset(file), tensor_parallel);
  }
  std::vector<Problem> parsed;
  for (const std::string& text : problems) {
    const Problem problem = Problem::parse(text);
    if (std::find(parsed.begin(), parsed.end(), problem) == parsed.end()) parsed.push_back(problem);
  }
  return parsed;
}

}  // namespace attune
