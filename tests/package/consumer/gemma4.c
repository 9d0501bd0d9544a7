/* The C interfaces of a Gemma 4 model, from C. */
#include <stdio.h>

#include "runtime/attune_gemma4_c.h"
#include "runtime/attune_model_c.h"

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

/* 0: no, as on a machine without a GPU and where there is no checkpoint. */
int opens_a_model_by_c(const char* folder) {
  attune_engine* engine = NULL;
  attune_model* model = NULL;
  attune_options options = {.struct_size = sizeof(options), .device = "host", .cache_path = ""};
  if (attune_engine_create(&options, &engine) != ATTUNE_OK) return 1;
  const attune_status status = attune_model_open(engine, folder, NULL, &model);
  attune_model_destroy(model);
  attune_engine_destroy(engine);
  return status == ATTUNE_INVALID_ARGUMENT ? 0 : 1;
}
