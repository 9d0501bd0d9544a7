// The C ABI of runtime/attune_gemma4_c.h.
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "runtime/attune_gemma4_c.h"
#include "runtime/c_calls.h"
#include "runtime/gemma4_c_handles.h"

namespace attune {
namespace {

// The sizes of the first version, the least that a caller may pass; later fields come behind.
constexpr std::size_t kInfoBytes = offsetof(attune_gemma4_info, rms_norm_eps) + sizeof(double);
constexpr std::size_t kLayerBytes = offsetof(attune_gemma4_layer, rope_factor) + sizeof(double);
constexpr std::size_t kOptionsBytes =
    offsetof(attune_gemma4_options, invariant) + sizeof(std::int32_t);
constexpr std::size_t kArgsBytes =
    offsetof(attune_gemma4_args, out_token_stride) + sizeof(std::int64_t);

static_assert(static_cast<int>(LayerKind::kSliding) == ATTUNE_GEMMA4_SLIDING &&
              static_cast<int>(LayerKind::kGlobal) == ATTUNE_GEMMA4_GLOBAL);

KvLayout layout_of(std::int32_t value) {
  switch (value) {
    case ATTUNE_GEMMA4_CONTIGUOUS:
      return KvLayout::kContiguous;
    case ATTUNE_GEMMA4_PAGED:
      return KvLayout::kPaged;
    case ATTUNE_GEMMA4_UNIFIED:
      return KvLayout::kUnified;
    case ATTUNE_GEMMA4_UNIFIED_PAGED:
      return KvLayout::kUnifiedPaged;
    default:
      break;
  }
  throw InvalidArgument("attune_gemma4_model_create got an unknown layout",
                        fmt::format("global_layout={}", value), "use one of attune_gemma4_layout");
}

Gemma4Options options_of(const attune_gemma4_options* given) {
  Gemma4Options options;
  if (given == nullptr) return options;
  const attune_gemma4_options c = read_struct("attune_gemma4_options", *given, kOptionsBytes);
  const auto set = [](int* field, std::int32_t value) {
    if (value != 0) *field = value;
  };
  set(&options.max_tokens, c.max_tokens);
  set(&options.max_sequences, c.max_sequences);
  set(&options.max_prefill, c.max_prefill);
  set(&options.max_verify, c.max_verify);
  set(&options.page_size, c.page_size);
  set(&options.num_pages, c.num_pages);
  const auto sizes =
      span_of("attune_gemma4_model_create", "batch_sizes", c.batch_sizes, c.num_batch_sizes);
  if (!sizes.empty()) options.batch_sizes.assign(sizes.begin(), sizes.end());
  options.global_layout = layout_of(c.global_layout);
  options.invariant = c.invariant != 0;
  return options;
}

Gemma4LayerArgs args_of(const char* function, const attune_gemma4_args* given) {
  const attune_gemma4_args c =
      read_struct("attune_gemma4_args", at(function, "args", given), kArgsBytes);
  return {.q = c.q,
          .k = c.k,
          .v = c.v,
          .out = c.out,
          .lse = c.lse,
          .q_token_stride = c.q_token_stride,
          .k_token_stride = c.k_token_stride,
          .v_token_stride = c.v_token_stride,
          .out_token_stride = c.out_token_stride};
}

attune_gemma4_layer layer_of(const LayerGeometry& from) {
  return {.struct_size = sizeof(attune_gemma4_layer),
          .kind = static_cast<std::int32_t>(from.kind),
          .num_q_heads = from.num_q_heads,
          .num_kv_heads = from.num_kv_heads,
          .head_dim = from.head_dim,
          .window = from.window,
          .k_eq_v = from.k_eq_v ? 1 : 0,
          .kv_layer = from.kv_layer,
          .rope_num_pairs = from.rope.num_pairs,
          .rope_theta = from.rope.theta,
          .rope_factor = from.rope.factor};
}

}  // namespace
}  // namespace attune

using attune::at;
using attune::guarded;

