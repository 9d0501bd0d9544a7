/* C ABI of runtime/gemma4_attention.h: the attention of a Gemma 4 model, with its caches. As in
 * attune_c.h every call returns a status, nothing is thrown, device pointers are integers, a stream
 * is a CUstream, and every struct is zero-initialized before struct_size is set.
 *
 *   attune_gemma4_geometry_from_file("config.json", &geometry);
 *   attune_gemma4_model_create(engine, geometry, &options, &model);
 *   for (layer...) attune_gemma4_model_set_norm_weights(model, layer, q_norm, n, k_norm, n);
 *   attune_engine_seal(engine);
 *   attune_gemma4_session_open(model, &session);
 *   for (layer...) attune_gemma4_session_prefill(session, layer, 300, &args, stream);
 *   attune_gemma4_session_commit(session, 300, stream);
 *   for (layer...) attune_gemma4_session_decode(session, layer, &args, stream);
 *   attune_gemma4_session_commit(session, 1, stream);
 *
 * Handles may be destroyed in any order: a session or batch keeps its model, a model its engine.
 * What a handle was the last one to keep goes with it, device memory too, so wait for the streams
 * before. The handles of one model are used by one thread at a time.
 * docs/gemma4-attention.md has the rules. */
#ifndef ATTUNE_GEMMA4_C_H_
#define ATTUNE_GEMMA4_C_H_

#include "runtime/attune_c.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attune_gemma4_geometry attune_gemma4_geometry;
typedef struct attune_gemma4_model attune_gemma4_model;
typedef struct attune_gemma4_session attune_gemma4_session;
typedef struct attune_gemma4_batch attune_gemma4_batch;

typedef enum attune_gemma4_kind {
  ATTUNE_GEMMA4_SLIDING = 0,
  ATTUNE_GEMMA4_GLOBAL = 1
} attune_gemma4_kind;

/* Where the global layers' keys and values lie. */
typedef enum attune_gemma4_layout {
  ATTUNE_GEMMA4_CONTIGUOUS = 0,
  ATTUNE_GEMMA4_PAGED = 1,
  ATTUNE_GEMMA4_UNIFIED = 2, /* where K and V are one projection */
  ATTUNE_GEMMA4_UNIFIED_PAGED = 3
} attune_gemma4_layout;

/* Of the whole model. */
typedef struct attune_gemma4_info {
  size_t struct_size;
  int32_t num_layers;
  int32_t hidden_size;
  int32_t max_positions;
  int32_t reserved; /* 0 */
  double rms_norm_eps;
} attune_gemma4_info;

typedef struct attune_gemma4_layer {
  size_t struct_size;
  int32_t kind; /* attune_gemma4_kind */
  int32_t num_q_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t window;         /* keys a query sees, itself included; 0: all */
  int32_t k_eq_v;         /* 1: V is made of the K projection, there is no v_proj */
  int32_t kv_layer;       /* whose cache this layer reads: itself, or an earlier one */
  int32_t rope_num_pairs; /* pairs (i, i + head_dim / 2) with i below it turn by */
  double rope_theta;      /* position * rope_theta^(-2i / head_dim) / rope_factor */
  double rope_factor;
} attune_gemma4_layer;

/* As attune::Gemma4Options; 0 is the default of every field. */
typedef struct attune_gemma4_options {
  size_t struct_size;
  int32_t max_tokens;         /* longest sequence, its uncommitted tokens included; 8192 */
  int32_t max_sequences;      /* sessions that are open at a time; 1 */
  int32_t max_prefill;        /* longest chunk of a prefill; 512 */
  int32_t max_verify;         /* most tokens of a verify, up to 16; 8 */
  const int32_t* batch_sizes; /* of batches, num_batch_sizes of them; NULL: 1 alone */
  size_t num_batch_sizes;
  int32_t global_layout; /* attune_gemma4_layout */
  int32_t page_size;     /* of paged layouts: 16, 32, 64, 128 or 256; 64 */
  int32_t num_pages;     /* of all sequences; 0: enough for max_sequences of max_tokens */
  int32_t invariant;     /* decode and verify give a token the same bits in every step */
} attune_gemma4_options;

/* As attune::Gemma4LayerArgs: device pointers to bf16, 16-byte aligned, the batch's tokens behind
 * each other; strides in elements, 0 is dense. */
typedef struct attune_gemma4_args {
  size_t struct_size;
  uint64_t q;   /* [batch, num_tokens, num_q_heads * head_dim]: q_proj, before its norm */
  uint64_t k;   /* [batch, num_tokens, num_kv_heads * head_dim]; 0 where kv_layer is another */
  uint64_t v;   /* as k; 0 there and where k_eq_v is 1 */
  uint64_t out; /* as q: the input of o_proj */
  uint64_t lse; /* float [batch, num_tokens, num_q_heads], natural log; 0: not written */
  int64_t q_token_stride, k_token_stride, v_token_stride, out_token_stride;
} attune_gemma4_args;

/* `path` is a config.json or a folder that has one. */
ATTUNE_API attune_status attune_gemma4_geometry_from_file(const char* path,
                                                          attune_gemma4_geometry** geometry);
/* `text` is the content of a config.json. */
ATTUNE_API attune_status attune_gemma4_geometry_from_json(const char* text,
                                                          attune_gemma4_geometry** geometry);
ATTUNE_API void attune_gemma4_geometry_destroy(attune_gemma4_geometry* geometry); /* NULL: fine */
/* Both fill as much of a struct as its struct_size says. */
ATTUNE_API attune_status attune_gemma4_geometry_info(const attune_gemma4_geometry* geometry,
                                                     attune_gemma4_info* info);
ATTUNE_API attune_status attune_gemma4_geometry_layer(const attune_gemma4_geometry* geometry,
                                                      int32_t layer, attune_gemma4_layer* to);

