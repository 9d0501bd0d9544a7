// The C ABI: every function turns exceptions into a status and a thread-local message.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include <fmt/format.h>

#include "runtime/attune_c.h"
#include "runtime/c_handles.h"

namespace attune {
namespace {

thread_local std::string last_error;

// Never throws: without memory for the message a part of it is kept.
attune_status fail(attune_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (const std::bad_alloc&) {
    last_error.assign("out of memory", std::min<std::size_t>(13, last_error.capacity()));
  }
  return status;
}

attune_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return fail(ATTUNE_INVALID_ARGUMENT, error.what());
  } catch (const NotPrepared& error) {
    return fail(ATTUNE_NOT_PREPARED, error.what());
  } catch (const DeviceUnavailable& error) {
    return fail(ATTUNE_NO_DEVICE, error.what());
  } catch (const CudaError& error) {
    return fail(ATTUNE_CUDA_ERROR, error.what());
  } catch (const CompileError& error) {
    return fail(ATTUNE_COMPILE_ERROR, error.what());
  } catch (const CacheError& error) {
    return fail(ATTUNE_CACHE_ERROR, error.what());
  } catch (const std::exception& error) {
    return fail(ATTUNE_ERROR, error.what());
  } catch (...) {
    return fail(ATTUNE_ERROR, "unknown exception");
  }
}

template <typename Body>
attune_status guarded(const Body& body) noexcept {
  last_error.clear();
  try {
    body();
    return ATTUNE_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

void require_not_null(const char* function, const char* name, const void* value) {
  if (value == nullptr) {
    throw InvalidArgument(fmt::format("{} got a null pointer", function),
                          fmt::format("{}=NULL", name), "pass a valid one");
  }
}

// Reads a struct of the caller's size: an older caller's lacks the last fields, which stay zero; a
// newer one's has more than is known here, which must be zero.
template <typename T>
T read_struct(const char* name, const T& from, std::size_t least_bytes) {
  const std::size_t bytes = from.struct_size;
  const auto refuse = [&](const char* what_to_do) {
    throw InvalidArgument("a struct has a size that is not known here",
                          fmt::format("{}.struct_size={} known={}", name, bytes, sizeof(T)),
                          what_to_do);
  };
  if (bytes < least_bytes || bytes > 64 * sizeof(T)) refuse("set struct_size to sizeof the struct");
  const auto* unknown = reinterpret_cast<const unsigned char*>(&from) + sizeof(T);
  for (std::size_t i = 0; i + sizeof(T) < bytes; ++i) {
    if (unknown[i] != 0) refuse("it uses fields of a newer attune: use a newer library");
  }
  T known{};
  std::memcpy(static_cast<void*>(&known), &from, std::min(bytes, sizeof(T)));
  return known;
}

// The sizes of version 0.1.0, the least that a caller may pass; later fields stand behind these.
constexpr std::size_t kOptionsBytes = offsetof(attune_options, log_context) + sizeof(void*);
constexpr std::size_t kArgsBytes = offsetof(attune_args, softcap) + sizeof(float);

OnMiss on_miss_of(std::int32_t value) {
  switch (value) {
    case ATTUNE_MISS_DEFAULT:
      return OnMiss::kDefault;
    case ATTUNE_MISS_TUNE:
      return OnMiss::kTune;
    case ATTUNE_MISS_ERROR:
      return OnMiss::kError;
    default:
      break;
  }
  throw InvalidArgument("attune_engine_create got an unknown policy",
                        fmt::format("on_miss={}", value), "use a value of attune_on_miss");
}

Options options_of(const attune_options* given) {
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
  if (c.log != nullptr) {
    options.log = [log = c.log, context = c.log_context](const std::string& message) {
      log(message.c_str(), context);
    };
  }
  return options;
}

AttentionArgs args_of(const attune_args& given) {
  const attune_args c = read_struct("attune_args", given, kArgsBytes);
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

// What fits of `from` with a terminator; `needed` gets the whole length plus one.
void copy_text(const std::string& from, char* text, std::size_t size, std::size_t* needed) {
  if (needed != nullptr) *needed = from.size() + 1;
  if (size == 0) return;
  const std::size_t length = std::min(from.size(), size - 1);
  std::memcpy(text, from.data(), length);
  text[length] = '\0';
}

}  // namespace
}  // namespace attune

extern "C" {

const char* attune_version(void) { return ATTUNE_VERSION; }

const char* attune_last_error(void) { return attune::last_error.c_str(); }

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
    *engine = new attune_engine{attune::Engine(attune::options_of(options))};
  });
}

void attune_engine_destroy(attune_engine* engine) { delete engine; }

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