extern "C" {

attune_status attune_gemma4_geometry_from_file(const char* path,
                                               attune_gemma4_geometry** geometry) {
  const char* const function = __func__;
  return attune::make_handle(function, "geometry", geometry, [&] {
    attune::require_not_null(function, "path", path);
    return new attune_gemma4_geometry{attune::Gemma4Geometry::from_file(path)};
  });
}

attune_status attune_gemma4_geometry_from_json(const char* text,
                                               attune_gemma4_geometry** geometry) {
  const char* const function = __func__;
  return attune::make_handle(function, "geometry", geometry, [&] {
    attune::require_not_null(function, "text", text);
    return new attune_gemma4_geometry{attune::Gemma4Geometry::from_json(text)};
  });
}

void attune_gemma4_geometry_destroy(attune_gemma4_geometry* geometry) { delete geometry; }

attune_status attune_gemma4_geometry_info(const attune_gemma4_geometry* geometry,
                                          attune_gemma4_info* info) {
  const char* const function = __func__;
  return guarded([&] {
    const attune::Gemma4Geometry& from = at(function, "geometry", geometry).geometry;
    const attune_gemma4_info known{.struct_size = sizeof(attune_gemma4_info),
                                   .num_layers = static_cast<std::int32_t>(from.layers.size()),
                                   .hidden_size = from.hidden_size,
                                   .max_positions = from.max_positions,
                                   .reserved = 0,
                                   .rms_norm_eps = from.rms_norm_eps};
    attune::write_struct("attune_gemma4_info", known, attune::kInfoBytes,
                         &at(function, "info", info));
  });
}

attune_status attune_gemma4_geometry_layer(const attune_gemma4_geometry* geometry, int32_t layer,
                                           attune_gemma4_layer* to) {
  const char* const function = __func__;
  return guarded([&] {
    const auto& layers = at(function, "geometry", geometry).geometry.layers;
    if (layer < 0 || layer >= static_cast<std::int32_t>(layers.size())) {
      throw attune::InvalidArgument("no such layer", fmt::format("layer={}", layer),
                                    fmt::format("the model has {}", layers.size()));
    }
    attune::write_struct("attune_gemma4_layer", attune::layer_of(layers[layer]),
                         attune::kLayerBytes, &at(function, "to", to));
  });
}

attune_status attune_gemma4_model_create(attune_engine* engine,
                                         const attune_gemma4_geometry* geometry,
                                         const attune_gemma4_options* options,
                                         attune_gemma4_model** model) {
  const char* const function = __func__;
  return attune::make_handle(function, "model", model, [&] {
    at(function, "engine", engine);
    const attune::Gemma4Geometry& shape = at(function, "geometry", geometry).geometry;
    return new attune_gemma4_model{std::make_shared<attune::SharedGemma4Model>(
        attune::share(engine), shape, attune::options_of(options))};
  });
}

void attune_gemma4_model_destroy(attune_gemma4_model* model) { delete model; }

attune_status attune_gemma4_model_set_norm_weights(attune_gemma4_model* model, int32_t layer,
                                                   const uint16_t* q_norm, size_t num_q_norm,
                                                   const uint16_t* k_norm, size_t num_k_norm) {
  const char* const function = __func__;
  return guarded([&] {
    at(function, "model", model)
        .model->attention.set_norm_weights(layer,
                                           attune::span_of(function, "q_norm", q_norm, num_q_norm),
                                           attune::span_of(function, "k_norm", k_norm, num_k_norm));
  });
}

attune_status attune_gemma4_model_cache_bytes(const attune_gemma4_model* model, size_t* bytes) {
  return attune::get(__func__, "model", model, "bytes", bytes,
                     [](const auto& of) { return of.model->attention.cache_bytes(); });
}

attune_status attune_gemma4_model_workspace_bytes(const attune_gemma4_model* model, size_t* bytes) {
  return attune::get(__func__, "model", model, "bytes", bytes,
                     [](const auto& of) { return of.model->attention.workspace_bytes(); });
}

attune_status attune_gemma4_model_free_pages(const attune_gemma4_model* model, int32_t* num_pages) {
  return attune::get(__func__, "model", model, "num_pages", num_pages,
                     [](const auto& of) { return of.model->attention.free_pages(); });
}

attune_status attune_gemma4_model_explain(const attune_gemma4_model* model, char* text, size_t size,
                                          size_t* needed) {
  const char* const function = __func__;
  return guarded([&] {
    const attune_gemma4_model& of = at(function, "model", model);
    if (size > 0) attune::require_not_null(function, "text", text);
    attune::copy_text(of.model->attention.explain(), text, size, needed);
  });
}

attune_status attune_gemma4_session_open(attune_gemma4_model* model,
                                         attune_gemma4_session** session) {
  const char* const function = __func__;
  return attune::make_handle(function, "session", session, [&] {
    const attune_gemma4_model& of = at(function, "model", model);
    return new attune_gemma4_session{of.model, of.model->attention.open_session()};
  });
}

void attune_gemma4_session_close(attune_gemma4_session* session) { delete session; }

attune_status attune_gemma4_session_prefill(attune_gemma4_session* session, int32_t layer,
                                            int32_t num_tokens, const attune_gemma4_args* args,
                                            void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    at(function, "session", session)
        .session.prefill(layer, num_tokens, attune::args_of(function, args), stream);
  });
}

attune_status attune_gemma4_session_decode(attune_gemma4_session* session, int32_t layer,
                                           const attune_gemma4_args* args, void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    at(function, "session", session).session.decode(layer, attune::args_of(function, args), stream);
  });
}

attune_status attune_gemma4_session_verify(attune_gemma4_session* session, int32_t layer,
                                           int32_t num_tokens, const attune_gemma4_args* args,
                                           void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    at(function, "session", session)
        .session.verify(layer, num_tokens, attune::args_of(function, args), stream);
  });
}