/* Allocates the caches and prepares every kernel that the options allow; `options` may be NULL. The
 * geometry is copied. */
ATTUNE_API attune_status attune_gemma4_model_create(attune_engine* engine,
                                                    const attune_gemma4_geometry* geometry,
                                                    const attune_gemma4_options* options,
                                                    attune_gemma4_model** model);
ATTUNE_API void attune_gemma4_model_destroy(attune_gemma4_model* model);
/* bf16 weights [head_dim] in host memory; k_norm is NULL with 0 for layers that read another one's
 * cache. Waits for the copy. */
ATTUNE_API attune_status attune_gemma4_model_set_norm_weights(attune_gemma4_model* model,
                                                              int32_t layer, const uint16_t* q_norm,
                                                              size_t num_q_norm,
                                                              const uint16_t* k_norm,
                                                              size_t num_k_norm);
ATTUNE_API attune_status attune_gemma4_model_cache_bytes(const attune_gemma4_model* model,
                                                         size_t* bytes);
ATTUNE_API attune_status attune_gemma4_model_workspace_bytes(const attune_gemma4_model* model,
                                                             size_t* bytes);
/* 0 for layouts without pages. */
ATTUNE_API attune_status attune_gemma4_model_free_pages(const attune_gemma4_model* model,
                                                        int32_t* num_pages);
/* As attune_attention_explain. */
ATTUNE_API attune_status attune_gemma4_model_explain(const attune_gemma4_model* model, char* text,
                                                     size_t size, size_t* needed);

/* A sequence without tokens. */
ATTUNE_API attune_status attune_gemma4_session_open(attune_gemma4_model* model,
                                                    attune_gemma4_session** session);
/* Gives place and pages back. A batch that has the session takes no step until assigned anew. */
ATTUNE_API void attune_gemma4_session_close(attune_gemma4_session* session);
/* One layer of a step; the layers of a step have the same number of tokens. */
ATTUNE_API attune_status attune_gemma4_session_prefill(attune_gemma4_session* session,
                                                       int32_t layer, int32_t num_tokens,
                                                       const attune_gemma4_args* args,
                                                       void* stream);
ATTUNE_API attune_status attune_gemma4_session_decode(attune_gemma4_session* session, int32_t layer,
                                                      const attune_gemma4_args* args, void* stream);
ATTUNE_API attune_status attune_gemma4_session_verify(attune_gemma4_session* session, int32_t layer,
                                                      int32_t num_tokens,
                                                      const attune_gemma4_args* args, void* stream);
/* Opens a step whose layers a captured graph runs. Not inside of a capture. */
ATTUNE_API attune_status attune_gemma4_session_begin_step(attune_gemma4_session* session,
                                                          int32_t num_tokens, void* stream);
/* Ends the step: its first num_tokens tokens become part of the sequence. 0 after a capture. */
ATTUNE_API attune_status attune_gemma4_session_commit(attune_gemma4_session* session,
                                                      int32_t num_tokens, void* stream);
/* Cuts the sequence by its last num_tokens tokens. */
ATTUNE_API attune_status attune_gemma4_session_rollback(attune_gemma4_session* session,
                                                        int32_t num_tokens, void* stream);
/* Pages for num_tokens more than the sequence has. */
ATTUNE_API attune_status attune_gemma4_session_reserve(attune_gemma4_session* session,
                                                       int32_t num_tokens, void* stream);
ATTUNE_API attune_status attune_gemma4_session_length(const attune_gemma4_session* session,
                                                      int32_t* num_tokens);
ATTUNE_API attune_status attune_gemma4_session_largest_step(const attune_gemma4_session* session,
                                                            int32_t* num_tokens);
ATTUNE_API attune_status attune_gemma4_session_cache_bytes(const attune_gemma4_session* session,
                                                           size_t* bytes);

/* `size` is one of the options' batch_sizes, or 1. */
ATTUNE_API attune_status attune_gemma4_batch_create(attune_gemma4_model* model, int32_t size,
                                                    attune_gemma4_batch** batch);
ATTUNE_API void attune_gemma4_batch_destroy(attune_gemma4_batch* batch);
/* As many open sessions as the batch has, all different. */
ATTUNE_API attune_status attune_gemma4_batch_assign(attune_gemma4_batch* batch,
                                                    attune_gemma4_session* const* sessions,
                                                    size_t num_sessions, void* stream);
ATTUNE_API attune_status attune_gemma4_batch_prefill(attune_gemma4_batch* batch, int32_t layer,
                                                     int32_t num_tokens,
                                                     const attune_gemma4_args* args, void* stream);
ATTUNE_API attune_status attune_gemma4_batch_decode(attune_gemma4_batch* batch, int32_t layer,
                                                    const attune_gemma4_args* args, void* stream);
ATTUNE_API attune_status attune_gemma4_batch_verify(attune_gemma4_batch* batch, int32_t layer,
                                                    int32_t num_tokens,
                                                    const attune_gemma4_args* args, void* stream);
ATTUNE_API attune_status attune_gemma4_batch_begin_step(attune_gemma4_batch* batch,
                                                        int32_t num_tokens, void* stream);
/* num_tokens[i] of session i, of as many as were assigned. */
ATTUNE_API attune_status attune_gemma4_batch_commit(attune_gemma4_batch* batch,
                                                    const int32_t* num_tokens, size_t num_sessions,
                                                    void* stream);
ATTUNE_API attune_status attune_gemma4_batch_largest_step(const attune_gemma4_batch* batch,
                                                          int32_t* num_tokens);
ATTUNE_API attune_status attune_gemma4_batch_workspace_bytes(const attune_gemma4_batch* batch,
                                                             size_t* bytes);

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_GEMMA4_C_H_ */
