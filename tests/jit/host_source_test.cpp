#include "jit/host/host_source.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "jit/compiler.h"

namespace attune {
namespace {

const EmbeddedFile* find(const Source& source, std::string_view name) {
  const auto file = std::find_if(source.headers.begin(), source.headers.end(),
                                 [&](const EmbeddedFile& one) { return one.name == name; });
  return file == source.headers.end() ? nullptr : &*file;
}

std::vector<std::string> names(const Source& source) {
  std::vector<std::string> all;
  for (const EmbeddedFile& file : source.headers) all.emplace_back(file.name);
  return all;
}

// A unit that includes a device file, which includes one more.
Source sample_source() {
  return {.text = "#include \"templates/a.cuh\"\nkernels\n",
          .split_symbol = "split",
          .combine_symbol = "combine",
          .symbols = {"split", "combine"},
          .headers = {{"templates/a.cuh", "#include \"templates/device/ptx.cuh\"\n"},
                      {"templates/device/ptx.cuh", "#include \"templates/only_gpu.h\"\nasm\n"},
                      {"templates/only_gpu.h", "text\n"},
                      {"templates/host/language.h", "#include \"templates/host/more.h\"\n"},
                      {"templates/host/more.h", "text\n"},
                      {"templates/host/ptx.h", "software\n"}}};
}

TEST(ForHost, PutsTheLanguageInFrontAndTheEntriesBehind) {
  const Source unit = for_host(sample_source());
  EXPECT_EQ(unit.text,
            "#include \"templates/host/language.h\"\n"
            "#include \"templates/a.cuh\"\nkernels\n\n"
            "ATTUNE_HOST_MODULE\nATTUNE_HOST_ENTRY(split)\nATTUNE_HOST_ENTRY(combine)\n");
  EXPECT_EQ(unit.split_symbol, "split");
  EXPECT_EQ(unit.combine_symbol, "combine");
  EXPECT_EQ(unit.symbols, sample_source().symbols);
}

TEST(ForHost, HoldsWhatIsIncludedThereAndNothingElse) {
  EXPECT_EQ(names(for_host(sample_source())),
            (std::vector<std::string>{"templates/host/language.h", "templates/host/more.h",
                                      "templates/a.cuh", "templates/device/ptx.cuh",
                                      "templates/host/ptx.h"}));
}

TEST(ForHost, PutsTheHostsFilesInPlaceOfThosePtx) {
  Source source = sample_source();
  source.text += "#include \"templates/device/ptx_hopper.cuh\"\n";
  source.headers.push_back({"templates/device/ptx_hopper.cuh", "asm\n"});
  const Source unit = for_host(source);
  for (const auto& [device, host] :
       {std::pair("templates/device/ptx.cuh", "#include \"templates/host/ptx.h\"\n"),
        std::pair("templates/device/ptx_hopper.cuh",
                  "#include \"templates/host/ptx_hopper.h\"\n")}) {
    ASSERT_NE(find(unit, device), nullptr) << device;
    EXPECT_EQ(find(unit, device)->text, std::string("#pragma once\n") + host);
  }
}

TEST(ForHost, LeavesASourceOfTheHostAlone) {
  const Source once = for_host(sample_source());
  const Source twice = for_host(once);
  EXPECT_EQ(twice.text, once.text);
  EXPECT_EQ(names(twice), names(once));
}

TEST(ForHost, NamesEveryKernelOfTheRealSources) {
  const Source attention =
      attention_source(Variant::parse("splitkv/d64/contiguous/bf16/m16n16s2w2"));
  EXPECT_EQ(attention.symbols, (std::vector{attention.split_symbol, attention.combine_symbol}));
  EXPECT_NE(for_host(attention).text.find("ATTUNE_HOST_ENTRY(" + attention.split_symbol + ")\n"),
            std::string::npos);
  const Source probes = for_host(probe_source("host"));
  EXPECT_EQ(probes.symbols,
            (std::vector<std::string>{"fill_noise", "probe_read", "probe_tensor", "copy_late"}));
  for (const std::string& symbol : probes.symbols) {
    EXPECT_NE(probes.text.find("ATTUNE_HOST_ENTRY(" + symbol + ")\n"), std::string::npos);
  }
}

TEST(ForHost, CarriesNoPtxInTheRealSources) {
  for (const Source& source :
       {attention_source(Variant::parse("splitkv/d64/contiguous/bf16/m16n16s2w2")),
        probe_source("host")}) {
    for (const EmbeddedFile& file : for_host(source).headers) {
      EXPECT_EQ(file.text.find("asm volatile"), std::string_view::npos) << file.name;
    }
  }
}

TEST(HostSourceKey, CountsWhatIsCompiledForTheHost) {
  const auto key = [](const Source& source, const char* arch) {
    return source_key(source, arch, "-O2", "g++ 12.2.0");
  };
  const Source base = sample_source();
  Source other = base;
  other.headers.back().text = "other software\n";
  EXPECT_NE(key(other, "host"), key(base, "host"));
  other = base;
  other.headers[3].text = "other language\n";
  EXPECT_NE(key(other, "host"), key(base, "host"));
  other = base;
  other.symbols.pop_back();
  EXPECT_NE(key(other, "host"), key(base, "host"));
  other = base;
  other.headers[2].text = "changed for GPUs only\n";
  EXPECT_EQ(key(other, "host"), key(base, "host"));
  EXPECT_NE(key(base, "host"), key(base, "host+checks"));
}

TEST(HostSourceKey, IsThatOfTheSourceThatAWorkerGets) {
  EXPECT_EQ(source_key(for_host(sample_source()), "host", "-O2", "g++ 12.2.0"),
            source_key(sample_source(), "host", "-O2", "g++ 12.2.0"));
}

TEST(TemplateDigest, CountsTheFilesOfTheHostOnTheHostOnly) {
  const Family& family = families().front();
  EXPECT_EQ(template_digest(family, "sm_90a"), family.template_digest());
  EXPECT_NE(template_digest(family, "host"), family.template_digest());
  EXPECT_EQ(template_digest(family, "host"), template_digest(family, "host+checks"));
}

}  // namespace
}  // namespace attune
