/* C ABI of attune. Nothing is ever thrown across it: every call returns a status, and
 * attune_last_error() gives the calling thread's message. Device pointers are integers; a stream is
 * a CUstream (NULL: the default stream). */
#ifndef ATTUNE_C_H_
#define ATTUNE_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTUNE_API __attribute__((visibility("default")))

typedef enum attune_status {
  ATTUNE_OK = 0,
  ATTUNE_ERROR = 1, /* anything not named below */
  ATTUNE_INVALID_ARGUMENT = 2,
  ATTUNE_NO_DEVICE = 3, /* no driver, NVRTC or GPU */
  ATTUNE_CUDA_ERROR = 4,
  ATTUNE_COMPILE_ERROR = 5,
  ATTUNE_CACHE_ERROR = 6,
  ATTUNE_NOT_PREPARED = 7 /* no winner with ATTUNE_MISS_ERROR, or new work after a strict seal */
} attune_status;

typedef struct attune_engine attune_engine;
typedef struct attune_attention attune_attention;

/* How good a prepared answer is. */
typedef enum attune_served {
  ATTUNE_SERVED_EXACT = 0,
  ATTUNE_SERVED_NEAREST = 1,
  ATTUNE_SERVED_DEFAULT = 2
} attune_served;

typedef enum attune_on_miss {
  ATTUNE_MISS_DEFAULT = 0,
  ATTUNE_MISS_TUNE = 1,
  ATTUNE_MISS_ERROR = 2,
  ATTUNE_MISS_BACKGROUND = 3 /* a worker process tunes; attune_engine_swap takes the winner over */
} attune_on_miss;

/* Zero-initialize, set struct_size, then what differs from the default. Strings may be NULL: then
 * the environment decides as in Options::from_environment(). */
typedef struct attune_options {
  size_t struct_size;
  int32_t device_ordinal;
  int32_t on_miss; /* attune_on_miss */
  int32_t strict;
  double tune_budget_s; /* 0: 60 */
  const char* cache_path;
  const char* nvrtc_path;
  const char* worker_path;
  /* Gets every warning, one line each; NULL: none. Called by create, prepare, poll and swap, and by a
   * model's prefill where cuBLASLt refuses a product, on their thread. */
  void (*log)(const char* message, void* log_context);
  void* log_context;
  /* "0", "host", "host+checks", ... instead of device_ordinal. NULL: ATTUNE_DEVICE, else
   * device_ordinal. "": device_ordinal, whatever the environment says. */
  const char* device;
  const char* disabled_families;   /* names separated by commas; "": none. NULL: the environment */
  const char* tune_worker_path;    /* attune-tune-worker */
  const char* measure_worker_path; /* attune-measure-worker */
  const char* cache_bases;         /* caches beneath it that are only read, by colons; "": none */
  const char* cache_max_size;      /* of the kernels in the file: "500M", "2G"; "0": no limit */
  const char* gpu_alias;           /* name or identity of a GPU; "": none. See attune::Options */
  const char* cublaslt_path;       /* library or folder, which has to be there; "off": none */
} attune_options;

/* As attune::AttentionArgs. A stride of 0 means the dense default. */
typedef struct attune_args {
  size_t struct_size;
  uint64_t q, k, v, out, lse, kv_len, workspace;
  int64_t capacity;
  int64_t q_strides[3], k_strides[3], v_strides[3], out_strides[3];
  float sm_scale;
  float softcap;
  int32_t seqlen_q;
  int32_t kv_len_add;
  uint64_t sequence, block_table;
  int64_t block_table_stride;
  int32_t overlap;  /* not 0: see attune::AttentionArgs::overlap */
  int32_t reserved; /* 0 */
} attune_args;

/* Set struct_size. */
typedef struct attune_counters {
  size_t struct_size;
  uint64_t exact, nearest, defaults; /* distinct problems prepared, by answer */
  uint64_t compiles;
  uint64_t late_prepares; /* prepare calls after seal that had to work */
  uint64_t background_tunes, background_failures, swaps;
} attune_counters;

ATTUNE_API const char* attune_version(void);
ATTUNE_API const char* attune_last_error(
    void); /* of this thread; "" when the last call succeeded */
ATTUNE_API const char* attune_status_name(attune_status status);

/* `options` may be NULL: all defaults. */
ATTUNE_API attune_status attune_engine_create(const attune_options* options,
                                              attune_engine** engine);
ATTUNE_API void attune_engine_destroy(attune_engine* engine); /* NULL is fine */
ATTUNE_API attune_status attune_engine_seal(attune_engine* engine);
ATTUNE_API attune_status attune_engine_prepare(attune_engine* engine, const char* problem,
                                               attune_attention** attention);
/* Problems of ATTUNE_MISS_BACKGROUND: how many a worker has still to finish, and how many are tuned
 * and wait for attune_engine_swap. Each may be NULL. Waits for nothing. */
ATTUNE_API attune_status attune_engine_poll(attune_engine* engine, size_t* num_pending,
                                            size_t* num_ready);
/* Takes the winners that are ready over, for every attention of their problems; refused while
 * `stream` captures, and no other stream of the device may. Graphs and enqueued launches keep the
 * replaced kernels, which stay loaded. `num_swapped` may be NULL. */
ATTUNE_API attune_status attune_engine_swap(attune_engine* engine, void* stream,
                                            size_t* num_swapped);
/* Another number after every swap that exchanged a kernel: graphs that the caller captured before
 * launch replaced kernels and have to be captured again. Generators do so themselves. */
ATTUNE_API attune_status attune_engine_generation(const attune_engine* engine,
                                                  uint64_t* generation);
/* Unloads replaced kernels, but for those of steps that a generator has captured: no other graph may
 * launch them, and every launch that began before the swap must have ended. `num_released` may be
 * NULL. */
ATTUNE_API attune_status attune_engine_release_replaced(attune_engine* engine,
                                                        size_t* num_released);
/* Fills what `counters->struct_size` has room for. */
ATTUNE_API attune_status attune_engine_counters(const attune_engine* engine,
                                                attune_counters* counters);
/* Digest of all prepared choices, 32 hexadecimal digits: equal on ranks that serve alike. */
ATTUNE_API attune_status attune_engine_choices_digest(const attune_engine* engine, char* text,
                                                      size_t size, size_t* needed);

/* An attention may outlive its engine. */
ATTUNE_API void attune_attention_destroy(attune_attention* attention);
ATTUNE_API attune_status attune_attention_workspace_bytes(const attune_attention* attention,
                                                          size_t* bytes);
ATTUNE_API attune_status attune_attention_served(const attune_attention* attention,
                                                 attune_served* served);
ATTUNE_API attune_status attune_attention_launch(const attune_attention* attention,
                                                 const attune_args* args, void* stream);
/* Writes at most `size` bytes with the terminator; `needed` (may be NULL) gets the full length plus
 * one. */
ATTUNE_API attune_status attune_attention_explain(const attune_attention* attention, char* text,
                                                  size_t size, size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_C_H_ */
