// A kernel of the host device and the compilers it is given to, with a language header of the
// tests' own in place of the real one.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "jit/compiler.h"
#include "tests/support/temporary_folder.h"

namespace attune {

inline constexpr const char* kLanguage = R"(#pragma once
#define __global__
#define ATTUNE_TEST_EXPORT extern "C" __attribute__((visibility("default"), used))
#define ATTUNE_HOST_MODULE ATTUNE_TEST_EXPORT int version() { return ATTUNE_HOST; }
#define ATTUNE_HOST_ENTRY(symbol) \
  ATTUNE_TEST_EXPORT void attune_entry_##symbol(int* p) { symbol(p); }
#ifdef __SANITIZE_THREAD__
ATTUNE_TEST_EXPORT int num_writes;
int num_writes = 0;
#define ATTUNE_TEST_HOOK extern "C" __attribute__((no_sanitize("thread"), used)) void
ATTUNE_TEST_HOOK __tsan_init() {}
ATTUNE_TEST_HOOK __tsan_func_entry(void*) {}
ATTUNE_TEST_HOOK __tsan_func_exit() {}
ATTUNE_TEST_HOOK __tsan_write4(void*) { ++num_writes; }
#endif
)";

// One kernel, "store"; the header it includes holds `body`.
inline Source store_source(const char* header = "constexpr int kValue = 3;\n") {
  return {.text =
              "#include \"templates/x.h\"\n"
              "extern \"C\" __global__ void store(int* p) { *p = kValue; }\n",
          .split_symbol = "store",
          .combine_symbol = {},
          .symbols = {"store"},
          .headers = {{"templates/x.h", header}, {"templates/host/language.h", kLanguage}}};
}

// Sets a variable of this process for a while.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    const char* before = std::getenv(name);
    if (before != nullptr) before_ = before;
    had_value_ = before != nullptr;
    setenv(name, value.c_str(), 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { had_value_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string before_;
  bool had_value_ = false;
};

// A program that answers as g++ 99.1.2 does when it is asked for its macros, and else runs `work`.
inline std::unique_ptr<Compiler> fake_compiler(const TemporaryFolder& folder,
                                               const std::string& work) {
  const auto program = folder.write_script(
      "fake",
      "case \"$*\" in\n*-dM*) echo '#define __GNUC__ 99'; echo '#define __GNUC_MINOR__ 1'\n"
      "echo '#define __GNUC_PATCHLEVEL__ 2'; exit 0;;\nesac\n" +
          work);
  return open_compiler({.host = {.cxx = program.string()}}, "host");
}

}  // namespace attune
