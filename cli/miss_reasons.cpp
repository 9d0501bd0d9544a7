#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/stored_results.h"
#include "common/text.h"
#include "jit/compiler.h"
#include "jit/host/host_target.h"
#include "tuner/timer.h"

namespace attune {
namespace {

template <typename Value>
void compare(std::string_view name, const Value& asked, const Value& tuned,
             std::vector<std::string>* differences) {
  if (asked == tuned) return;
  differences->push_back(fmt::format("{} is {}, not {}", name, tuned, asked));
}

std::string text_of(const KvRange& range) { return fmt::format("{}-{}", range.min, range.max); }

// By the parts of DeviceInfo::identity.
void compare_gpus(const std::string& asked, const std::string& tuned,
                  std::vector<std::string>* differences) {
  constexpr std::array<std::string_view, 6> kParts = {
      "gpu", "arch", "compute capability", "num_sms", "memory_bytes", "mig"};
  const auto asked_parts = split(asked, '|'), tuned_parts = split(tuned, '|');
  if (asked_parts.size() != kParts.size() || tuned_parts.size() != kParts.size()) {
    return compare("gpu", asked, tuned, differences);
  }
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    compare(kParts[i], asked_parts[i], tuned_parts[i], differences);
  }
}

// Differences of the toolchain: such a winner is a miss.
std::vector<StaleReason> toolchain_reasons(const Scene& scene, const Winner& winner) {
  std::vector<StaleReason> reasons;
  const Family* family = find_family(winner.candidate.family);
  const Toolchain& toolchain = winner.toolchain;
  if (family == nullptr) {
    reasons.push_back(
        {"older template", fmt::format("family {} is gone", winner.candidate.family)});
  } else if (template_digest(*family, scene.gpu.arch) != toolchain.template_digest) {
    reasons.push_back(
        {"older template", fmt::format("the template of {} has changed", family->name)});
  }
  if (!scene.compiler_versions.contains(toolchain.compiler_version)) {
    const std::string what = is_host_arch(scene.gpu.arch) ? "compiler" : "nvrtc";
    reasons.push_back(
        {"other " + what, fmt::format("{} is {}, not {}", what, toolchain.compiler_version,
                                      fmt::join(scene.compiler_versions, " or "))});
  }
  std::vector<std::string> options;
  compare("compile options", compile_options(scene.gpu.arch), toolchain.options, &options);
  for (std::string& text : options) reasons.push_back({"other options", std::move(text)});
  return reasons;
}

// What keeps a stored winner from answering exactly.
std::vector<std::string> reasons_against(const Scene& scene, const std::string& identity,
                                         const Winner& winner) {
  std::vector<std::string> reasons = differing_fields(scene.problem, winner.problem);
  compare_gpus(scene.gpu.identity(), identity, &reasons);
  for (StaleReason& reason : toolchain_reasons(scene, winner)) {
    reasons.push_back(std::move(reason.text));
  }
  return reasons;
}

}  // namespace

std::vector<std::string> differing_fields(const Problem& asked, const Problem& tuned) {
  std::vector<std::string> differences;
  compare("op", name_of(asked.op), name_of(tuned.op), &differences);
  compare("batch", asked.batch, tuned.batch, &differences);
  compare("seqlen_q", asked.seqlen_q, tuned.seqlen_q, &differences);
  compare("kv", text_of(asked.kv), text_of(tuned.kv), &differences);
  compare("num_q_heads", asked.num_q_heads, tuned.num_q_heads, &differences);
  compare("num_kv_heads", asked.num_kv_heads, tuned.num_kv_heads, &differences);
  compare("head_dim", asked.head_dim, tuned.head_dim, &differences);
  compare("window", asked.window, tuned.window, &differences);
  compare("causal", asked.causal, tuned.causal, &differences);
  compare("softcap", asked.softcap, tuned.softcap, &differences);
  compare("invariant", asked.invariant, tuned.invariant, &differences);
  compare("page_size", asked.page_size, tuned.page_size, &differences);
  compare("kv_layout", name_of(asked.kv_layout), name_of(tuned.kv_layout), &differences);
  compare("dtype", name_of(asked.dtype), name_of(tuned.dtype), &differences);
  compare("tokens", asked.linear_tokens, tuned.linear_tokens, &differences);
  compare("out_features", asked.linear.out_features, tuned.linear.out_features, &differences);
  compare("in_features", asked.linear.in_features, tuned.linear.in_features, &differences);
  compare("epilogue", name_of(asked.linear.epilogue), name_of(tuned.linear.epilogue), &differences);
  compare("weights", name_of(asked.linear.weights), name_of(tuned.linear.weights), &differences);
  compare("experts", asked.linear.num_experts, tuned.linear.num_experts, &differences);
  compare("top_k", asked.linear.top_k, tuned.linear.top_k, &differences);
  return differences;
}

std::vector<StaleReason> stale_reasons(const Scene& scene, const Winner& winner) {
  std::vector<StaleReason> reasons = toolchain_reasons(scene, winner);
  if (winner.method < 0) {
    reasons.push_back({"partial", "its comparison is unfinished", true});
  } else if (winner.method != kTimingMethod) {
    reasons.push_back(
        {"older method", fmt::format("timed with the older method {}", winner.method), true});
  }
  const std::string& driver = scene.gpu.driver_version;
  if (!driver.empty() && winner.driver_version != driver) {
    reasons.push_back(
        {"other driver",
         fmt::format("timed with driver {}, this is {}", winner.driver_version, driver), true});
  }
  return reasons;
}

std::vector<std::string> miss_reasons(const Scene& scene, std::size_t limit) {
  std::vector<std::pair<std::size_t, std::string>> lines;
  for (const auto& [identity, winner] : scene.store.winners()) {
    const auto reasons = reasons_against(scene, identity, winner);
    if (reasons.empty()) continue;  // the exact winner
    lines.emplace_back(reasons.size(),
                       fmt::format("{}: {}", winner.problem.text(), fmt::join(reasons, ", ")));
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (lines.size() > limit) lines.resize(limit);
  std::vector<std::string> texts;
  for (auto& [count, text] : lines) texts.push_back(std::move(text));
  return texts;
}

}  // namespace attune
