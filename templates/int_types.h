// Integer aliases for code that the host compiler and NVRTC both compile: NVRTC has no <cstdint>.
#pragma once

namespace attune {

using int64 = long long;
using uint64 = unsigned long long;
using uint32 = unsigned int;
using uint16 = unsigned short;

static_assert(sizeof(int64) == 8 && sizeof(uint32) == 4 && sizeof(uint16) == 2);

}  // namespace attune
