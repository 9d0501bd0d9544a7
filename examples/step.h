/* One attention step of the examples: its shape, its data on the host and on the device, and the
 * check of some result rows against the formula. C and C++. */
#ifndef ATTUNE_EXAMPLES_STEP_H_
#define ATTUNE_EXAMPLES_STEP_H_

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_min.h"

typedef struct step_shape {
  const char* problem;
  int seqlen_q, num_q_heads, num_kv_heads, head_dim;
  int window;   /* keys a query sees, itself included; 0: all */
  int capacity; /* KV rows of the buffer; token p is row p % capacity */
  int kv_len;   /* tokens in the cache, the query tokens included */
} step_shape;

/* Gemma 4 31B: a global layer decodes one token; a sliding layer verifies eight drafted ones, with
 * its ring of 2048 rows already lapped. */
static const step_shape kSteps[] = {
    {"decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16", 1, 32, 4, 512, 0, 8192, 5000},
    {"verify/b1/q8/kv1-131072/h32x16/d256/w1024/ring/bf16", 8, 32, 16, 256, 1024, 2048, 5000},
};
enum { kNumSteps = sizeof(kSteps) / sizeof(kSteps[0]) };
static const float kSmScale = 1.0f; /* Gemma 4 scales q and k by their norms instead */

/* Largest relative L2 error of one row of head_dim bf16 numbers. */
static const double kMaxRowError = 1.6e-2;

typedef struct step_data {
  size_t q_bytes, kv_bytes;
  uint16_t *q, *k, *v, *out;                         /* bf16 on the host */
  uint64_t device_q, device_k, device_v, device_out; /* and on the device */
  uint64_t device_kv_len, device_workspace;
} step_data;

static inline float step_to_float(uint16_t bf16) {
  const uint32_t bits = (uint32_t)bf16 << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline uint16_t step_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16); /* to nearest even */
}

/* Uniform numbers in [-scale, scale). */
static inline void step_fill(uint16_t* to, size_t count, float scale, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < count; ++i) {
    state ^= state << 13; /* xorshift64 (Marsaglia, 2003) */
    state ^= state >> 7;
    state ^= state << 17;
    to[i] = step_to_bf16(scale * ((float)(state >> 40) / 8388608.0f - 1.0f));
  }
}

/* Allocates and fills everything but kv_len and workspace. Returns 0 when memory runs out. */
static inline int step_create(const step_shape* shape, const cuda_min* cuda, size_t workspace_bytes,
                              step_data* data) {
  const size_t row = (size_t)shape->num_kv_heads * (size_t)shape->head_dim;
  const size_t num_q =
      (size_t)shape->seqlen_q * (size_t)shape->num_q_heads * (size_t)shape->head_dim;
  const size_t num_kv = (size_t)shape->capacity * row;
  data->q_bytes = num_q * sizeof(uint16_t);
  data->kv_bytes = num_kv * sizeof(uint16_t);
  data->q = (uint16_t*)malloc(data->q_bytes);
  data->out = (uint16_t*)malloc(data->q_bytes);
  data->k = (uint16_t*)malloc(data->kv_bytes);
  data->v = (uint16_t*)malloc(data->kv_bytes);
  if (data->q == NULL || data->out == NULL || data->k == NULL || data->v == NULL) return 0;
  step_fill(data->q, num_q, 0.125f, 1);
  step_fill(data->k, num_kv, 1.0f, 2);
  step_fill(data->v, num_kv, 1.0f, 3);
  /* What lies beyond kv_len is never used, whatever it holds. */
  for (size_t i = (size_t)shape->kv_len * row; i < num_kv; ++i) data->k[i] = data->v[i] = 0x7fc0;

  data->device_q = cuda_min_copy_of(cuda, data->q, data->q_bytes);
  data->device_k = cuda_min_copy_of(cuda, data->k, data->kv_bytes);
  data->device_v = cuda_min_copy_of(cuda, data->v, data->kv_bytes);
  data->device_out = cuda_min_copy_of(cuda, NULL, data->q_bytes);
  data->device_kv_len = cuda_min_copy_of(cuda, &shape->kv_len, sizeof(shape->kv_len));
  data->device_workspace = cuda_min_copy_of(cuda, NULL, workspace_bytes + 1); /* never 0 bytes */
  return data->device_q != 0 && data->device_k != 0 && data->device_v != 0 &&
         data->device_out != 0 && data->device_kv_len != 0 && data->device_workspace != 0;
}

static inline void step_destroy(const cuda_min* cuda, step_data* data) {
  const uint64_t device[] = {data->device_q,   data->device_k,      data->device_v,
                             data->device_out, data->device_kv_len, data->device_workspace};
  for (size_t i = 0; i < sizeof(device) / sizeof(device[0]); ++i) {
    if (device[i] != 0) cuda->mem_free(device[i]);
  }
  free(data->q);
  free(data->k);
  free(data->v);
  free(data->out);
}

/* Relative L2 error of the result row of one query token and head, computed in double. */
static inline double step_row_error(const step_shape* shape, const step_data* data, int token,
                                    int head) {
  const int head_dim = shape->head_dim;
  const int kv_head = head / (shape->num_q_heads / shape->num_kv_heads);
  const int end = shape->kv_len - shape->seqlen_q + token + 1; /* itself is the last one it sees */
  const int begin = shape->window > 0 && end > shape->window ? end - shape->window : 0;
  const size_t q_row =
      ((size_t)token * (size_t)shape->num_q_heads + (size_t)head) * (size_t)head_dim;
  double expected[512] = {0};
  double maximum = -INFINITY, sum = 0, error = 0, norm = 0;
  for (int p = begin; p < end; ++p) { /* online softmax */
    const size_t slot = (size_t)(p % shape->capacity) * (size_t)shape->num_kv_heads;
    const size_t kv_row = (slot + (size_t)kv_head) * (size_t)head_dim;
    double score = 0;
    for (int d = 0; d < head_dim; ++d) {
      score += (double)step_to_float(data->q[q_row + (size_t)d]) *
               (double)step_to_float(data->k[kv_row + (size_t)d]);
    }
    score *= (double)kSmScale;
    const double rescale = score > maximum ? exp(maximum - score) : 1.0;
    if (score > maximum) maximum = score;
    const double weight = exp(score - maximum);
    sum = sum * rescale + weight;
    for (int d = 0; d < head_dim; ++d) {
      expected[d] =
          expected[d] * rescale + weight * (double)step_to_float(data->v[kv_row + (size_t)d]);
    }
  }
  for (int d = 0; d < head_dim; ++d) {
    const double wanted = expected[d] / sum;
    const double difference = (double)step_to_float(data->out[q_row + (size_t)d]) - wanted;
    error += difference * difference;
    norm += wanted * wanted;
  }
  return sqrt(error / norm);
}

/* Downloads the result and checks the first, a middle and the last token and head. Returns the
 * largest error; NaN or infinity when the step failed. */
static inline double step_check(const step_shape* shape, const cuda_min* cuda, step_data* data) {
  if (cuda->download(data->out, data->device_out, data->q_bytes) != 0) return INFINITY;
  double worst = 0;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const double error = step_row_error(shape, data, i * (shape->seqlen_q - 1) / 2,
                                          j * (shape->num_q_heads - 1) / 2);
      if (!(error <= worst)) worst = error; /* keeps a NaN */
    }
  }
  return worst;
}

#endif /* ATTUNE_EXAMPLES_STEP_H_ */
