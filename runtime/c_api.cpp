// The C ABI of runtime/attune_c.h.
#include <algorithm>
#include <cstddef>
#include <string>

#include <fmt/format.h>

#include "runtime/attune_c.h"
#include "runtime/c_errors.h"
#include "runtime/c_handles.h"
#include "runtime/family_switch.h"
#include "runtime/store_options.h"

namespace attune {
namespace {

// The sizes of version 0.1.0, the least that a caller may pass; later fields stand behind these.
constexpr std::size_t kOptionsBytes = offsetof(attune_options, log_context) + sizeof(void*);
constexpr std::size_t kCountersBytes = offsetof(attune_counters, swaps) + sizeof(std::uint64_t);
constexpr std::size_t kArgsBytes = offsetof(attune_args, softcap) + sizeof(float);

OnMiss on_miss_of(std::int32_t value) {
  switch (value) {
    case ATTUNE_MISS_DEFAULT:
      return OnMiss::kDefault;
    case ATTUNE_MISS_TUNE:
      return OnMiss::kTune;
    case ATTUNE_MISS_ERROR:
      return OnMiss::kError;
    case ATTUNE_MISS_BACKGROUND:
      return OnMiss::kBackground;
    default:
      break;
  }
  throw InvalidArgument("attune_engine_create got an unknown policy",
                        fmt::format("on_miss={}", value), "use a value of attune_on_miss");
}

AttentionArgs args_of(const attune_args& given) {
  const attune_args c = read_struct("attune_args", given, kArgsBytes);
  require_zero("attune_args.reserved", c.reserved);
  AttentionArgs args;
  args.q = c.q;
  args.k = c.k;
  args.v = c.v;
  args.out = c.out;
  args.lse = c.lse;
  args.kv_len = c.kv_len;
  args.workspace = c.workspace;
  args.capacity = c.capacity;
  std::copy_n(c.q_strides, 3, args.q_strides);
  std::copy_n(c.k_strides, 3, args.k_strides);
  std::copy_n(c.v_strides, 3, args.v_strides);
  std::copy_n(c.out_strides, 3, args.out_strides);
  args.sm_scale = c.sm_scale;
  args.softcap = c.softcap;
  args.seqlen_q = c.seqlen_q;
  args.kv_len_add = c.kv_len_add;
  args.sequence = c.sequence;
  args.block_table = c.block_table;
  args.block_table_stride = c.block_table_stride;
  args.overlap = c.overlap != 0;
  return args;
}

attune_served served_of(Served served) {
  switch (served) {
    case Served::kExact:
      return ATTUNE_SERVED_EXACT;
    case Served::kNearest:
      return ATTUNE_SERVED_NEAREST;
    case Served::kDefault:
      break;
  }
  return ATTUNE_SERVED_DEFAULT;
}

attune_counters counters_of(const Counters& from) {
  return {.struct_size = sizeof(attune_counters),
          .exact = from.exact,
          .nearest = from.nearest,
          .defaults = from.defaults,
          .compiles = from.compiles,
          .late_prepares = from.late_prepares,
          .background_tunes = from.background_tunes,
          .background_failures = from.background_failures,
          .swaps = from.swaps};
}

}  // namespace

Options engine_options(const attune_options* given) {
  Options options = Options::from_environment();
  if (given == nullptr) return options;
  const attune_options c = read_struct("attune_options", *given, kOptionsBytes);
  options.device_ordinal = c.device_ordinal;
  options.on_miss = on_miss_of(c.on_miss);
  options.strict = c.strict != 0;
  if (c.tune_budget_s != 0) options.tune_budget_s = c.tune_budget_s;
  if (c.cache_path != nullptr) options.cache_path = c.cache_path;
  if (c.device != nullptr) options.device = c.device;
  if (c.nvrtc_path != nullptr) options.nvrtc_path = c.nvrtc_path;
  if (c.worker_path != nullptr) options.worker_path = c.worker_path;
  if (c.tune_worker_path != nullptr) options.tune_worker_path = c.tune_worker_path;
  if (c.measure_worker_path != nullptr) options.measure_worker_path = c.measure_worker_path;
  if (c.cache_bases != nullptr) options.cache_bases = base_paths(c.cache_bases);
  if (c.cache_max_size != nullptr) options.cache_max_bytes = parse_size(c.cache_max_size);
  if (c.gpu_alias != nullptr) options.gpu_alias = c.gpu_alias;
  if (c.cublaslt_path != nullptr) options.cublaslt_path = c.cublaslt_path;
  if (c.disabled_families != nullptr) {
    options.disabled_families = parse_family_names(c.disabled_families);
  }
  if (c.log != nullptr) {
    options.log = [log = c.log, context = c.log_context](const std::string& message) {
      log(message.c_str(), context);
    };
  }
  return options;
}

}  // namespace attune

