// The bugs that isolation_gpu_test plants are CUDA C++, so that they fail where they should: when they
// run.
#include <gtest/gtest.h>

#include "tests/support/planted_compiles.h"
#include "tests/support/require_nvrtc.h"

namespace attune {
namespace {

using PlantedNvrtcTest = NvrtcTest;

TEST_F(PlantedNvrtcTest, EveryBugCompilesForAGpu) {
  const Problem problem = Problem::parse("decode/b1/q1/kv1-16/h1x1/d64/contiguous/bf16");
  const Variant variant = Candidate::parse("splitkv/m16n32s2w2/x1").variant(problem);
  const Binary clean = compiler().compile(attention_source(variant), "sm_90a");
  const std::pair<const char*, Bug> bugs[] = {
      {"wild write", wild_write()},
      {"write before the output", write_before_the_output()},
      {"trap", trap()},
      {"misaligned access", misaligned_access()},
      {"endless loop", when_timed(endless_loop())},
      {"half of the output", half_of_the_output()},
      {"wrong by a percent", wrong_by_a_percent()},
      {"NaN at length 0", nan_at_length_0()},
      {"shared memory overrun", shared_memory_overrun()}};
  for (const auto& [name, bug] : bugs) {
    SCOPED_TRACE(name);
    Planted kernel(attention_source(variant));
    bug(&kernel);
    Binary binary;
    ASSERT_NO_THROW(binary = compiler().compile(kernel.source(), "sm_90a"));
    EXPECT_NE(binary.content, clean.content);
    for (const KernelResources& one : binary.kernels) {  // or it would be dropped before it runs
      EXPECT_EQ(one.spill_store_bytes, 0) << one.symbol;
      EXPECT_EQ(one.stack_bytes, 0) << one.symbol;
    }
  }
}

}  // namespace
}  // namespace attune
