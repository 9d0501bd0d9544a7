#include "jit/host/symbolize.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "jit/host/fault.h"
#include "tests/support/require_cxx.h"

namespace attune::host {
namespace {

namespace fs = std::filesystem;

// Line 5 is inlined into line 10, and that into `entry`.
constexpr const char* kModule = R"(
extern "C" void (*hook)(const void*) = nullptr;
__attribute__((noinline)) void access(int*) { hook(__builtin_return_address(0)); }
namespace attune {
inline int load(int* p) { access(p); return *p; }
template <int kHeadDim>
struct Kernel {
  int* p;
  int make_probabilities(int tile) const {
    return load(p + tile) + kHeadDim;
  }
};
}
extern "C" int entry(int* p) {
  const attune::Kernel<512> kernel{p};
  const int sum = kernel.make_probabilities(1);
  access(p);
  return sum;
}
)";

std::vector<const void*> codes;
void record(const void* code) { codes.push_back(code); }

class Symbolize : public testing::Test {
 protected:
  void SetUp() override {
    codes.clear();
    folder_ = fs::path(testing::TempDir()) / fmt::format("symbolize-{}", getpid());
    fs::create_directories(folder_ / "templates");
    std::ofstream(folder_ / "templates/kernel.cuh") << kModule;
    const std::string command = fmt::format(
        "cd / && c++ -x c++ -std=c++20 -O2 -g1 -shared -fPIC -ffile-prefix-map={0}/= "
        "{0}/templates/kernel.cuh -o {0}/kernel.so 2>/dev/null",
        folder_.string());
    if (std::system(command.c_str()) == 0) return;
    if (is_cxx_required()) FAIL() << "no compiler: c++";
    GTEST_SKIP() << "no compiler: c++";
  }
  void TearDown() override {
    if (library_ != nullptr) dlclose(library_);
    fs::remove_all(folder_);
  }
  void run(const std::string& path) {
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    *static_cast<void (**)(const void*)>(dlsym(library_, "hook")) = record;
    int values[2] = {};
    reinterpret_cast<int (*)(int*)>(dlsym(library_, "entry"))(values);
    ASSERT_EQ(codes.size(), 2u);
  }
  static bool has_tool() {
    return std::system("addr2line --version >/dev/null 2>&1") == 0 ||
           std::system("llvm-symbolizer --version >/dev/null 2>&1") == 0;
  }

  fs::path folder_;
  void* library_ = nullptr;
};

TEST_F(Symbolize, FindsTheLineAndWhatItWasInlinedInto) {
  if (!has_tool() && !is_cxx_required()) GTEST_SKIP() << "neither addr2line nor llvm-symbolizer";
  run((folder_ / "kernel.so").string());
  const CodeLocation location = symbolize(codes[0]);
  ASSERT_EQ(location.frames.size(), 3u);
  EXPECT_EQ(location.frames[0].file, "templates/kernel.cuh");
  EXPECT_EQ(location.frames[0].line, 5);
  EXPECT_EQ(location.frames[1].line, 10);
  EXPECT_EQ(to_text(location),
            "templates/kernel.cuh:5 (load), inlined at templates/kernel.cuh:10 "
            "(make_probabilities), inlined at templates/kernel.cuh:16 (entry)");
  EXPECT_EQ(to_text(symbolize(codes[1])), "templates/kernel.cuh:17 (entry)");
}

TEST_F(Symbolize, ReadsAModuleInAMemoryFile) {
  if (!has_tool() && !is_cxx_required()) GTEST_SKIP() << "neither addr2line nor llvm-symbolizer";
  std::stringstream bytes;
  bytes << std::ifstream(folder_ / "kernel.so", std::ios::binary).rdbuf();
  const std::string image = bytes.str();
  const int file = memfd_create("kernel", MFD_CLOEXEC);
  ASSERT_EQ(write(file, image.data(), image.size()), static_cast<ssize_t>(image.size()));
  run(fmt::format("/proc/self/fd/{}", file));
  EXPECT_EQ(to_text(symbolize(codes[1])), "templates/kernel.cuh:17 (entry)");
  close(file);
}

TEST_F(Symbolize, ClosesAFaultWithThePlaceOfTheAccess) {
  if (!has_tool() && !is_cxx_required()) GTEST_SKIP() << "neither addr2line nor llvm-symbolizer";
  run((folder_ / "kernel.so").string());
  const Fault fault{FaultKind::kOutOfRange,
                    "read of 4 bytes at 0 bytes past the end of ...",
                    codes[1],
                    "entry",
                    {3, 0, 1},
                    {37, 0, 0}};
  EXPECT_EQ(to_text(fault),
            "access out of range: kernel=entry block=(3,0,1) thread=(37,0,0) read of 4 bytes at 0 "
            "bytes past the end of ... at templates/kernel.cuh:17 (entry)");
}

TEST_F(Symbolize, FallsBackOnTheLoadersSymbols) {
  run((folder_ / "kernel.so").string());
  fs::remove(folder_ / "kernel.so");  // nothing to read for a tool
  const std::string text = to_text(symbolize(codes[1]));
  EXPECT_TRUE(text.starts_with("entry+0x")) << text;
  EXPECT_TRUE(text.ends_with(" of kernel.so")) << text;
}

TEST_F(Symbolize, SaysNothingOfAnAddressWithoutAFile) {
  EXPECT_TRUE(symbolize(reinterpret_cast<const void*>(0x10)).frames.empty());
  EXPECT_EQ(to_text(CodeLocation{}), "");
}

TEST(CodeText, ShortensTheNamesOfFunctions) {
  const auto text = [](const char* function) {
    return to_text(CodeLocation{{{function, "a.cuh", 3}}});
  };
  EXPECT_EQ(text("run"), "a.cuh:3 (run)");
  EXPECT_EQ(text("void attune::SplitKv<attune::KernelConfig{16, 64, 2, 4}, 512>::run_tile<0>(int)"),
            "a.cuh:3 (run_tile)");
  EXPECT_EQ(text("attune::Kernel<(attune::KvLayout)1>::rows(int) const"), "a.cuh:3 (rows)");
  EXPECT_EQ(text("attune::f(int)::{lambda(auto:1)#1}::operator()<int>(int) const"),
            "a.cuh:3 (a lambda)");
  EXPECT_EQ(text("bool attune::operator<(int)"), "a.cuh:3 (bool attune::operator<(int))");
}

}  // namespace
}  // namespace attune::host
