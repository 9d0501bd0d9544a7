// The configs of a family's space, compiled by NVRTC in worker processes.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "jit/device_info.h"
#include "tests/support/require_nvrtc.h"

namespace attune {

// The variants of a family for a head_dim that shared memory has room for, in all layouts, without
// softcap and with it.
inline std::vector<Variant> variants_of(const Family& family, int head_dim,
                                        const DeviceInfo& device) {
  std::vector<Variant> variants;
  for (const KvLayout layout : kKvLayouts) {
    for (const KernelConfig& config : family.configs(head_dim, layout)) {
      const int smem_bytes = family.smem_bytes(config, head_dim, layout);
      if (smem_bytes > device.max_smem_per_block_bytes) continue;
      for (const bool softcap : {false, true}) {
        variants.push_back(
            {std::string(family.name), head_dim, layout, softcap, false, DataType::kBf16, config});
      }
    }
  }
  return variants;
}

// Calls `report` with every variant and its binary. One that does not compile is a failure.
template <typename Report>
void compile_all(const std::vector<Variant>& variants, const std::string& arch,
                 const Report& report) {
  std::vector<CompileJob> jobs;
  for (const Variant& variant : variants) {
    jobs.push_back({jobs.size(), attention_source(variant), arch});
  }
  CompilePoolOptions options;
  options.compilers.nvrtc = test_nvrtc_search();
  CompilePool pool(options);
  const std::size_t done = pool.run(jobs, [&](const CompileOutcome& outcome) {
    SCOPED_TRACE(variants[outcome.id].text() + " " + arch);
    ASSERT_TRUE(outcome.binary) << outcome.error << outcome.log;
    report(variants[outcome.id], *outcome.binary);
  });
  EXPECT_EQ(done, jobs.size());
}

// Bytes of registers that were put into memory, by spills and by arrays on the stack.
inline int bytes_in_memory(const Binary& binary) {
  int bytes = 0;
  for (const KernelResources& kernel : binary.kernels) {
    bytes += kernel.spill_store_bytes + kernel.spill_load_bytes + kernel.stack_bytes;
  }
  return bytes;
}

}  // namespace attune
