#include "common/error.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace attune {
namespace {

std::string compose(std::string_view what_failed, std::string_view values,
                    std::string_view what_to_do) {
  std::string message(what_failed);
  if (!values.empty()) message += fmt::format(": {}", values);
  if (!what_to_do.empty()) message += fmt::format("; {}", what_to_do);
  return message;
}

// The first line of a compiler log that names an error, or nothing.
std::string_view first_line_with_error(std::string_view log) {
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string_view line = log.substr(begin, end - begin);
    if (line.find("error") != std::string_view::npos) return line;
    begin = end + 1;
  }
  return {};
}

}  // namespace

Error::Error(std::string_view what_failed, std::string_view values, std::string_view what_to_do)
    : std::runtime_error(compose(what_failed, values, what_to_do)) {}

CudaError::CudaError(std::string_view what_failed, int code, std::string_view name,
                     std::string_view values, std::string_view what_to_do)
    : Error(what_failed,
            values.empty() ? fmt::format("status={} ({})", name, code)
                           : fmt::format("status={} ({}) {}", name, code, values),
            what_to_do),
      code_(code),
      name_(name) {}

CompileError::CompileError(std::string_view what_failed, std::string_view values, std::string log,
                           std::string source)
    : Error(what_failed, values, first_line_with_error(log)),
      log_(std::move(log)),
      source_(std::move(source)) {}

CacheError::CacheError(std::string_view what_failed, std::string_view values,
                       std::string_view what_to_do, int sqlite_code)
    : Error(what_failed, values, what_to_do), sqlite_code_(sqlite_code) {}

}  // namespace attune
