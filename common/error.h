// Errors of attune. An exception ends the operation; a value that a caller branches on is never
// thrown.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace attune {

// The message reads "what failed: the values; what to do", the last two parts left out when empty.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view what_failed, std::string_view values = {},
                 std::string_view what_to_do = {});
};

// An argument, a text form or a file given by the user breaks its contract.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// No driver, no NVRTC or no usable GPU on this machine.
class DeviceUnavailable : public Error {
 public:
  using Error::Error;
};

// A driver call failed. `code` is the CUresult, `name` its symbolic name.
class CudaError : public Error {
 public:
  CudaError(std::string_view what_failed, int code, std::string_view name,
            std::string_view values = {}, std::string_view what_to_do = {});
  int code() const noexcept { return code_; }
  const std::string& name() const noexcept { return name_; }

 private:
  int code_;
  std::string name_;
};

// A source did not compile. `log` is the compiler's output, `source` the translation unit.
class CompileError : public Error {
 public:
  CompileError(std::string_view what_failed, std::string_view values, std::string log,
               std::string source);
  const std::string& log() const noexcept { return log_; }
  const std::string& source() const noexcept { return source_; }

 private:
  std::string log_;
  std::string source_;
};

// The tuning cache cannot be used. `sqlite_code` is the extended SQLite code, 0 when SQLite is not
// the cause.
class CacheError : public Error {
 public:
  CacheError(std::string_view what_failed, std::string_view values = {},
             std::string_view what_to_do = {}, int sqlite_code = 0);
  int sqlite_code() const noexcept { return sqlite_code_; }

 private:
  int sqlite_code_;
};

}  // namespace attune
