// A unit of the GPU's kernels as one of the host's.
#pragma once

#include "jit/source.h"

namespace attune {

// `source` with templates/host/language.h in front, the entries of its kernels behind, and the
// host's versions of the files that hold PTX among its headers. A source that is one of the host's
// already comes back as it is.
Source for_host(const Source& source);

}  // namespace attune