attune_status attune_gemma4_session_begin_step(attune_gemma4_session* session, int32_t num_tokens,
                                               void* stream) {
  const char* const function = __func__;
  return guarded([&] { at(function, "session", session).session.begin_step(num_tokens, stream); });
}

attune_status attune_gemma4_session_commit(attune_gemma4_session* session, int32_t num_tokens,
                                           void* stream) {
  const char* const function = __func__;
  return guarded([&] { at(function, "session", session).session.commit(num_tokens, stream); });
}

attune_status attune_gemma4_session_rollback(attune_gemma4_session* session, int32_t num_tokens,
                                             void* stream) {
  const char* const function = __func__;
  return guarded([&] { at(function, "session", session).session.rollback(num_tokens, stream); });
}

attune_status attune_gemma4_session_reserve(attune_gemma4_session* session, int32_t num_tokens,
                                            void* stream) {
  const char* const function = __func__;
  return guarded([&] { at(function, "session", session).session.reserve(num_tokens, stream); });
}

attune_status attune_gemma4_session_length(const attune_gemma4_session* session,
                                           int32_t* num_tokens) {
  return attune::get(__func__, "session", session, "num_tokens", num_tokens,
                     [](const auto& of) { return of.session.length(); });
}

attune_status attune_gemma4_session_largest_step(const attune_gemma4_session* session,
                                                 int32_t* num_tokens) {
  return attune::get(__func__, "session", session, "num_tokens", num_tokens,
                     [](const auto& of) { return of.session.largest_step(); });
}

attune_status attune_gemma4_session_cache_bytes(const attune_gemma4_session* session,
                                                size_t* bytes) {
  return attune::get(__func__, "session", session, "bytes", bytes,
                     [](const auto& of) { return of.session.cache_bytes(); });
}

attune_status attune_gemma4_batch_create(attune_gemma4_model* model, int32_t size,
                                         attune_gemma4_batch** batch) {
  const char* const function = __func__;
  return attune::make_handle(function, "batch", batch, [&] {
    const attune_gemma4_model& of = at(function, "model", model);
    return new attune_gemma4_batch{of.model, of.model->attention.make_batch(size)};
  });
}

void attune_gemma4_batch_destroy(attune_gemma4_batch* batch) { delete batch; }

attune_status attune_gemma4_batch_assign(attune_gemma4_batch* batch,
                                         attune_gemma4_session* const* sessions,
                                         size_t num_sessions, void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    attune::Gemma4Batch& to = at(function, "batch", batch).batch;
    std::vector<attune::Gemma4Session*> assigned;
    for (auto* session : attune::span_of(function, "sessions", sessions, num_sessions)) {
      assigned.push_back(
          &at(function, fmt::format("sessions[{}]", assigned.size()).c_str(), session).session);
    }
    to.assign(assigned, stream);
  });
}

attune_status attune_gemma4_batch_prefill(attune_gemma4_batch* batch, int32_t layer,
                                          int32_t num_tokens, const attune_gemma4_args* args,
                                          void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    at(function, "batch", batch)
        .batch.prefill(layer, num_tokens, attune::args_of(function, args), stream);
  });
}

attune_status attune_gemma4_batch_decode(attune_gemma4_batch* batch, int32_t layer,
                                         const attune_gemma4_args* args, void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    at(function, "batch", batch).batch.decode(layer, attune::args_of(function, args), stream);
  });
}

attune_status attune_gemma4_batch_verify(attune_gemma4_batch* batch, int32_t layer,
                                         int32_t num_tokens, const attune_gemma4_args* args,
                                         void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    at(function, "batch", batch)
        .batch.verify(layer, num_tokens, attune::args_of(function, args), stream);
  });
}

attune_status attune_gemma4_batch_begin_step(attune_gemma4_batch* batch, int32_t num_tokens,
                                             void* stream) {
  const char* const function = __func__;
  return guarded([&] { at(function, "batch", batch).batch.begin_step(num_tokens, stream); });
}

attune_status attune_gemma4_batch_commit(attune_gemma4_batch* batch, const int32_t* num_tokens,
                                         size_t num_sessions, void* stream) {
  const char* const function = __func__;
  return guarded([&] {
    attune::Gemma4Batch& to = at(function, "batch", batch).batch;
    to.commit(attune::span_of(function, "num_tokens", num_tokens, num_sessions), stream);
  });
}

attune_status attune_gemma4_batch_largest_step(const attune_gemma4_batch* batch,
                                               int32_t* num_tokens) {
  return attune::get(__func__, "batch", batch, "num_tokens", num_tokens,
                     [](const auto& of) { return of.batch.largest_step(); });
}

attune_status attune_gemma4_batch_workspace_bytes(const attune_gemma4_batch* batch, size_t* bytes) {
  return attune::get(__func__, "batch", batch, "bytes", bytes,
                     [](const auto& of) { return of.batch.workspace_bytes(); });
}

}  // extern "C"
