#include <algorithm>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/compiler.h"
#include "jit/source.h"

namespace attune {
namespace {

Variant sample_variant() {
  return {.family = "splitkv",
          .head_dim = 512,
          .kv_layout = KvLayout::kRing,
          .softcap = true,
          .dtype = DataType::kBf16,
          .config = {.block_m = 16, .block_n = 64, .num_stages = 1, .num_warps = 8}};
}

constexpr const char* kSampleText =
    R"(#include "templates/splitkv.cuh"

constexpr attune::KernelConfig kConfig{
    .block_m = 16, .block_n = 64, .num_stages = 1, .num_warps = 8};
static_assert(sizeof(attune::AttentionParams) == 512, "host and device disagree on AttentionParams");
static_assert(attune::splitkv_smem_bytes(kConfig, 512, attune::KvLayout::kRing) == 150592, "host and device disagree on smem");

extern "C" __global__ void __launch_bounds__(256, attune::one_cta_per_sm(150592))
splitkv_d512_ring_bf16_softcap_m16n64s1w8(const __grid_constant__ attune::AttentionParams p) {
  attune::splitkv<kConfig, 512, attune::KvLayout::kRing, true, false>(p);
}

#include "templates/combine.cuh"

extern "C" __global__ void __launch_bounds__(attune::kCombineThreads, attune::kCombineCtasPerSm)
combine_d512_bf16(const __grid_constant__ attune::AttentionParams p) {
  attune::combine<kConfig, 512, false, false>(p);
}
)";

bool has_header(const Source& source, std::string_view name) {
  return std::any_of(source.headers.begin(), source.headers.end(),
                     [&](const EmbeddedFile& file) { return file.name == name; });
}

TEST(AttentionSource, WritesTheKernelsOfAVariant) {
  const Source source = attention_source(sample_variant());
  EXPECT_EQ(source.text, kSampleText);
  EXPECT_EQ(source.split_symbol, "splitkv_d512_ring_bf16_softcap_m16n64s1w8");
  EXPECT_EQ(source.combine_symbol, "combine_d512_bf16");
}

TEST(AttentionSource, CarriesTheHeadersItIncludesAndNoOthers) {
  const Source source = attention_source(sample_variant());
  EXPECT_TRUE(has_header(source, "templates/splitkv.cuh"));
  EXPECT_TRUE(has_header(source, "templates/device/ptx.cuh"));
  EXPECT_FALSE(has_header(source, "templates/probe.cuh"));
  for (const EmbeddedFile& header : source.headers) {
    const auto same = [&](const EmbeddedFile& file) { return file.name == header.name; };
    EXPECT_EQ(std::count_if(source.headers.begin(), source.headers.end(), same), 1) << header.name;
  }
}

TEST(AttentionSource, SpellsSymbolsWithoutSoftcap) {
  Variant variant = sample_variant();
  variant.softcap = false;
  variant.kv_layout = KvLayout::kContiguous;
  EXPECT_EQ(attention_symbols(variant).split, "splitkv_d512_contiguous_bf16_m16n64s1w8");
  EXPECT_NE(attention_source(variant).text.find("KvLayout::kContiguous, false, false>(p)"),
            std::string::npos);
}

TEST(AttentionSource, RefusesAnUnknownFamily) {
  Variant variant = sample_variant();
  variant.family = "nosuch";
  EXPECT_THROW(attention_source(variant), InvalidArgument);
}

TEST(ProbeSource, SelectsWgmmaOnlyWhereItExists) {
  EXPECT_TRUE(probe_source("sm_90a").text.starts_with("#define ATTUNE_ARCH_SM90A 1\n"));
  for (const char* arch : {"sm_80", "sm_89", "sm_100a", "sm_120"}) {
    EXPECT_EQ(probe_source(arch).text.find("ATTUNE_ARCH"), std::string::npos) << arch;
  }
}

TEST(SourceKey, ChangesWithEveryInput) {
  const Source source = attention_source(sample_variant());
  const Digest base = source_key(source, "sm_90a", "-O", "13.0");
  EXPECT_EQ(source_key(source, "sm_90a", "-O", "13.0"), base);
  EXPECT_NE(source_key(source, "sm_80", "-O", "13.0"), base);
  EXPECT_NE(source_key(source, "sm_90a", "-O2", "13.0"), base);
  EXPECT_NE(source_key(source, "sm_90a", "-O", "13.1"), base);

  Source other = source;
  other.text += ' ';
  EXPECT_NE(source_key(other, "sm_90a", "-O", "13.0"), base);
  other = source;
  const std::string changed = std::string(other.headers.back().text) + ' ';
  other.headers.back().text = changed;
  EXPECT_NE(source_key(other, "sm_90a", "-O", "13.0"), base);
  other = source;
  other.headers.back().name = "templates/renamed.h";
  EXPECT_NE(source_key(other, "sm_90a", "-O", "13.0"), base);
  other = source;
  other.headers.pop_back();
  EXPECT_NE(source_key(other, "sm_90a", "-O", "13.0"), base);
}

TEST(SourceKey, TellsNeighbouringInputsApart) {
  const Source source{.text = "x", .split_symbol = {}, .combine_symbol = {}, .headers = {}};
  EXPECT_NE(source_key(source, "sm_8", "0a", "1"), source_key(source, "sm_80", "a", "1"));
}

TEST(CompileOptions, NameTheArchitecture) {
  EXPECT_EQ(compile_options("sm_89"),
            "--gpu-architecture=sm_89 -std=c++20 -default-device -lineinfo --ptxas-options=-v");
}

}  // namespace
}  // namespace attune
