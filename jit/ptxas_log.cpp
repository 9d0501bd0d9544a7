// What ptxas prints with -v, per entry function:
//   ptxas info    : Compiling entry function 'spill' for 'sm_90a'
//   ptxas info    : Function properties for spill
//   ptxas         .     632 bytes stack frame, 1480 bytes spill stores, 1480 bytes spill loads
//   ptxas info    : Used 32 registers, 632 bytes cumulative stack size, 128 bytes smem
//   ptxas info    : Function properties for helper
//   ptxas info    : (C7510) Potential Performance Loss: ...
// A function that was not inlined, as `helper`, follows its caller.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "common/text.h"
#include "jit/compiler.h"

namespace attune {
namespace {

// The number right before `label`, as in "128 bytes smem".
std::optional<int> number_before(std::string_view line, std::string_view label) {
  const std::size_t at = line.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  const auto number = parse_int(line.substr(begin, at - begin));
  if (!number || *number > 1 << 30) return std::nullopt;
  return static_cast<int>(*number);
}

// The text between `before` and the next single quote.
std::optional<std::string_view> quoted_after(std::string_view line, std::string_view before) {
  const std::size_t at = line.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const std::size_t begin = at + before.size();
  const std::size_t end = line.find('\'', begin);
  if (end == std::string_view::npos) return std::nullopt;
  return line.substr(begin, end - begin);
}

// "(C7510) Potential ..." anywhere in the line, as "C7510: Potential ...".
std::optional<std::string> note_in(std::string_view line) {
  constexpr std::size_t kCodeLength = 7;  // "(C7510)"
  for (std::size_t at = line.find("(C"); at != std::string_view::npos;
       at = line.find("(C", at + 1)) {
    if (at + kCodeLength > line.size() || line[at + kCodeLength - 1] != ')') continue;
    const std::string_view code = line.substr(at + 1, kCodeLength - 2);
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (!std::all_of(code.begin() + 1, code.end(), is_digit)) continue;
    std::string_view text = line.substr(at + kCodeLength);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    return fmt::format("{}: {}", code, text);
  }
  return std::nullopt;
}

// Adds what a properties line says to the entry it belongs to. A function that was not inlined
// counts towards its caller: its spills cost the same.
void add_properties(std::string_view line, KernelResources* entry) {
  if (const auto stack = number_before(line, " bytes stack frame")) {
    entry->stack_bytes = std::max(entry->stack_bytes, *stack);
    entry->spill_store_bytes += number_before(line, " bytes spill stores").value_or(0);
    entry->spill_load_bytes += number_before(line, " bytes spill loads").value_or(0);
  }
  if (const auto registers = number_before(line, " registers")) {
    entry->registers = *registers;
    entry->static_smem_bytes = number_before(line, " bytes smem").value_or(0);
    const int cumulative = number_before(line, " bytes cumulative stack size").value_or(0);
    entry->stack_bytes = std::max(entry->stack_bytes, cumulative);
  }
}

}  // namespace

PtxasReport parse_ptxas_log(const std::string& log) {
  PtxasReport report;
  for (std::string_view line : split(log, '\n')) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (auto note = note_in(line)) {
      report.notes.push_back(std::move(*note));
    } else if (const auto symbol = quoted_after(line, "Compiling entry function '")) {
      report.kernels.emplace_back().symbol = *symbol;
    } else if (!report.kernels.empty()) {
      add_properties(line, &report.kernels.back());
    }
  }
  return report;
}

bool is_fatal_note(const std::string& note) {
  // Ignored setmaxnreg; then wgmma that is serialized or has its registers guarded.
  constexpr std::array<std::string_view, 10> kFatal = {"C7504", "C7505", "C7508", "C7509", "C7510",
                                                       "C7511", "C7512", "C7517", "C7519", "C7520"};
  return std::any_of(kFatal.begin(), kFatal.end(),
                     [&](std::string_view code) { return note.starts_with(code); });
}

}  // namespace attune
