// One layer of a step: the prologue and the attention, on the caller's stream.
#include <bit>

#include <fmt/format.h>

#include "runtime/device_pointer.h"
#include "runtime/gemma4_state.h"
#include "templates/prologue_plan.h"

namespace attune {
namespace {

constexpr std::uint64_t kAlignment = 16;
constexpr std::int64_t kStrideMultiple = 8;

std::string_view name_of(StepKind kind) {
  switch (kind) {
    case StepKind::kPrefill:
      return "prefill";
    case StepKind::kDecode:
      return "decode";
    case StepKind::kVerify:
      break;
  }
  return "verify";
}

struct Call {
  int layer;
  StepKind kind;
  int batch;
  int num_tokens;
};

[[noreturn]] void refuse(const Call& call, const std::string& values,
                         const std::string& what_to_do) {
  throw InvalidArgument("cannot run a layer's attention",
                        fmt::format("{} {} of layer {}, batch {}, {} tokens", values,
                                    name_of(call.kind), call.layer, call.batch, call.num_tokens),
                        what_to_do);
}

void check_pointer(const Call& call, const char* name, std::uint64_t value, bool needed) {
  if (needed && value == 0) refuse(call, fmt::format("{}=0", name), "pass a device pointer");
  if (!needed && value != 0) {
    refuse(call, fmt::format("{}={:#x}", name, value), "this layer has no such projection: pass 0");
  }
  if (value % kAlignment != 0) {
    refuse(call, fmt::format("{}={:#x}", name, value), "align it to 16 bytes");
  }
}

// The stride itself, or the dense one.
std::int64_t token_stride(const Call& call, const char* name, std::int64_t stride,
                          std::int64_t dense) {
  if (stride == 0) return dense;
  if (stride < dense || stride % kStrideMultiple != 0) {
    refuse(call, fmt::format("{}_token_stride={}", name, stride),
           fmt::format("it is 0, or a multiple of {} from {} on", kStrideMultiple, dense));
  }
  return stride;
}

}  // namespace

void Gemma4Attention::State::run(const StepTarget& target, int layer_idx, StepKind kind,
                                 int num_tokens, const Gemma4LayerArgs& args,
                                 StreamHandle stream) const {
  const Call call{layer_idx, kind, target.batch, num_tokens};
  const Layer& layer = layers[layer_idx];
  const LayerKernels& shape = kernels[layer.kernels_idx];
  const LayerGeometry& g = shape.geometry;
  if (!layer.has_weights) {
    refuse(call, "norm weights are missing", "call set_norm_weights for every layer first");
  }
  const bool has_v = shape.owns_cache && !g.k_eq_v;
  check_pointer(call, "q", args.q, true);
  check_pointer(call, "k", args.k, shape.owns_cache);
  check_pointer(call, "v", args.v, has_v);
  check_pointer(call, "out", args.out, true);
  if (args.lse % sizeof(float) != 0) {
    refuse(call, fmt::format("lse={:#x}", args.lse), "align it to 4 bytes");
  }
  const std::int64_t q_dense = std::int64_t{1} * g.num_q_heads * g.head_dim;
  const std::int64_t kv_dense = std::int64_t{1} * g.num_kv_heads * g.head_dim;
  const LayerCache& cache = caches.at(layer.cache_layer);

  PrologueParams p{};
  p.q = pointer<const void>(args.q);
  p.k = pointer<const void>(args.k);
  p.v = pointer<const void>(has_v ? args.v : args.k);
  p.q_weight = pointer<const float>(layer.q_weight.ptr());
  p.k_weight = pointer<const float>(layer.k_weight.ptr());
  p.inv_freq = pointer<const float>(shape.inverse_frequencies.ptr());
  p.q_out = pointer<void>(target.memory->queries.ptr());
  p.k_cache = pointer<void>(cache.k.ptr());
  p.v_cache = pointer<void>(cache.v.ptr());
  p.kv_len = pointer<const int>(target.lengths);
  p.sequence = pointer<const int>(target.sequences);
  p.block_table = pointer<const int>(integers->ptr());
  p.q_token_stride = token_stride(call, "q", args.q_token_stride, q_dense);
  p.k_token_stride = token_stride(call, "k", args.k_token_stride, kv_dense);
  p.v_token_stride =
      has_v ? token_stride(call, "v", args.v_token_stride, kv_dense) : p.k_token_stride;
  p.q_batch_stride = num_tokens * p.q_token_stride;
  p.k_batch_stride = num_tokens * p.k_token_stride;
  p.v_batch_stride = num_tokens * p.v_token_stride;
  p.q_out_token_stride = q_dense;
  p.q_out_batch_stride = num_tokens * q_dense;
  p.k_cache_batch_stride = p.v_cache_batch_stride = cache.batch_stride;
  p.k_cache_token_stride = p.v_cache_token_stride = cache.token_stride;
  p.k_cache_head_stride = p.v_cache_head_stride = cache.head_stride;
  p.block_table_stride = pages_per_sequence;
  p.batch = target.batch;
  p.seqlen_q = num_tokens;
  p.num_q_heads = g.num_q_heads;
  p.num_kv_heads = shape.owns_cache ? g.num_kv_heads : 0;
  p.num_pairs = g.rope.num_pairs;
  p.ring_capacity = shape.ring_rows;
  p.page_shift = options.page_size > 0 ? std::countr_zero(unsigned(options.page_size)) : 0;
  p.overlap = args.overlap ? 1 : 0;
  p.eps = static_cast<float>(geometry.rms_norm_eps);

  AttentionArgs a;
  a.q = target.memory->queries.ptr();
  a.k = cache.k.ptr();
  a.v = cache.v.ptr();
  a.out = args.out;
  a.lse = args.lse;
  a.kv_len = target.lengths;
  a.kv_len_add = num_tokens;
  a.sequence = target.sequences;
  a.workspace = target.memory->workspace.ptr();
  a.seqlen_q = kind == StepKind::kPrefill ? num_tokens : 0;
  const bool paged = attune::is_paged(shape.layout);
  // The prologue in front writes the step's keys and queries alone, and waits for what was before it, or
  // the kernel in front of it has.
  a.overlap = true;
  a.capacity = shape.layout == KvLayout::kRing ? shape.ring_rows : options.max_tokens;
  if (paged) {
    a.capacity = std::int64_t{1} * pages_per_sequence * options.page_size;
    a.block_table = integers->ptr();
    a.block_table_stride = pages_per_sequence;
  }
  a.k_strides[0] = a.v_strides[0] = cache.batch_stride;
  a.k_strides[1] = a.v_strides[1] = cache.token_stride;
  a.k_strides[2] = a.v_strides[2] = cache.head_stride;
  const std::int64_t out_stride = token_stride(call, "out", args.out_token_stride, q_dense);
  a.out_strides[0] = num_tokens * out_stride;
  a.out_strides[1] = out_stride;
  a.out_strides[2] = g.head_dim;

  const KernelLaunch launch = plan_prologue(g.head_dim, shape.layout, p);
  device.launch(shape.prologue, launch, &p, stream);
  attention_of(shape, kind, target.batch, num_tokens).launch(a, stream);
}

}  // namespace attune
