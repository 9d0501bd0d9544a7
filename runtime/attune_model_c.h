/* C ABI of whole Gemma 4 models: from token ids to logits, and generation with speculative decoding. As in
 * attune_c.h every call returns a status, nothing is thrown, a stream is a CUstream, and every struct is
 * zero-initialized before struct_size is set. Text is not part of it.
 *
 *   attune_model_open(engine, "gemma-4-31b-it", &options, &model);
 *   attune_generator_create(model, ATTUNE_DRAFT_NGRAM, NULL, &generator);
 *   attune_engine_seal(engine);
 *   attune_generator_run(generator, prompt, num_prompt, &run_options, &result);
 *   attune_generator_tokens(generator, tokens, capacity, &num_tokens);
 *
 * or, for a loop of one's own:
 *
 *   attune_model_session_open(model, &session);
 *   attune_model_set_tokens(model, prompt, 300, stream);
 *   attune_model_session_prefill(session, 300, stream);
 *   attune_model_session_commit(session, 300, stream);
 *   attune_model_read_best(model, 1, &token, stream);
 *   attune_model_set_tokens(model, &token, 1, stream);
 *   attune_model_session_verify(session, 1, stream);
 *   attune_model_session_commit(session, 1, stream);
 *
 * Handles may be destroyed in any order: a session or generator keeps its model, a model its engine. What a
 * handle was the last one to keep goes with it, device memory too, so wait for the streams before. The
 * handles of one model are used by one thread at a time and on one stream: it has one set of activations.
 * docs/generate.md has the rules. */
#ifndef ATTUNE_MODEL_C_H_
#define ATTUNE_MODEL_C_H_

#include "runtime/attune_c.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attune_model attune_model;
typedef struct attune_model_session attune_model_session;
typedef struct attune_generator attune_generator;

/* Of linear layers and the head. */
typedef enum attune_weights {
  ATTUNE_WEIGHTS_BF16 = 0,
  ATTUNE_WEIGHTS_INT4 = 1 /* packed while they are loaded */
} attune_weights;

/* What proposes the tokens that a step verifies together. */
typedef enum attune_draft {
  ATTUNE_DRAFT_NONE = 0,
  ATTUNE_DRAFT_NGRAM = 1, /* prompt look-up */
  ATTUNE_DRAFT_EAGLE3 = 2 /* the head of attune_model_options.eagle3 */
} attune_draft;

/* 0 is the default of every field. */
typedef struct attune_model_options {
  size_t struct_size;
  int32_t max_tokens;    /* longest sequence, its uncommitted tokens included; 8192 */
  int32_t max_sequences; /* sessions and generators that are open at a time; 1 */
  int32_t max_prefill;   /* longest chunk of a prompt; 512, up to max_tokens */
  int32_t max_verify;    /* most tokens of a verify, up to 16; 8 */
  int32_t weights;       /* attune_weights */
  /* 1: decode and verify need not give a token the same bits, for speed; drafts then may change tokens. */
  int32_t not_invariant;
  /* Folder of an EAGLE-3 head, of a model with random weights also the head's config.json: the model keeps
   * what the head reads. NULL: none. */
  const char* eagle3;
} attune_model_options;

typedef struct attune_model_info {
  size_t struct_size;
  int32_t vocab_size;
  int32_t hidden_size;
  int32_t num_layers;
  int32_t max_positions;
  int32_t max_tokens, max_prefill, max_verify; /* as asked for */
  int32_t bos_token;
  uint64_t logits; /* float [max_verify, vocab_size] in device memory, after the softcap */
  uint64_t best;   /* int32 [max_verify]: the first of the largest logits; -1: NaN */
  size_t weight_bytes, activation_bytes, cache_bytes; /* in device memory */
} attune_model_info;

/* Why a run ended. */
typedef enum attune_end {
  ATTUNE_END_STOP_TOKEN = 0,
  ATTUNE_END_MAX_NEW_TOKENS = 1,
  ATTUNE_END_CONTEXT = 2,
  ATTUNE_END_CANCELLED = 3
} attune_end;

/* 0 is the default of every field. */
typedef struct attune_generate_options {
  size_t struct_size;
  int32_t chain;          /* proposals of a round, up to max_verify - 1; 4, or as many as that */
  int32_t max_new_tokens; /* 128 */
  const int32_t* stop_tokens; /* num_stop_tokens of them; NULL: those of the model's config */
  size_t num_stop_tokens;
  int32_t ignore_stop_tokens; /* 1: none ends the run */
  int32_t no_cuda_graph;      /* 1: steps are launched, not captured and replayed */
  int32_t top_k;              /* the most probable tokens that are kept; 0: all */
  int32_t reserved;           /* 0 */
  double temperature;         /* 0: greedy */
  double top_p;               /* then the fewest whose probabilities reach it; 0: 1 */
  uint64_t seed;
  /* Gets the tokens of each round as they are emitted, on the thread of the run; 0 ends the run. It must
   * not use the model. NULL: none. */
  int32_t (*on_tokens)(const int32_t* tokens, size_t num_tokens, void* context);
  void* context;
} attune_generate_options;