extern "C" {

const char* attune_version(void) { return ATTUNE_VERSION; }

const char* attune_last_error(void) { return attune::last_error(); }

const char* attune_status_name(attune_status status) {
  switch (status) {
    case ATTUNE_OK:
      return "ok";
    case ATTUNE_ERROR:
      return "error";
    case ATTUNE_INVALID_ARGUMENT:
      return "invalid argument";
    case ATTUNE_NO_DEVICE:
      return "no device";
    case ATTUNE_CUDA_ERROR:
      return "CUDA error";
    case ATTUNE_COMPILE_ERROR:
      return "compile error";
    case ATTUNE_CACHE_ERROR:
      return "cache error";
    case ATTUNE_NOT_PREPARED:
      return "not prepared";
  }
  return "unknown status";
}

attune_status attune_engine_create(const attune_options* options, attune_engine** engine) {
  return attune::guarded([&] {
    attune::require_not_null("attune_engine_create", "engine", engine);
    *engine = nullptr;
    *engine = new attune_engine{attune::Engine(attune::engine_options(options))};
  });
}

void attune_engine_destroy(attune_engine* engine) { attune::release(engine); }

attune_status attune_engine_seal(attune_engine* engine) {
  return attune::guarded([&] {
    attune::require_not_null("attune_engine_seal", "engine", engine);
    engine->engine.seal();
  });
}

attune_status attune_engine_prepare(attune_engine* engine, const char* problem,
                                    attune_attention** attention) {
  return attune::guarded([&] {
    constexpr const char* kFunction = "attune_engine_prepare";
    attune::require_not_null(kFunction, "attention", attention);
    *attention = nullptr;
    attune::require_not_null(kFunction, "engine", engine);
    attune::require_not_null(kFunction, "problem", problem);
    *attention = new attune_attention{engine->engine.prepare(problem)};
  });
}

attune_status attune_engine_poll(attune_engine* engine, size_t* num_pending, size_t* num_ready) {
  return attune::guarded([&] {
    attune::require_not_null("attune_engine_poll", "engine", engine);
    const attune::BackgroundProgress progress = engine->engine.poll();
    if (num_pending != nullptr) *num_pending = progress.waiting + progress.running;
    if (num_ready != nullptr) *num_ready = progress.ready;
  });
}

attune_status attune_engine_swap(attune_engine* engine, void* stream, size_t* num_swapped) {
  return attune::guarded([&] {
    attune::require_not_null("attune_engine_swap", "engine", engine);
    const std::size_t swapped = engine->engine.swap(stream).size();
    if (num_swapped != nullptr) *num_swapped = swapped;
  });
}

attune_status attune_engine_generation(const attune_engine* engine, uint64_t* generation) {
  return attune::guarded([&] {
    constexpr const char* kFunction = "attune_engine_generation";
    attune::require_not_null(kFunction, "engine", engine);
    attune::require_not_null(kFunction, "generation", generation);
    *generation = engine->engine.generation();
  });
}

attune_status attune_engine_release_replaced(attune_engine* engine, size_t* num_released) {
  return attune::guarded([&] {
    attune::require_not_null("attune_engine_release_replaced", "engine", engine);
    const std::size_t released = engine->engine.release_replaced();
    if (num_released != nullptr) *num_released = released;
  });
}

attune_status attune_engine_counters(const attune_engine* engine, attune_counters* counters) {
  return attune::guarded([&] {
    constexpr const char* kFunction = "attune_engine_counters";
    attune::require_not_null(kFunction, "engine", engine);
    attune::require_not_null(kFunction, "counters", counters);
    attune::write_struct("attune_counters", attune::counters_of(engine->engine.counters()),
                         attune::kCountersBytes, counters);
  });
}

attune_status attune_engine_choices_digest(const attune_engine* engine, char* text, size_t size,
                                           size_t* needed) {
  return attune::guarded([&] {
    constexpr const char* kFunction = "attune_engine_choices_digest";
    attune::require_not_null(kFunction, "engine", engine);
    if (size > 0) attune::require_not_null(kFunction, "text", text);
    attune::copy_text(engine->engine.choices_digest(), text, size, needed);
  });
}

void attune_attention_destroy(attune_attention* attention) { delete attention; }

attune_status attune_attention_workspace_bytes(const attune_attention* attention, size_t* bytes) {
  return attune::guarded([&] {
    constexpr const char* kFunction = "attune_attention_workspace_bytes";
    attune::require_not_null(kFunction, "attention", attention);
    attune::require_not_null(kFunction, "bytes", bytes);
    *bytes = attention->attention.workspace_bytes();
  });
}

attune_status attune_attention_served(const attune_attention* attention, attune_served* served) {
  return attune::guarded([&] {
    constexpr const char* kFunction = "attune_attention_served";
    attune::require_not_null(kFunction, "attention", attention);
    attune::require_not_null(kFunction, "served", served);
    *served = attune::served_of(attention->attention.served());
  });
}

attune_status attune_attention_launch(const attune_attention* attention, const attune_args* args,
                                      void* stream) {
  return attune::guarded([&] {
    constexpr const char* kFunction = "attune_attention_launch";
    attune::require_not_null(kFunction, "attention", attention);
    attune::require_not_null(kFunction, "args", args);
    attention->attention.launch(attune::args_of(*args), stream);
  });
}

attune_status attune_attention_explain(const attune_attention* attention, char* text, size_t size,
                                       size_t* needed) {
  return attune::guarded([&] {
    constexpr const char* kFunction = "attune_attention_explain";
    attune::require_not_null(kFunction, "attention", attention);
    if (size > 0) attune::require_not_null(kFunction, "text", text);
    attune::copy_text(attention->attention.explain(), text, size, needed);
  });
}

}  // extern "C"
