// The text forms of configs, variants and candidates.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/family.h"
#include "templates/launch_plan.h"

namespace attune {
namespace {

// Reads "<letter><number>" at the front of `text` and drops it.
std::optional<int> take_field(char letter, std::string_view* text) {
  if (text->empty() || text->front() != letter) return std::nullopt;
  std::size_t end = 1;
  while (end < text->size() && (*text)[end] >= '0' && (*text)[end] <= '9') ++end;
  const auto value = parse_int(text->substr(1, end - 1));
  if (!value || *value > kMaxTextNumber) return std::nullopt;
  text->remove_prefix(end);
  return static_cast<int>(*value);
}

[[noreturn]] void bad_text(std::string_view what, std::string_view text, std::string_view form) {
  throw InvalidArgument(fmt::format("cannot read the {}", what), fmt::format("'{}'", text),
                        fmt::format("the form is {}", form));
}

constexpr std::string_view kConfigForm = "m<BLOCK_M>n<BLOCK_N>s<stages>w<warps>";
constexpr std::string_view kCandidateForm = "<family>/m<BLOCK_M>n<BLOCK_N>s<stages>w<warps>/x<cap>";
constexpr std::string_view kVariantForm =
    "<family>/d<head_dim>/<layout>/<dtype>[/softcap][/invariant][/shared]/"
    "m<BLOCK_M>n<BLOCK_N>s<stages>w<warps>, or linear/<weights>/<epilogue>/"
    "m<BLOCK_M>n<BLOCK_N>s<stages>w<warps>, with experts in place of linear for those";

Variant parse_linear_variant(std::string_view text, const std::vector<std::string_view>& parts) {
  if (parts.size() != 4) bad_text("variant", text, kVariantForm);
  Variant variant;
  variant.family = parts[0];
  if (parts[1] == name_of(LinearWeights::kInt4)) variant.weights = LinearWeights::kInt4;
  for (const LinearEpilogue epilogue :
       {LinearEpilogue::kGeglu, LinearEpilogue::kSwiglu, LinearEpilogue::kLogits}) {
    if (parts[2] == name_of(epilogue)) variant.epilogue = epilogue;
  }
  variant.config = parse_config(parts[3]);
  if (variant.text() != text) bad_text("variant", text, kVariantForm);
  return variant;
}

}  // namespace

std::string text_of(const KernelConfig& config) {
  return fmt::format("m{}n{}s{}w{}", config.block_m, config.block_n, config.num_stages,
                     config.num_warps);
}

KernelConfig parse_config(std::string_view text) {
  std::string_view rest = text;
  const auto block_m = take_field('m', &rest);
  const auto block_n = take_field('n', &rest);
  const auto num_stages = take_field('s', &rest);
  const auto num_warps = take_field('w', &rest);
  if (!block_m || !block_n || !num_stages || !num_warps || !rest.empty()) {
    bad_text("kernel config", text, kConfigForm);
  }
  const KernelConfig config{*block_m, *block_n, *num_stages, *num_warps};
  if (text_of(config) != text) bad_text("kernel config", text, kConfigForm);
  return config;
}

std::string Variant::text() const {
  if (is_linear()) {
    return fmt::format("{}/{}/{}/{}", family, name_of(weights), name_of(epilogue), text_of(config));
  }
  return fmt::format("{}/d{}/{}/{}{}{}{}/{}", family, head_dim, name_of(kv_layout), name_of(dtype),
                     softcap ? "/softcap" : "", invariant ? "/invariant" : "",
                     shared_slots ? "/shared" : "", text_of(config));
}

Variant Variant::parse(std::string_view text) {
  const auto parts = split(text, '/');
  if (is_linear_family(parts.front())) return parse_linear_variant(text, parts);
  if (parts.size() < 5 || parts.size() > 8) bad_text("variant", text, kVariantForm);
  Variant variant;
  variant.family = parts[0];
  std::string_view head_dim = parts[1];
  variant.head_dim = take_field('d', &head_dim).value_or(0);
  for (const KvLayout layout : kKvLayouts) {
    if (parts[2] == name_of(layout)) variant.kv_layout = layout;
  }
  const auto is_on = [&](std::string_view word) {
    return std::find(parts.begin() + 4, parts.end() - 1, word) != parts.end() - 1;
  };
  variant.softcap = is_on("softcap");
  variant.invariant = is_on("invariant");
  variant.shared_slots = is_on("shared");
  variant.config = parse_config(parts.back());
  if (variant.text() != text) bad_text("variant", text, kVariantForm);
  return variant;
}

std::string Candidate::text() const {
  return fmt::format("{}/{}/x{}", family, text_of(config), split_cap);
}

Candidate Candidate::parse(std::string_view text) {
  const auto parts = split(text, '/');
  if (parts.size() != 3) bad_text("candidate", text, kCandidateForm);
  Candidate candidate;
  candidate.family = parts[0];
  candidate.config = parse_config(parts[1]);
  std::string_view cap = parts[2];
  candidate.split_cap = take_field('x', &cap).value_or(0);
  if (candidate.split_cap < 1 || candidate.text() != text) {
    bad_text("candidate", text, kCandidateForm);
  }
  return candidate;
}

Variant Candidate::variant(const Problem& problem) const {
  if (problem.is_linear()) {
    return {.family = family,
            .config = config,
            .epilogue = problem.linear.epilogue,
            .weights = problem.linear.weights};
  }
  return {family,
          problem.head_dim,
          problem.kv_layout,
          problem.softcap,
          problem.invariant,
          problem.dtype,
          config,
          shares_slots(problem, *this)};
}

}  // namespace attune
