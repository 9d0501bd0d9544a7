#include "jit/host/host_source.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace attune {
namespace {

constexpr std::string_view kPrologue = "#include \"templates/host/language.h\"\n";

// What stands in for a device file. It includes the host's file instead of holding its text, so
// that debuggers and messages name the file that the lines are from.
constexpr std::array<EmbeddedFile, 2> kOverlay = {{
    {"templates/device/ptx.cuh", "#pragma once\n#include \"templates/host/ptx.h\"\n"},
    {"templates/device/ptx_hopper.cuh", "#pragma once\n#include \"templates/host/ptx_hopper.h\"\n"},
}};

const EmbeddedFile* find_in(std::span<const EmbeddedFile> files, std::string_view name) {
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const EmbeddedFile& one) { return one.name == name; });
  return file == files.end() ? nullptr : &*file;
}

}  // namespace

Source for_host(const Source& source) {
  if (source.text.starts_with(kPrologue)) return source;
  Source unit = source;
  unit.text = fmt::format("{}{}\nATTUNE_HOST_MODULE\n", kPrologue, source.text);
  for (const std::string& symbol : source.symbols) {
    unit.text += fmt::format("ATTUNE_HOST_ENTRY({})\n", symbol);
  }
  unit.headers = included_files(unit.text, [&](std::string_view name) {
    for (const auto files : {std::span<const EmbeddedFile>(kOverlay),
                             std::span<const EmbeddedFile>(source.headers), embedded_files()}) {
      if (const EmbeddedFile* file = find_in(files, name)) return file;
    }
    return static_cast<const EmbeddedFile*>(nullptr);
  });
  return unit;
}

}  // namespace attune
