#include "tests/conformance/case.h"

#include <set>

#include <fmt/format.h>

#include "common/error.h"

namespace attune::conformance {
namespace {

std::string_view text_of(const std::string& name) {
  for (const EmbeddedFile& file : kernel_files()) {
    if (file.name == name) return file.text;
  }
  throw InvalidArgument("no such conformance kernels", fmt::format("file={}", name));
}

}  // namespace

std::vector<Group> all_groups() {
  return {mma_group(),  wgmma_group(), matrix_group(), scalar_group(),
          warp_group(), async_group(), tensor_group(), cluster_group()};
}

Words inputs_of(const Group& group, const Case& one) {
  const Digest names = digest_of(fmt::format("{}/{}", group.name, one.name));
  Random random(one.seed != 0 ? one.seed : names.low);
  return one.inputs(random);
}

bool is_available(Needs needs, const std::string& arch) {
  if (needs == Needs::kAnything || !arch.starts_with("sm_")) return true;
  if (needs == Needs::kSm90a) return arch == "sm_90a";
  return !arch.starts_with("sm_8") && !arch.starts_with("sm_7");
}

Source group_source(const Group& group, const std::string& arch) {
  std::set<std::string> symbols;
  for (const Case& one : group.cases) {
    if (is_available(one.needs, arch)) symbols.insert(fmt::format("conformance_{}", one.kernel));
  }
  Source source;
  source.split_symbol = fmt::format("conformance_{}", group.name);
  source.symbols.assign(symbols.begin(), symbols.end());
  if (is_available(Needs::kSm90, arch)) source.text += "#define ATTUNE_CONFORMANCE_SM90 1\n";
  if (is_available(Needs::kSm90a, arch)) source.text += "#define ATTUNE_ARCH_SM90A 1\n";
  source.text += text_of("common.cuh");
  source.text += text_of(group.name + ".cuh");
  source.headers.assign(embedded_files().begin(), embedded_files().end());
  return source;
}

}  // namespace attune::conformance
