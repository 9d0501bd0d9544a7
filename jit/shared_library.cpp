#include "jit/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

#include <fmt/format.h>

namespace attune {

SharedLibrary open_shared_library(const std::string& name) {
  SharedLibrary library;
  library.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle == nullptr) {
    const char* error = dlerror();
    std::string_view reason = error == nullptr ? "unknown" : error;
    const std::string prefix = fmt::format("{}: ", name);  // the loader repeats the name
    if (reason.starts_with(prefix)) reason.remove_prefix(prefix.size());
    library.problem = fmt::format("{} ({})", name, reason);
    return library;
  }
  link_map* map = nullptr;
  const bool is_known = dlinfo(library.handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr &&
                        map->l_name[0] != '\0';
  library.path = is_known ? map->l_name : name;
  return library;
}

void* find_symbol(const SharedLibrary& library, const char* symbol) {
  return dlsym(library.handle, symbol);
}

}  // namespace attune
