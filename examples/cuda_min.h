/* Device memory for the examples: the few calls of the CUDA driver that they need, opened at run
 * time, so that they build and start without a toolkit; or memory of this process for the host
 * device. An application brings its own memory. */
#ifndef ATTUNE_EXAMPLES_CUDA_MIN_H_
#define ATTUNE_EXAMPLES_CUDA_MIN_H_

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cuda_min {
  int (*init)(unsigned flags);
  int (*device_get)(int* device, int ordinal);
  int (*primary_ctx_retain)(void** context, int device);
  int (*ctx_set_current)(void* context);
  int (*mem_alloc)(uint64_t* ptr, size_t bytes);
  int (*mem_free)(uint64_t ptr);
  int (*upload)(uint64_t to, const void* from, size_t bytes);
  int (*download)(void* to, uint64_t from, size_t bytes); /* waits for all earlier work */
} cuda_min;

/* Loads the driver and makes the primary context of device `ordinal` current. Returns NULL, or what
 * went wrong. */
static inline const char* cuda_min_open(cuda_min* cuda, int ordinal) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return "libcuda.so.1 is not there: install the NVIDIA driver";
  const struct {
    void* entry;
    const char* name;
  } entries[] = {
      {&cuda->init, "cuInit"},
      {&cuda->device_get, "cuDeviceGet"},
      {&cuda->primary_ctx_retain, "cuDevicePrimaryCtxRetain"},
      {&cuda->ctx_set_current, "cuCtxSetCurrent"},
      {&cuda->mem_alloc, "cuMemAlloc_v2"},
      {&cuda->mem_free, "cuMemFree_v2"},
      {&cuda->upload, "cuMemcpyHtoD_v2"},
      {&cuda->download, "cuMemcpyDtoH_v2"},
  };
  for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); ++i) {
    void* symbol = dlsym(library, entries[i].name);
    if (symbol == NULL) return "libcuda.so.1 lacks a function: the driver is too old";
    *(void**)entries[i].entry = symbol;
  }
  int device = 0;
  void* context = NULL;
  if (cuda->init(0) != 0) return "cuInit failed: no GPU is visible";
  if (cuda->device_get(&device, ordinal) != 0) return "there is no GPU of this ordinal";
  if (cuda->primary_ctx_retain(&context, device) != 0) return "cannot create a CUDA context";
  if (cuda->ctx_set_current(context) != 0) return "cannot use the CUDA context";
  return NULL;
}

static inline int cuda_min_host_alloc(uint64_t* ptr, size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 256, bytes) != 0) return 1;
  *ptr = (uint64_t)(uintptr_t)memory;
  return 0;
}

static inline int cuda_min_host_free(uint64_t ptr) {
  free((void*)(uintptr_t)ptr);
  return 0;
}

static inline int cuda_min_host_upload(uint64_t to, const void* from, size_t bytes) {
  memcpy((void*)(uintptr_t)to, from, bytes);
  return 0;
}

static inline int cuda_min_host_download(void* to, uint64_t from, size_t bytes) {
  memcpy(to, (const void*)(uintptr_t)from, bytes);
  return 0;
}

/* Memory for the device of this name: "host" is the host device, whose pointers are those of the
 * process; anything else is the number of a GPU, and NULL the first one. */
static inline const char* cuda_min_open_device(cuda_min* cuda, const char* device) {
  if (device == NULL || strcmp(device, "host") != 0) {
    return cuda_min_open(cuda, device == NULL ? 0 : atoi(device));
  }
  memset(cuda, 0, sizeof(*cuda));
  cuda->mem_alloc = cuda_min_host_alloc;
  cuda->mem_free = cuda_min_host_free;
  cuda->upload = cuda_min_host_upload;
  cuda->download = cuda_min_host_download;
  return NULL;
}

/* Device memory that holds `bytes` of `from` (or anything when NULL); 0 when there is none left. */
static inline uint64_t cuda_min_copy_of(const cuda_min* cuda, const void* from, size_t bytes) {
  uint64_t ptr = 0;
  if (cuda->mem_alloc(&ptr, bytes) != 0) return 0;
  if (from != NULL && cuda->upload(ptr, from, bytes) != 0) {
    cuda->mem_free(ptr);
    return 0;
  }
  return ptr;
}

#endif /* ATTUNE_EXAMPLES_CUDA_MIN_H_ */
