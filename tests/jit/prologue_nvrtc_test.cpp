// Every prologue and the state kernel compile for every architecture without spills, stack or
// notes.
#include <gtest/gtest.h>

#include "jit/source.h"
#include "tests/support/prologue_run.h"
#include "tests/support/require_nvrtc.h"

namespace attune {
namespace {

class PrologueCompileTest : public NvrtcTest, public testing::WithParamInterface<const char*> {};

TEST_P(PrologueCompileTest, SpillsNothing) {
  // 512 threads an SM at the least, whatever the layout.
  constexpr int kMaxRegisters = 96;
  std::vector<Source> sources = {state_source()};
  for (const PrologueKernelName& name : prologue_kernels()) {
    sources.push_back(prologue_source(name.head_dim, name.layout));
  }
  int most_registers = 0;
  for (const Source& source : sources) {
    SCOPED_TRACE(source.symbols.front());
    const Binary binary = compiler().compile(source, GetParam());
    EXPECT_EQ(binary.kernels.size(), 1u);
    for (const std::string& note : binary.notes) ADD_FAILURE() << note;
    for (const KernelResources& kernel : binary.kernels) {
      EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes, 0);
      EXPECT_EQ(kernel.stack_bytes, 0);
      EXPECT_LE(kernel.registers, kMaxRegisters);
      most_registers = std::max(most_registers, kernel.registers);
    }
  }
  RecordProperty("registers", most_registers);
}

INSTANTIATE_TEST_SUITE_P(All, PrologueCompileTest,
                         testing::Values("sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace attune
