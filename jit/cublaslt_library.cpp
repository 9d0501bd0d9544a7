#include "jit/cublaslt_library.h"

#include <string_view>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/toolkit_library.h"

namespace attune {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
constexpr ToolkitLibrary kCublasLt = {.names = kNames, .package = "cublas"};
constexpr std::string_view kInstallCublas =
    "install it with `pip install nvidia-cublas` or a CUDA toolkit (12.0 or later), or name its "
    "folder in ATTUNE_CUBLASLT";

template <typename Function>
void bind(const SharedLibrary& library, const char* symbol, Function** function) {
  find_symbol(library, symbol, function);
  if (*function != nullptr) return;
  throw DeviceUnavailable("the cuBLASLt library is not usable",
                          fmt::format("library={} missing={}", library.path, symbol),
                          kInstallCublas);
}

// 130100 is 13.1.0.
std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

CublasLtLibrary open_cublaslt(const GemmSearch& search) {
  const FoundLibrary found = open_toolkit_library(kCublasLt, search.cublaslt_path);
  const SharedLibrary& library = found.library;
  if (library.handle == nullptr) {
    throw DeviceUnavailable(search.cublaslt_path.empty() ? "no cuBLASLt library found"
                                                         : "no cuBLASLt library at the given place",
                            fmt::format("looked in {}", found.looked_at), kInstallCublas);
  }
  CublasLtLibrary cublaslt{};
  cublaslt.path = library.path;
  bind(library, "cublasLtGetVersion", &cublaslt.get_version);
  bind(library, "cublasLtGetStatusName", &cublaslt.get_status_name);
  bind(library, "cublasLtCreate", &cublaslt.create);
  bind(library, "cublasLtDestroy", &cublaslt.destroy);
  bind(library, "cublasLtMatmulDescCreate", &cublaslt.desc_create);
  bind(library, "cublasLtMatmulDescDestroy", &cublaslt.desc_destroy);
  bind(library, "cublasLtMatmulDescSetAttribute", &cublaslt.desc_set);
  bind(library, "cublasLtMatrixLayoutCreate", &cublaslt.layout_create);
  bind(library, "cublasLtMatrixLayoutDestroy", &cublaslt.layout_destroy);
  bind(library, "cublasLtMatrixLayoutSetAttribute", &cublaslt.layout_set);
  bind(library, "cublasLtMatmulPreferenceCreate", &cublaslt.preference_create);
  bind(library, "cublasLtMatmulPreferenceDestroy", &cublaslt.preference_destroy);
  bind(library, "cublasLtMatmulPreferenceSetAttribute", &cublaslt.preference_set);
  bind(library, "cublasLtMatmulAlgoGetHeuristic", &cublaslt.choose);
  bind(library, "cublasLtMatmul", &cublaslt.matmul);
  cublaslt.version = version_text(cublaslt.get_version());
  return cublaslt;
}

}  // namespace attune
