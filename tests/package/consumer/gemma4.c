/* The C interface of the Gemma 4 model, from C. */
#include <stdio.h>

#include "runtime/attune_gemma4_c.h"

/* KV heads of layer 1 of a model; 0 when it cannot be read. */
int num_kv_heads_by_c(const char* config) {
  attune_gemma4_geometry* geometry = NULL;
  if (attune_gemma4_geometry_from_json(config, &geometry) != ATTUNE_OK) {
    fprintf(stderr, "%s\n", attune_last_error());
    return 0;
  }
  attune_gemma4_layer layer = {.struct_size = sizeof(layer)};
  const attune_status status = attune_gemma4_geometry_layer(geometry, 1, &layer);
  attune_gemma4_geometry_destroy(geometry);
  return status == ATTUNE_OK ? layer.num_kv_heads : 0;
}
