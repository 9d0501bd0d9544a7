#include "jit/nvrtc_library.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

using Folders = std::vector<std::filesystem::path>;

std::ptrdiff_t position(const Folders& folders, const std::filesystem::path& folder) {
  return std::find(folders.begin(), folders.end(), folder) - folders.begin();
}

TEST(NvrtcFolders, PutToolkitsBeforePythonPackages) {
  const TemporaryFolder root;
  root.write("usr/local/cuda-12.4/lib64/x", "");
  root.write("usr/local/cuda-13.0/lib64/x", "");
  root.write("usr/local/lib/python3.11/dist-packages/x", "");
  const Folders folders = nvrtc_folders(root.path());
  const auto size = static_cast<std::ptrdiff_t>(folders.size());
  const auto plain = position(folders, root.path() / "usr/local/cuda/lib64");
  const auto high = position(folders, root.path() / "usr/local/cuda-13.0/lib64");
  const auto low = position(folders, root.path() / "usr/local/cuda-12.4/lib64");
  const auto package = position(
      folders, root.path() / "usr/local/lib/python3.11/dist-packages/nvidia/cuda_nvrtc/lib");
  EXPECT_LT(plain, high);
  EXPECT_LT(high, low);
  EXPECT_LT(low, package);
  EXPECT_LT(package, size);
}

TEST(NvrtcFolders, TakeAVirtualEnvironmentOrASitePackages) {
  const TemporaryFolder root;
  root.write("lib/python3.12/site-packages/x", "");
  const Folders folders = nvrtc_folders_in(root.path());
  const auto size = static_cast<std::ptrdiff_t>(folders.size());
  EXPECT_EQ(folders.front(), root.path());
  EXPECT_LT(position(folders, root.path() / "lib64"), size);
  EXPECT_LT(position(folders, root.path() / "nvidia/cu13/lib"), size);
  EXPECT_LT(position(folders, root.path() / "lib/python3.12/site-packages/nvidia/cu13/lib"), size);
}

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
