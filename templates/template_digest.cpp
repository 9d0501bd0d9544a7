// What a family's kernels are made of.
#include <array>
#include <set>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/family.h"

namespace attune {
namespace {

const EmbeddedFile& embedded_file(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return file;
  }
  throw Error("a template includes a file that is not embedded", fmt::format("file={}", name),
              "list it in templates/CMakeLists.txt");
}

// Adds `name` and every file it includes, directly or not.
void collect_includes(std::string_view name, std::set<std::string_view>* files) {
  if (!files->insert(name).second) return;
  const std::string_view text = embedded_file(name).text;
  constexpr std::string_view kInclude = "#include \"";
  for (std::size_t at = text.find(kInclude); at != std::string_view::npos;
       at = text.find(kInclude, at + 1)) {
    const std::size_t begin = at + kInclude.size();
    collect_includes(text.substr(begin, text.find('"', begin) - begin), files);
  }
}

}  // namespace

Digest Family::template_digest() const {
  const std::array<std::string_view, 2> entry_files = {entry_file, "templates/combine.cuh"};
  return template_digest_of(std::span(entry_files).first(splits_keys ? 2 : 1));
}

Digest template_digest_of(std::span<const std::string_view> entry_files) {
  std::set<std::string_view> files;
  for (const std::string_view entry : entry_files) collect_includes(entry, &files);
  std::string all;
  for (const std::string_view file : files) {
    all += fmt::format("{}:{}\n", file, digest_of(embedded_file(file).text).text());
  }
  return digest_of(all);
}

}  // namespace attune
