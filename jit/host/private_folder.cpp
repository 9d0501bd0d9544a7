#include "jit/host/private_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {

namespace fs = std::filesystem;

PrivateFolder::PrivateFolder(const fs::path& parent) {
  std::error_code error;
  fs::path place = parent.empty() ? fs::temp_directory_path(error) : parent;
  if (error) place = "/tmp";
  std::string name = (place / "attune-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw Error("cannot create a temporary folder",
                fmt::format("path={} error={}", name, std::strerror(errno)),
                "name a folder that may be written in TMPDIR");
  }
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code error;  // what cannot be removed stays
  fs::remove_all(path_, error);
}

void write_file(const fs::path& file, std::string_view text) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  std::ofstream stream(file, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) {
    throw Error("cannot write a file for the compiler", fmt::format("path={}", file.string()),
                "check that its folder may be written and has room");
  }
}

}  // namespace attune
