#include "jit/compiler.h"

#include <string_view>

#include <fmt/format.h>

#include "jit/host/host_compiler.h"
#include "jit/host/host_source.h"
#include "jit/host/host_target.h"
#include "jit/nvrtc_compiler.h"

namespace attune {
namespace {

// Length first, so that no two lists of parts give the same bytes.
void append_part(std::string_view part, std::string* all) {
  *all += fmt::format("{}:", part.size());
  *all += part;
}

}  // namespace

std::unique_ptr<Compiler> open_compiler(const CompilerSearch& search, const std::string& arch) {
  if (is_host_arch(arch)) return open_host_compiler(search.host);
  return open_nvrtc_compiler(search.nvrtc);
}

std::string compile_options(const std::string& arch) {
  const std::vector<std::string> options =
      is_host_arch(arch) ? host_options(HostTarget::parse(arch)) : nvrtc_options(arch);
  return fmt::format("{}", fmt::join(options, " "));
}

std::string compiler_name(const std::string& arch, const std::string& version) {
  return is_host_arch(arch) ? version : fmt::format("NVRTC {}", version);
}

Digest source_key(const Source& source, const std::string& arch, const std::string& options,
                  const std::string& compiler_version) {
  const Source compiled = is_host_arch(arch) ? for_host(source) : source;
  std::string inputs;
  append_part(compiled.text, &inputs);
  for (const EmbeddedFile& header : compiled.headers) {
    append_part(header.name, &inputs);
    append_part(header.text, &inputs);
  }
  append_part(options, &inputs);
  append_part(arch, &inputs);
  append_part(compiler_version, &inputs);
  return digest_of(inputs);
}

Digest Compiler::key(const Source& source, const std::string& arch) const {
  return source_key(source, arch, compile_options(arch), version());
}

}  // namespace attune