typedef struct attune_generate_result {
  size_t struct_size;
  int32_t end;              /* attune_end */
  int32_t num_tokens;       /* emitted, a stop token included */
  int64_t num_rounds;       /* of decoding or verifying */
  int64_t num_accepted;     /* proposals */
  double prefill_s;         /* to the first token */
  double decode_s;          /* all rounds */
  double verify_s, draft_s; /* of them */
} attune_generate_result;

/* `folder` holds a Hugging Face checkpoint; `options` may be NULL. Copies the weights to the device and
 * waits. The engine must not be sealed. */
ATTUNE_API attune_status attune_model_open(attune_engine* engine, const char* folder,
                                           const attune_model_options* options,
                                           attune_model** model);
/* The shapes of a config.json with random weights, the same for a seed on every device. */
ATTUNE_API attune_status attune_model_random(attune_engine* engine, const char* config,
                                             uint64_t seed, const attune_model_options* options,
                                             attune_model** model);
ATTUNE_API void attune_model_destroy(attune_model* model); /* NULL: fine */
ATTUNE_API attune_status attune_model_get_info(const attune_model* model, attune_model_info* info);
/* As attune_attention_explain. */
ATTUNE_API attune_status attune_model_explain(const attune_model* model, char* text, size_t size,
                                              size_t* needed);

/* The ids of the next step's tokens, in host memory of any kind, page-locked too: they have been read when it
 * returns. Not inside of a capture. */
ATTUNE_API attune_status attune_model_set_tokens(attune_model* model, const int32_t* tokens,
                                                 size_t num_tokens, void* stream);
/* What the last step left, of its first `rows` rows, into host memory; of a prefill there is one row, of its
 * last token. Both wait for the stream. `logits` has rows * vocab_size numbers. */
ATTUNE_API attune_status attune_model_read_logits(const attune_model* model, int32_t rows,
                                                  float* logits, void* stream);
ATTUNE_API attune_status attune_model_read_best(const attune_model* model, int32_t rows,
                                                int32_t* tokens, void* stream);

/* A sequence without tokens. */
ATTUNE_API attune_status attune_model_session_open(attune_model* model,
                                                   attune_model_session** session);
ATTUNE_API void attune_model_session_close(attune_model_session* session); /* NULL: fine */
/* A step with the first num_tokens ids; the caller commits. A verify of 1 is a decode. */
ATTUNE_API attune_status attune_model_session_prefill(attune_model_session* session,
                                                      int32_t num_tokens, void* stream);
ATTUNE_API attune_status attune_model_session_verify(attune_model_session* session,
                                                     int32_t num_tokens, void* stream);
/* Opens a step that a captured graph of a verify runs. Not inside of a capture. */
ATTUNE_API attune_status attune_model_session_begin_step(attune_model_session* session,
                                                         int32_t num_tokens, void* stream);
/* Ends the step: its first num_tokens tokens become part of the sequence. 0 after a capture. */
ATTUNE_API attune_status attune_model_session_commit(attune_model_session* session,
                                                     int32_t num_tokens, void* stream);
/* Cuts the sequence by its last num_tokens tokens. */
ATTUNE_API attune_status attune_model_session_rollback(attune_model_session* session,
                                                       int32_t num_tokens, void* stream);
ATTUNE_API attune_status attune_model_session_length(const attune_model_session* session,
                                                     int32_t* num_tokens);
/* Tokens that the next step may have at most. */
ATTUNE_API attune_status attune_model_session_largest_step(const attune_model_session* session,
                                                           int32_t* num_tokens);

/* One sequence of the model and its drafter (attune_draft). Loads the head of ATTUNE_DRAFT_EAGLE3, so before
 * the engine is sealed. `stream` NULL: one of its own. */
ATTUNE_API attune_status attune_generator_create(attune_model* model, int32_t draft, void* stream,
                                                 attune_generator** generator);
ATTUNE_API void attune_generator_destroy(attune_generator* generator); /* NULL: fine */
/* Runs follow each other and share captured steps, which are captured again behind attune_engine_swap.
 * `options` and `result` may be NULL. */
ATTUNE_API attune_status attune_generator_run(attune_generator* generator, const int32_t* prompt,
                                              size_t num_prompt,
                                              const attune_generate_options* options,
                                              attune_generate_result* result);
/* The tokens of the last run that ended well: as many as fit, and in num_tokens how many there are.
 * `tokens` may be NULL with 0. */
ATTUNE_API attune_status attune_generator_tokens(const attune_generator* generator, int32_t* tokens,
                                                 size_t capacity, size_t* num_tokens);

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_MODEL_C_H_ */
