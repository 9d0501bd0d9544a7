// Uses both interfaces of an installed libattune.so on a machine that may have no GPU.
#include <cstdio>
#include <cstring>

#include "common/error.h"
#include "runtime/attune.h"
#include "runtime/attune_c.h"

int main() {
  if (std::strlen(attune_version()) == 0) return 1;
  attune_attention* attention = nullptr;
  if (attune_engine_prepare(nullptr, "decode", &attention) != ATTUNE_INVALID_ARGUMENT) return 2;
  if (std::strlen(attune_last_error()) == 0) return 3;
  try {
    attune::Options options = attune::Options::from_environment();
    options.device_ordinal = 1 << 20;  // no machine has it, so this fails with or without a GPU
    attune::Engine engine(options);
    return 4;
  } catch (const attune::Error& error) {
    std::printf("attune %s refused as it should be: %s\n", attune_version(), error.what());
  }
  return 0;
}
