#include "cache/records.h"

#include <array>
#include <utility>

namespace attune {
namespace {

// The texts are stored: changing one needs a migration.
constexpr std::array<std::pair<Stage, std::string_view>, 4> kStages = {{
    {Stage::kPrune, "prune"},
    {Stage::kCompile, "compile"},
    {Stage::kVerify, "verify"},
    {Stage::kTime, "time"},
}};

constexpr std::array<std::pair<RejectReason, std::string_view>, 13> kReasons = {{
    {RejectReason::kUnsupported, "unsupported"},
    {RejectReason::kSmem, "smem"},
    {RejectReason::kThreads, "threads"},
    {RejectReason::kRegisters, "registers"},
    {RejectReason::kSpill, "spill"},
    {RejectReason::kStack, "stack"},
    {RejectReason::kPtxasNote, "ptxas_note"},
    {RejectReason::kCompile, "compile"},
    {RejectReason::kLaunch, "launch"},
    {RejectReason::kOutOfBounds, "out_of_bounds"},
    {RejectReason::kWrongResult, "wrong_result"},
    {RejectReason::kSlow, "slow"},
    {RejectReason::kTimeout, "timeout"},
}};

template <typename Enum, std::size_t N>
constexpr std::string_view find_name(const std::array<std::pair<Enum, std::string_view>, N>& names,
                                     Enum value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "unknown";
}

template <typename Enum, std::size_t N>
constexpr std::optional<Enum> find_value(
    const std::array<std::pair<Enum, std::string_view>, N>& names, std::string_view text) {
  for (const auto& [known, name] : names) {
    if (name == text) return known;
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Stage stage) { return find_name(kStages, stage); }
std::string_view name_of(RejectReason reason) { return find_name(kReasons, reason); }

std::optional<Stage> parse_stage(std::string_view text) { return find_value(kStages, text); }
std::optional<RejectReason> parse_reject_reason(std::string_view text) {
  return find_value(kReasons, text);
}

}  // namespace attune
