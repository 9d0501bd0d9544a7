// The system's C++ compiler: what it makes of a source.
#include <dlfcn.h>

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "common/error.h"
#include "templates/host/abi.h"
#include "tests/jit/host_compile_fixtures.h"
#include "tests/support/require_cxx.h"

namespace attune {
namespace {

bool contains(const Binary& binary, std::string_view text) {
  const auto* bytes = reinterpret_cast<const char*>(binary.cubin.data());
  return std::string_view(bytes, binary.cubin.size()).find(text) != std::string_view::npos;
}

// A loaded module; empty where it cannot be loaded.
class Module {
 public:
  Module(const Binary& binary, const TemporaryFolder& folder) {
    const auto* bytes = reinterpret_cast<const char*>(binary.cubin.data());
    const auto file = folder.write("module.so", {bytes, binary.cubin.size()});
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) problem_ = dlerror();
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  const std::string& problem() const { return problem_; }
  template <typename T>
  T* find(const char* symbol) const {
    return reinterpret_cast<T*>(dlsym(handle_, symbol));
  }

 private:
  void* handle_ = nullptr;
  std::string problem_;
};

class HostCompile : public HostCompilerTest {};

TEST_F(HostCompile, MakesAModuleThatRuns) {
  const TemporaryFolder folder;
  const Binary binary = compiler().compile(store_source(), "host");
  const Module module(binary, folder);
  ASSERT_EQ(module.problem(), "");
  EXPECT_EQ(module.find<int()>("version")(), host::kAbiVersion);
  int value = 0;
  module.find<void(int*)>("attune_entry_store")(&value);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(module.find<void(int*)>("store"), nullptr) << "hidden in a module, as all the rest";
}

TEST_F(HostCompile, SaysWhatItMade) {
  const Binary binary = compiler().compile(store_source(), "host");
  EXPECT_EQ(binary.arch, "host");
  EXPECT_EQ(binary.options, compile_options("host"));
  EXPECT_EQ(binary.compiler_version, compiler().version());
  EXPECT_EQ(binary.key, compiler().key(store_source(), "host"));
  EXPECT_EQ(binary.content, digest_of(binary.cubin));
  EXPECT_GT(binary.compile_ms, 0);
  EXPECT_EQ(binary.log, "");
  EXPECT_TRUE(binary.notes.empty());
  ASSERT_EQ(binary.kernels.size(), 1u);
  KernelResources store;
  store.symbol = "store";
  EXPECT_EQ(binary.kernels[0], store);
  EXPECT_TRUE(compiler().version().starts_with("g++ ") ||
              compiler().version().starts_with("clang++ "))
      << compiler().version();
}

TEST_F(HostCompile, GivesTheSameBytesTwiceAndNoPath) {
  const Binary first = compiler().compile(store_source(), "host+debug");
  const Binary second = compiler().compile(store_source(), "host+debug");
  EXPECT_EQ(first.content, second.content);
  EXPECT_TRUE(contains(first, "templates"));  // the names that a debugger shows
  EXPECT_FALSE(contains(first, std::filesystem::temp_directory_path().string() + "/attune-"));
}

TEST_F(HostCompile, ShowsTheLogOfAnErrorWithTheTemplatesLine) {
  try {
    compiler().compile(store_source("// one\nconstexpr int kValue = nosuch;\n"), "host");
    FAIL() << "compiled an undeclared name";
  } catch (const CompileError& error) {
    EXPECT_NE(error.log().find("templates/x.h:2:"), std::string::npos) << error.log();
    EXPECT_EQ(error.log().find("attune-"), std::string::npos) << "a path: " << error.log();
    EXPECT_NE(error.source().find("ATTUNE_HOST_ENTRY(store)"), std::string::npos);
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("cannot compile the kernel: source=store arch=host compiler="))
        << message;
    EXPECT_NE(message.find("nosuch"), std::string::npos) << message;
  }
}

TEST_F(HostCompile, FindsAFunctionThatIsMissingBeforeTheModuleIsLoaded) {
  const char* header =
      "int nosuch();\ninline int value() { return nosuch(); }\n#define kValue value()\n";
  EXPECT_THROW(compiler().compile(store_source(header), "host"), CompileError);
}

TEST_F(HostCompile, RefusesAMisspeltTarget) {
  EXPECT_THROW(compiler().compile(store_source(), "host+nosuch"), InvalidArgument);
}

TEST_F(HostCompile, ReportsAccessesToFunctionsOfTheModuleItself) {
  const TemporaryFolder folder;
  const Module module(compiler().compile(store_source(), "host+checks"), folder);
  ASSERT_EQ(module.problem(), "");
  int value = 0;
  module.find<void(int*)>("attune_entry_store")(&value);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(*module.find<int>("num_writes"), 1);
}

TEST_F(HostCompile, LeavesTheSanitizersToTheProcess) {
  const Binary binary = compiler().compile(store_source(), "host+sanitizers");
  EXPECT_TRUE(contains(binary, "__asan_report_store4"));
  EXPECT_FALSE(contains(binary, "libasan.so"));
  EXPECT_FALSE(contains(binary, "libubsan.so"));
}

TEST_F(HostCompile, CompilesTheTemplates) {
  for (const char* arch : {"host", "host+checks"}) {
    const Source attention =
        attention_source(Variant::parse("splitkv/d64/ring/bf16/softcap/m16n16s2w2"));
    for (const Source& source : {attention, probe_source(arch)}) {
      const Binary binary = compiler().compile(source, arch);
      EXPECT_EQ(binary.kernels.size(), source.symbols.size());
      for (const std::string& symbol : source.symbols) {
        EXPECT_TRUE(contains(binary, "attune_entry_" + symbol)) << symbol;
      }
    }
  }
}

TEST_F(HostCompile, RemovesItsFolder) {
  const TemporaryFolder folder;
  const ScopedVariable variable("TMPDIR", folder.path().string());
  compiler().compile(store_source(), "host");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(compiler().compile(store_source("nosuch\n"), "host"), CompileError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(HostCompile, KeepsTheSourcesWhereItIsTold) {
  const TemporaryFolder folder;
  const auto keeping = open_compiler(
      {.host = {.cxx = test_host_search().cxx, .keep_folder = (folder / "kept").string()}}, "host");
  keeping->compile(store_source(), "host");
  std::string text;
  std::getline(std::ifstream(folder / "kept/store.cpp"), text);
  EXPECT_EQ(text, "#include \"templates/host/language.h\"");
  std::getline(std::ifstream(folder / "kept/templates/x.h"), text);
  EXPECT_EQ(text, "constexpr int kValue = 3;");
}

}  // namespace
}  // namespace attune
