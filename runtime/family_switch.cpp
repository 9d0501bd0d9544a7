#include "runtime/family_switch.h"

#include "common/text.h"
#include "templates/family.h"

namespace attune {

std::vector<std::string> parse_family_names(std::string_view list) {
  std::vector<std::string> names;
  for (std::string_view name : split(list, ',')) {
    const std::size_t begin = name.find_first_not_of(' ');
    if (begin == std::string_view::npos) continue;
    names.emplace_back(name.substr(begin, name.find_last_not_of(' ') + 1 - begin));
  }
  return names;
}

void require_known_families(std::span<const std::string> names) {
  for (const std::string& name : names) known_family(name);
}

}  // namespace attune
