#include "jit/toolkit_library.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

using Folders = std::vector<std::filesystem::path>;

std::ptrdiff_t position(const Folders& folders, const std::filesystem::path& folder) {
  return std::find(folders.begin(), folders.end(), folder) - folders.begin();
}

TEST(ToolkitFolders, PutToolkitsBeforePythonPackages) {
  const TemporaryFolder root;
  root.write("usr/local/cuda-12.4/lib64/x", "");
  root.write("usr/local/cuda-13.0/lib64/x", "");
  root.write("usr/local/lib/python3.11/dist-packages/x", "");
  const Folders folders = toolkit_folders(root.path(), "cuda_nvrtc");
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

TEST(ToolkitFolders, TakeAVirtualEnvironmentOrASitePackages) {
  const TemporaryFolder root;
  root.write("lib/python3.12/site-packages/x", "");
  const Folders folders = toolkit_folders_in(root.path(), "cuda_nvrtc");
  const auto size = static_cast<std::ptrdiff_t>(folders.size());
  EXPECT_EQ(folders.front(), root.path());
  EXPECT_LT(position(folders, root.path() / "lib64"), size);
  EXPECT_LT(position(folders, root.path() / "nvidia/cu13/lib"), size);
  EXPECT_LT(position(folders, root.path() / "lib/python3.12/site-packages/nvidia/cu13/lib"), size);
}

}  // namespace
}  // namespace attune
