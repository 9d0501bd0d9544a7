/* Serves one decode and one verify step of Gemma 4 31B through the C ABI and checks the results.
 * The device is the argument, else ATTUNE_DEVICE, else GPU 0; "host" needs no GPU.
 * Exit code: 0 right, 1 an error or a wrong result, 3 no GPU. */
#include "runtime/attune_c.h"
#include "step.h"

static void print_warning(const char* message, void* context) {
  (void)context;
  fprintf(stderr, "attune: %s\n", message);
}

static int failed(attune_status status, const char* what) {
  if (status == ATTUNE_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", what, attune_status_name(status), attune_last_error());
  return 1;
}

/* Prepares, launches and checks one step. Returns 0 when the result is right. */
static int serve_step(attune_engine* engine, const cuda_min* cuda, const step_shape* shape) {
  attune_attention* attention = NULL;
  size_t workspace_bytes = 0;
  char explanation[4096];
  step_data data = {0};
  int result = 1;

  if (failed(attune_engine_prepare(engine, shape->problem, &attention), "prepare")) return 1;
  if (failed(attune_attention_workspace_bytes(attention, &workspace_bytes), "workspace")) goto done;
  if (failed(attune_attention_explain(attention, explanation, sizeof(explanation), NULL),
             "explain"))
    goto done;
  printf("%s", explanation);
  if (!step_create(shape, cuda, workspace_bytes, &data)) {
    fprintf(stderr, "out of memory\n");
    goto done;
  }

  attune_args args = {0};
  args.struct_size = sizeof(args);
  args.q = data.device_q;
  args.k = data.device_k;
  args.v = data.device_v;
  args.out = data.device_out;
  args.kv_len = data.device_kv_len;
  args.workspace = data.device_workspace;
  args.capacity = shape->capacity;
  args.sm_scale = kSmScale;
  if (failed(attune_attention_launch(attention, &args, NULL), "launch")) goto done;

  const double error = step_check(shape, cuda, &data);
  result = error <= kMaxRowError ? 0 : 1;
  printf("result     %s: largest relative error of a row %.2e, limit %.2e\n\n",
         result == 0 ? "right" : "WRONG", error, kMaxRowError);
done:
  step_destroy(cuda, &data);
  attune_attention_destroy(attention);
  return result;
}

int main(int argc, char** argv) {
  const char* device = argc > 1 ? argv[1] : getenv("ATTUNE_DEVICE");
  attune_options options = {0};
  options.struct_size = sizeof(options);
  options.log = print_warning;
  options.device = device;
  attune_engine* engine = NULL;
  const attune_status status = attune_engine_create(&options, &engine);
  if (failed(status, "cannot open an engine")) return status == ATTUNE_NO_DEVICE ? 3 : 1;

  cuda_min cuda;
  const char* problem = cuda_min_open_device(&cuda, device);
  if (problem != NULL) {
    fprintf(stderr, "%s\n", problem);
    attune_engine_destroy(engine);
    return 3;
  }
  int result = 0;
  for (int i = 0; i < kNumSteps; ++i) result |= serve_step(engine, &cuda, &kSteps[i]);
  attune_engine_destroy(engine);
  return result;
}
