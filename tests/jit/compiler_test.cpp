#include "jit/compiler.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/support/require_nvrtc.h"

namespace attune {
namespace {

Source source_of(std::string text) {
  return {.text = std::move(text), .split_symbol = "sample", .combine_symbol = {}, .headers = {}};
}

constexpr const char* kTrivialKernel =
    "extern \"C\" __global__ void trivial(float* p) { p[threadIdx.x] = 1.0f; }\n";

class CompilerTest : public NvrtcTest {};

TEST_F(CompilerTest, CompilesATrivialKernel) {
  const Binary binary = compiler().compile(source_of(kTrivialKernel), "sm_80");
  EXPECT_FALSE(binary.cubin.empty());
  EXPECT_EQ(binary.content, digest_of(binary.cubin));
  EXPECT_EQ(binary.key, compiler().key(source_of(kTrivialKernel), "sm_80"));
  EXPECT_EQ(binary.arch, "sm_80");
  EXPECT_EQ(binary.compiler_version, compiler().version());
  EXPECT_EQ(binary.options, compile_options("sm_80"));
  EXPECT_GT(binary.compile_ms, 0);
  ASSERT_EQ(binary.kernels.size(), 1u);
  EXPECT_EQ(binary.kernels[0].symbol, "trivial");
  EXPECT_GT(binary.kernels[0].registers, 0);
  EXPECT_EQ(binary.kernels[0].spill_store_bytes, 0);
}

TEST_F(CompilerTest, GivesTheSameBytesTwice) {
  const Binary first = compiler().compile(source_of(kTrivialKernel), "sm_90a");
  const Binary second = compiler().compile(source_of(kTrivialKernel), "sm_90a");
  EXPECT_EQ(first.content, second.content);
  EXPECT_EQ(first.key, second.key);
}

TEST_F(CompilerTest, ReadsHeadersFromMemory) {
  Source source = source_of(
      "#include \"templates/x.h\"\nextern \"C\" __global__ void k(int* p) { *p = value(); }\n");
  source.headers = {{"templates/x.h", "constexpr int value() { return 3; }\n"}};
  EXPECT_EQ(compiler().compile(source, "sm_80").kernels.size(), 1u);
}

TEST_F(CompilerTest, ShowsTheLogAndTheSourceOfAnError) {
  try {
    compiler().compile(source_of("extern \"C\" __global__ void k() { nosuch(); }\n"), "sm_80");
    FAIL() << "compiled a call of an undeclared function";
  } catch (const CompileError& error) {
    EXPECT_NE(error.log().find("nosuch"), std::string::npos);
    EXPECT_NE(error.source().find("nosuch"), std::string::npos);
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("cannot compile the kernel: source=sample arch=sm_80 nvrtc="))
        << message;
    EXPECT_NE(message.find("nosuch"), std::string::npos) << message;
  }
}

TEST_F(CompilerTest, RefusesAnUnknownArchitecture) {
  EXPECT_THROW(compiler().compile(source_of(kTrivialKernel), "sm_999"), CompileError);
}

TEST_F(CompilerTest, ReportsASpillOfARealCompile) {
  const char* text = R"(extern "C" __global__ void __launch_bounds__(1024) spill(float* p) {
  float a[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) a[i] = p[i * 1024 + threadIdx.x];
  for (int k = 0; k < 10; ++k) {
#pragma unroll
    for (int i = 0; i < 64; ++i) a[i] = a[i] * a[(i + 1) % 64] + p[k];
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) p[i * 1024 + threadIdx.x] = a[i];
})";
  const Binary binary = compiler().compile(source_of(text), "sm_80");
  ASSERT_EQ(binary.kernels.size(), 1u);
  EXPECT_GT(binary.kernels[0].spill_store_bytes, 0);
  EXPECT_GT(binary.kernels[0].spill_load_bytes, 0);
  EXPECT_GT(binary.kernels[0].stack_bytes, 0);
}

TEST_F(CompilerTest, ReportsSharedMemoryAndNotesOfARealCompile) {
  const char* text = R"(extern "C" __global__ void __launch_bounds__(128) k(float* p) {
  __shared__ float s[128];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  p[threadIdx.x] = s[127 - threadIdx.x];
})";
  const Binary binary = compiler().compile(source_of(text), "sm_90a");
  ASSERT_EQ(binary.kernels.size(), 1u);
  EXPECT_EQ(binary.kernels[0].static_smem_bytes, 512);
  const bool has_fatal_note = std::any_of(binary.notes.begin(), binary.notes.end(), is_fatal_note);
  EXPECT_TRUE(has_fatal_note) << binary.log;
}

TEST_F(CompilerTest, OpensTheLibraryByItsPathAndByItsFolder) {
  const std::filesystem::path library = compiler().path();
  for (const std::filesystem::path& place : {library, library.parent_path()}) {
    const auto opened = open_compiler({.nvrtc = {place, {}}}, "sm_80");
    EXPECT_EQ(opened->version(), compiler().version()) << place;
  }
}

// Every kernel of `source` compiles for `arch` without a spill, a stack frame or a fatal note.
void expect_clean(const Compiler& compiler, const Source& source, const std::string& arch,
                  const std::vector<std::string>& symbols) {
  const Binary binary = compiler.compile(source, arch);
  EXPECT_EQ(binary.kernels.size(), symbols.size());
  for (const std::string& symbol : symbols) {
    const auto same = [&](const KernelResources& kernel) { return kernel.symbol == symbol; };
    EXPECT_TRUE(std::any_of(binary.kernels.begin(), binary.kernels.end(), same)) << symbol;
  }
  for (const KernelResources& kernel : binary.kernels) {
    SCOPED_TRACE(kernel.symbol + " " + arch);
    EXPECT_GT(kernel.registers, 0);
    EXPECT_EQ(kernel.spill_store_bytes, 0);
    EXPECT_EQ(kernel.spill_load_bytes, 0);
    EXPECT_EQ(kernel.stack_bytes, 0);
  }
  for (const std::string& note : binary.notes) EXPECT_FALSE(is_fatal_note(note)) << note;
}

class CompilerArchTest : public CompilerTest, public testing::WithParamInterface<const char*> {};

TEST_P(CompilerArchTest, CompilesTheProbes) {
  expect_clean(compiler(), probe_source(GetParam()), GetParam(),
               {"fill_noise", "probe_read", "probe_tensor", "copy_late"});
}

TEST_P(CompilerArchTest, CompilesAttentionOfEveryHeadDim) {
  for (const char* text :
       {"splitkv/d64/contiguous/bf16/m16n16s2w2", "splitkv/d64/ring/bf16/softcap/m64n64s2w4",
        "splitkv/d128/ring/bf16/m16n32s2w4", "splitkv/d128/contiguous/bf16/softcap/m64n64s2w8",
        "splitkv/d256/contiguous/bf16/m16n64s2w8", "splitkv/d256/ring/bf16/softcap/m32n32s2w8",
        "splitkv/d512/ring/bf16/m16n64s1w8", "splitkv/d512/contiguous/bf16/softcap/m32n32s2w8"}) {
    SCOPED_TRACE(text);
    const Variant variant = Variant::parse(text);
    const Source source = attention_source(variant);
    expect_clean(compiler(), source, GetParam(), {source.split_symbol, source.combine_symbol});
  }
}

INSTANTIATE_TEST_SUITE_P(All, CompilerArchTest,
                         testing::Values("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace attune
