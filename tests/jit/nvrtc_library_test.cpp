#include "jit/nvrtc_library.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

TEST(Nvrtc, SaysWhereItLookedAndWhatToInstall) {
  const TemporaryFolder root;
  NvrtcSearch search;
  search.nvrtc_path = root.path();
  try {
    open_nvrtc(search);
    FAIL() << "opened a library in an empty folder";
  } catch (const DeviceUnavailable& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("no NVRTC library at the given place: looked in ")) << message;
    EXPECT_NE(message.find((root.path() / "nvidia/cuda_nvrtc/lib").string()), std::string::npos);
    EXPECT_NE(message.find("pip install nvidia-cuda-nvrtc"), std::string::npos);
    EXPECT_NE(message.find("ATTUNE_NVRTC"), std::string::npos);
  }
}

TEST(Nvrtc, ReportsWhyAFileCannotBeOpened) {
  const TemporaryFolder root;
  NvrtcSearch search;
  search.nvrtc_path = root.write("libnvrtc.so.13", std::string(4096, 'x'));
  try {
    open_nvrtc(search);
    FAIL() << "opened a text file";
  } catch (const DeviceUnavailable& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(search.nvrtc_path), std::string::npos) << message;
    EXPECT_NE(message.find("invalid ELF header"), std::string::npos) << message;
  }
}

TEST(Nvrtc, LooksOnInAFolderWhoseLibraryIsDamaged) {
  const TemporaryFolder root;
  root.write("libnvrtc.so.13", "this is no library");
  root.write("lib64/libnvrtc.so.12", "nor is this");
  NvrtcSearch search;
  search.nvrtc_path = root.path();
  try {
    open_nvrtc(search);
    FAIL() << "opened a text file";
  } catch (const DeviceUnavailable& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("lib64/libnvrtc.so.12"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace attune
