// What the opaque handles of the C ABI are.
#pragma once

#include "runtime/attune.h"

struct attune_engine {
  attune::Engine engine;
};

struct attune_attention {
  attune::Attention attention;
};
