#include "common/error.h"

#include <string>

#include <gtest/gtest.h>

namespace attune {
namespace {

TEST(Error, JoinsWhatFailedTheValuesAndWhatToDo) {
  const Error error("cannot open tuning cache", "path=a.db schema=7 supported=6",
                    "upgrade attune, or choose another file with --cache");
  EXPECT_STREQ(
      error.what(),
      "cannot open tuning cache: path=a.db schema=7 supported=6; upgrade attune, or choose "
      "another file with --cache");
}

TEST(Error, LeavesEmptyPartsOut) {
  EXPECT_STREQ(Error("the engine is sealed").what(), "the engine is sealed");
  EXPECT_STREQ(Error("no device", "ordinal=3").what(), "no device: ordinal=3");
  EXPECT_STREQ(Error("no device", "", "pass --device").what(), "no device; pass --device");
}

TEST(Error, IsCaughtAsRuntimeErrorWhateverItsKind) {
  EXPECT_THROW(throw InvalidArgument("a"), std::runtime_error);
  EXPECT_THROW(throw DeviceUnavailable("a"), Error);
  EXPECT_THROW(throw CudaError("a", 1, "b"), Error);
  EXPECT_THROW(throw CompileError("a", "b", "c", "d"), Error);
  EXPECT_THROW(throw CacheError("a"), Error);
}

TEST(CudaError, SaysTheStatusByNameAndNumberBeforeTheValues) {
  const CudaError error("cannot launch", 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
                        "registers=162 threads=512", "lower num_warps");
  EXPECT_STREQ(error.what(),
               "cannot launch: status=CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701) registers=162 "
               "threads=512; lower num_warps");
  EXPECT_EQ(error.code(), 701);
  EXPECT_EQ(error.name(), "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
}

TEST(CudaError, LeavesEmptyPartsOut) {
  EXPECT_STREQ(CudaError("cannot launch", 1, "CUDA_ERROR_INVALID_VALUE").what(),
               "cannot launch: status=CUDA_ERROR_INVALID_VALUE (1)");
}

TEST(CompileError, CarriesLogAndSourceAndSaysTheFirstErrorLine) {
  const std::string log = "a.cu(1): warning: unused\na.cu(9): error: no such name\nb: error: later";
  const CompileError error("cannot compile", "arch=sm_90a", log, "int x;");
  EXPECT_STREQ(error.what(), "cannot compile: arch=sm_90a; a.cu(9): error: no such name");
  EXPECT_EQ(error.log(), log);
  EXPECT_EQ(error.source(), "int x;");
}

TEST(CompileError, HasNoThirdPartWhenTheLogNamesNoError) {
  EXPECT_STREQ(CompileError("cannot compile", "arch=sm_90a", "", "").what(),
               "cannot compile: arch=sm_90a");
  EXPECT_STREQ(CompileError("cannot compile", "arch=sm_90a", "killed\n", "").what(),
               "cannot compile: arch=sm_90a");
}

TEST(CacheError, CarriesTheSqliteCode) {
  EXPECT_EQ(CacheError("cannot write", "path=a.db", "", 778).sqlite_code(), 778);
  EXPECT_EQ(CacheError("cannot write").sqlite_code(), 0);
}

}  // namespace
}  // namespace attune
