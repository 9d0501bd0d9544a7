#include <cstdlib>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/attune.h"

namespace attune {
namespace {

// An environment of the test's own; the variables are gone after it.
class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() { clear(); }
  ~OptionsTest() override { clear(); }
  static void clear() {
    for (const char* name :
         {"ATTUNE_CACHE", "ATTUNE_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "ATTUNE_CACHE_BASE",
          "ATTUNE_CACHE_MAX_SIZE", "ATTUNE_GPU_ALIAS", "ATTUNE_DEVICE", "ATTUNE_NVRTC",
          "ATTUNE_CUBLASLT", "ATTUNE_CXX", "ATTUNE_WORKER", "ATTUNE_TUNE_WORKER",
          "ATTUNE_MEASURE_WORKER", "ATTUNE_DISABLE_FAMILIES"}) {
      unsetenv(name);
    }
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(OptionsTest, AnEmptyEnvironmentMeansMemoryAlone) {
  const Options options = Options::from_environment();
  EXPECT_EQ(options.cache_path, "");
  EXPECT_EQ(options.device, "");
  EXPECT_EQ(options.nvrtc_path, "");
  EXPECT_EQ(options.cxx_path, "");
  EXPECT_EQ(options.worker_path, "");
  EXPECT_EQ(options.on_miss, OnMiss::kDefault);
  EXPECT_FALSE(options.strict);
}

TEST_F(OptionsTest, AWrongValueIsRefusedWithTheNameOfItsVariable) {
  for (const auto& [name, value] : {std::pair("ATTUNE_CACHE_MAX_SIZE", "much"),
                                    std::pair("ATTUNE_DISABLE_FAMILIES", "splitkv,spiltkv")}) {
    set(name, value);
    try {
      Options::from_environment();
      ADD_FAILURE() << name;
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(std::string("cannot use ") + name))
          << error.what();
    }
    unsetenv(name);
  }
}

TEST_F(OptionsTest, TheMoreSpecialPlaceOfTheCacheWins) {
  set("HOME", "/home/someone");
  EXPECT_EQ(Options::from_environment().cache_path, "/home/someone/.cache/attune/tune.db");
  set("XDG_CACHE_HOME", "/var/cache/someone");
  EXPECT_EQ(Options::from_environment().cache_path, "/var/cache/someone/attune/tune.db");
  set("ATTUNE_CACHE_DIR", "/opt/caches");
  EXPECT_EQ(Options::from_environment().cache_path, "/opt/caches/tune.db");
  set("ATTUNE_CACHE", "/opt/h200.db");
  EXPECT_EQ(Options::from_environment().cache_path, "/opt/h200.db");
}

TEST_F(OptionsTest, ReadsWhatLiesBeneathTheCacheAndWhatLimitsIt) {
  EXPECT_TRUE(Options::from_environment().cache_bases.empty());
  EXPECT_EQ(Options::from_environment().cache_max_bytes, std::size_t{2} << 30);
  set("ATTUNE_CACHE_BASE", "/opt/a.db::/opt/b.db:");
  set("ATTUNE_CACHE_MAX_SIZE", "1.5M");
  set("ATTUNE_GPU_ALIAS", "NVIDIA H200");
  const Options options = Options::from_environment();
  EXPECT_EQ(options.cache_bases, (std::vector<std::string>{"/opt/a.db", "/opt/b.db"}));
  EXPECT_EQ(options.cache_max_bytes, 1'572'864u);
  EXPECT_EQ(options.gpu_alias, "NVIDIA H200");
  set("ATTUNE_CACHE_MAX_SIZE", "0");
  EXPECT_EQ(Options::from_environment().cache_max_bytes, 0u);
  for (const char* wrong : {"big", "-1", "1X", "1MB", "M"}) {
    set("ATTUNE_CACHE_MAX_SIZE", wrong);
    EXPECT_THROW(Options::from_environment(), InvalidArgument) << wrong;
  }
}

TEST_F(OptionsTest, ReadsWhichDevice) {
  set("ATTUNE_DEVICE", "host+checks");
  EXPECT_EQ(Options::from_environment().device, "host+checks");
}

TEST_F(OptionsTest, ReadsWhereLibrariesAndProgramsAre) {
  set("ATTUNE_NVRTC", "/opt/nvrtc/lib");
  set("ATTUNE_CUBLASLT", "/opt/cublas");
  set("ATTUNE_CXX", "/opt/gcc/bin/g++");
  set("ATTUNE_WORKER", "/opt/attune/bin/attune-compile-worker");
  set("ATTUNE_TUNE_WORKER", "/opt/attune/bin/attune-tune-worker");
  set("ATTUNE_MEASURE_WORKER", "/opt/attune/bin/attune-measure-worker");
  const Options options = Options::from_environment();
  EXPECT_EQ(options.nvrtc_path, "/opt/nvrtc/lib");
  EXPECT_EQ(options.cublaslt_path, "/opt/cublas");
  EXPECT_EQ(options.cxx_path, "/opt/gcc/bin/g++");
  EXPECT_EQ(options.worker_path, "/opt/attune/bin/attune-compile-worker");
  EXPECT_EQ(options.tune_worker_path, "/opt/attune/bin/attune-tune-worker");
  EXPECT_EQ(options.measure_worker_path, "/opt/attune/bin/attune-measure-worker");
}

TEST_F(OptionsTest, ReadsWhichFamiliesAreOff) {
  EXPECT_EQ(Options::from_environment().disabled_families, std::vector<std::string>{});
  set("ATTUNE_DISABLE_FAMILIES", "splitkv, tiled,");
  EXPECT_EQ(Options::from_environment().disabled_families,
            (std::vector<std::string>{"splitkv", "tiled"}));
}

}  // namespace
}  // namespace attune
