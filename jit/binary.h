// A compiled translation unit and everything known about it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/text.h"

namespace attune {

// Resources of one kernel, as ptxas reported them; zeros on the host.
struct KernelResources {
  std::string symbol;
  int registers = 0;
  int stack_bytes = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  int static_smem_bytes = 0;
  friend bool operator==(const KernelResources&, const KernelResources&) = default;
};

struct Binary {
  Digest key;      // of all inputs: source, options, arch, compiler version
  Digest content;  // of `cubin`
  std::string arch;
  std::string compiler_version;  // "13.0" of NVRTC, "g++ 12.2.0" on the host
  std::string options;           // joined by spaces
  std::vector<std::byte> cubin;  // the shared object, on the host
  std::vector<KernelResources> kernels;
  std::vector<std::string> notes;  // ptxas notes such as "C7510: ..."
  std::string log;
  double compile_ms = 0;
};

}  // namespace attune
