#include <gtest/gtest.h>

#include "jit/compiler.h"

namespace attune {
namespace {

// Logs of NVRTC 13.0, unabridged.
constexpr const char* kSpillLog =
    R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'spill' for 'sm_90a'
ptxas info    : Function properties for spill
ptxas         .     632 bytes stack frame, 1480 bytes spill stores, 1484 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 632 bytes cumulative stack size
ptxas info    : Compile time = 42.509 ms
ptxas info    : Compiling entry function 'stack' for 'sm_90a'
ptxas info    : Function properties for stack
ptxas         .     256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 39 registers, used 0 barriers, 256 bytes cumulative stack size
ptxas info    : Compile time = 8.337 ms
ptxas info    : Compiling entry function 'trivial' for 'sm_90a'
ptxas info    : Function properties for trivial
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compile time = 1.376 ms
)";

constexpr const char* kNoteLog =
    R"(ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : (C7519) warpgroup.arrive is injected in around line 61 by compiler to allow use of registers in GMMA in function 'wg'
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'wg'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'wg' for 'sm_90a'
ptxas info    : Function properties for wg
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
ptxas info    : Compile time = 9.775 ms
)";

constexpr const char* kConstantMemoryLog =
    R"(ptxas info    : Compiling entry function 'trivial' for 'sm_89'
ptxas info    : Function properties for trivial
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 128 bytes smem, 360 bytes cmem[0]
)";

constexpr const char* kNotInlinedLog =
    R"(ptxas info    : Compiling entry function 'caller' for 'sm_90a'
ptxas info    : Function properties for caller
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 160 bytes cumulative stack size
ptxas info    : Compile time = 15.653 ms
ptxas info    : Function properties for _Z6helperPfi
ptxas         .     64 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
)";

TEST(PtxasLog, GivesEachKernelItsOwnResources) {
  const PtxasReport report = parse_ptxas_log(kSpillLog);
  const std::vector<KernelResources> expected = {
      {.symbol = "spill",
       .registers = 32,
       .stack_bytes = 632,
       .spill_store_bytes = 1480,
       .spill_load_bytes = 1484,
       .static_smem_bytes = 0},
      {.symbol = "stack",
       .registers = 39,
       .stack_bytes = 256,
       .spill_store_bytes = 0,
       .spill_load_bytes = 0,
       .static_smem_bytes = 0},
      {.symbol = "trivial",
       .registers = 10,
       .stack_bytes = 0,
       .spill_store_bytes = 0,
       .spill_load_bytes = 0,
       .static_smem_bytes = 128},
  };
  EXPECT_EQ(report.kernels, expected);
  EXPECT_TRUE(report.notes.empty());
}

TEST(PtxasLog, KeepsNotesWithTheirCodeInFront) {
  const PtxasReport report = parse_ptxas_log(kNoteLog);
  ASSERT_EQ(report.notes.size(), 3u);
  EXPECT_EQ(report.notes[0],
            "C7508: Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register "
            "count at entry.");
  EXPECT_TRUE(report.notes[1].starts_with("C7519: warpgroup.arrive is injected"));
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.kernels[0].registers, 30);
  for (const std::string& note : report.notes) EXPECT_TRUE(is_fatal_note(note)) << note;
}

TEST(PtxasLog, ReadsSharedMemoryBesideConstantMemory) {
  const PtxasReport report = parse_ptxas_log(kConstantMemoryLog);
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.kernels[0].static_smem_bytes, 128);
}

TEST(PtxasLog, CountsAFunctionThatWasNotInlinedTowardsItsCaller) {
  const PtxasReport report = parse_ptxas_log(kNotInlinedLog);
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.kernels[0].stack_bytes, 160);
  EXPECT_EQ(report.kernels[0].spill_store_bytes, 8);
  EXPECT_EQ(report.kernels[0].spill_load_bytes, 12);
}

TEST(PtxasLog, IsEmptyForAnEmptyLog) {
  const PtxasReport report = parse_ptxas_log("");
  EXPECT_TRUE(report.kernels.empty());
  EXPECT_TRUE(report.notes.empty());
}

TEST(PtxasLog, IgnoresWhatItCannotRead) {
  const PtxasReport report = parse_ptxas_log(
      "Compiling entry function 'cut off\n(C75\n(C7x10) no note\nUsed registers\n"
      "99999999999999999999 bytes stack frame, 4 bytes spill stores\n");
  EXPECT_TRUE(report.kernels.empty());
  EXPECT_TRUE(report.notes.empty());
}

TEST(PtxasLog, TakesLinesThatEndInCarriageReturns) {
  const PtxasReport report = parse_ptxas_log(
      "ptxas info : Compiling entry function 'k' for 'sm_80'\r\nptxas info : Used 7 registers\r\n"
      "ptxas info : (C7505) late\r\n");
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.kernels[0].registers, 7);
  EXPECT_EQ(report.notes, std::vector<std::string>{"C7505: late"});
}

TEST(PtxasLog, CallsOnlyTheListedNotesFatal) {
  for (const char* code :
       {"C7504", "C7505", "C7508", "C7509", "C7510", "C7511", "C7512", "C7517", "C7519", "C7520"}) {
    EXPECT_TRUE(is_fatal_note(std::string(code) + ": x")) << code;
  }
  for (const char* code : {"C7503", "C7506", "C7513", "C7518", "C7521", ""}) {
    EXPECT_FALSE(is_fatal_note(std::string(code) + ": x")) << code;
  }
}

}  // namespace
}  // namespace attune
