#include "tuner/effort.h"

#include <array>

namespace attune {
namespace {

constexpr std::array kEfforts = {Effort::kQuick, Effort::kNormal, Effort::kExhaustive};

}  // namespace

std::string_view name_of(Effort effort) {
  switch (effort) {
    case Effort::kQuick:
      return "quick";
    case Effort::kNormal:
      return "normal";
    case Effort::kExhaustive:
      return "exhaustive";
  }
  return "";
}

std::optional<Effort> parse_effort(std::string_view text) {
  for (const Effort effort : kEfforts) {
    if (text == name_of(effort)) return effort;
  }
  return std::nullopt;
}

EffortPlan plan_of(Effort effort) {
  switch (effort) {
    case Effort::kQuick:
      return {.share = 0.1,
              .least_candidates = 6,
              .first_min_samples = 3,
              .first_max_samples = 5,
              .drop_regret = 0.15,
              .num_finalists = 2,
              .round_samples = 4,
              .min_rounds = 3,
              .max_rounds = 6};
    case Effort::kNormal:
      break;
    case Effort::kExhaustive:
      return {.share = 1,
              .least_candidates = 0,
              .first_min_samples = 5,
              .first_max_samples = 15,
              .drop_regret = 0.5,
              .num_finalists = 6,
              .round_samples = 4,
              .min_rounds = 6,
              .max_rounds = 20};
  }
  return {.share = 0.25,
          .least_candidates = 16,
          .first_min_samples = 3,
          .first_max_samples = 7,
          .drop_regret = 0.3,
          .num_finalists = 3,
          .round_samples = 4,
          .min_rounds = 4,
          .max_rounds = 10};
}

}  // namespace attune
