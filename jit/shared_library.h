// Libraries that are opened at run time and never closed.
#pragma once

#include <string>

namespace attune {

struct SharedLibrary {
  void* handle = nullptr;  // nullptr when it cannot be opened
  std::string path;        // of the opened file
  std::string problem;     // "libcuda.so.1 (cannot open shared object file: ...)"
};

// `name` is a path, or a bare name for the loader to find.
SharedLibrary open_shared_library(const std::string& name);

// The address of an exported symbol, nullptr when there is none.
void* find_symbol(const SharedLibrary& library, const char* symbol);

template <typename Function>
void find_symbol(const SharedLibrary& library, const char* symbol, Function** function) {
  *function = reinterpret_cast<Function*>(find_symbol(library, symbol));
}

}  // namespace attune
