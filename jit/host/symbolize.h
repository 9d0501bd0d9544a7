// Where in the source a code address of a loaded kernel is. Slow: for reports only.
#pragma once

#include <string>
#include <vector>

namespace attune::host {

struct CodeFrame {
  std::string function;  // demangled, with its parameters when the debug information has them
  std::string file;      // as the compiler was given it: "templates/splitkv.cuh"
  int line = 0;          // 0: unknown
  friend bool operator==(const CodeFrame&, const CodeFrame&) = default;
};

// Innermost first: behind the first frame the functions that it was inlined into. Never empty for
// an address of a loaded file; the last resort is "symbol+0x12 of kernel.so".
struct CodeLocation {
  std::vector<CodeFrame> frames;
};

// `code` is a return address, as __builtin_return_address(0) gives it: the line of the call in
// front of it is found. Asks addr2line or llvm-symbolizer, run as a child process; without them
// the loader's symbol table. Throws nothing but bad_alloc.
CodeLocation symbolize(const void* code);

// "templates/splitkv.cuh:214 (make_probabilities), inlined at templates/splitkv.cuh:530
// (run_tile)"; empty without frames.
std::string to_text(const CodeLocation& location);

}  // namespace attune::host
