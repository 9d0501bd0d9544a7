#include "runtime/arguments.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace attune {
namespace {

constexpr std::uint64_t kTensorAlignment = 16;  // one cp.async of 8 bf16 numbers
constexpr std::uint64_t kScalarAlignment = 4;   // int32 and float
constexpr std::uint64_t kWorkspaceAlignment = 256;
constexpr std::int64_t kStrideMultiple = 8;  // elements of 16 bytes
constexpr const char* kStrideNames[] = {"batch", "token", "head"};

// Out of line, so that the checks of a good launch build no text.
[[noreturn, gnu::cold, gnu::noinline]] void refuse(const Problem& problem, std::string_view values,
                                                   std::string_view what_to_do) {
  throw InvalidArgument("cannot launch attention",
                        fmt::format("{} problem={}", values, problem.text()), what_to_do);
}

[[noreturn, gnu::cold, gnu::noinline]] void refuse_pointer(const Problem& problem, const char* name,
                                                           std::uint64_t value,
                                                           std::uint64_t alignment) {
  refuse(problem, fmt::format("{}={:#x}", name, value),
         value == 0 ? fmt::format("pass a device pointer as {}", name)
                    : fmt::format("{} has to be {}-byte aligned", name, alignment));
}

[[noreturn, gnu::cold, gnu::noinline]] void refuse_stride(const Problem& problem, const char* name,
                                                          int idx, std::int64_t value,
                                                          std::int64_t at_least) {
  refuse(problem, fmt::format("{}_strides[{}]={}", name, idx, value),
         fmt::format("the {} stride is 0 (dense) or at least {}, and a multiple of {} elements",
                     kStrideNames[idx], at_least, kStrideMultiple));
}

void check_pointer(const Problem& problem, const char* name, std::uint64_t value,
                   std::uint64_t alignment) {
  if (value == 0 || value % alignment != 0) refuse_pointer(problem, name, value, alignment);
}

void check_strides(const Problem& problem, const char* name, const std::int64_t (&strides)[3],
                   std::int64_t at_least) {
  for (int i = 0; i < 3; ++i) {
    const std::int64_t stride = strides[i];
    if (stride == 0) continue;
    if (stride < at_least || stride % kStrideMultiple != 0) {
      refuse_stride(problem, name, i, stride, at_least);
    }
  }
}

void check_capacity(const Problem& problem, std::int64_t capacity) {
  const bool ring = problem.kv_layout == KvLayout::kRing;
  const std::int64_t least = ring ? min_ring_capacity(problem) : 1;
  if (capacity < least) {
    refuse(problem, fmt::format("capacity={} least={}", capacity, least),
           ring ? "a ring holds at least window + seqlen_q - 1 rows, and 128"
                : "capacity is the number of KV rows per sequence");
  }
  if (capacity > std::numeric_limits<int>::max()) {
    refuse(problem, fmt::format("capacity={}", capacity), "capacity is at most 2^31 - 1 rows");
  }
}

void check_factors(const Problem& problem, const AttentionArgs& args) {
  if (!(args.sm_scale > 0) || !std::isfinite(args.sm_scale)) {
    refuse(problem, fmt::format("sm_scale={}", args.sm_scale), "sm_scale is above 0 and finite");
  }
  if (problem.softcap && (!(args.softcap > 0) || !std::isfinite(args.softcap))) {
    refuse(problem, fmt::format("softcap={}", args.softcap),
           "the problem has a softcap: pass one that is above 0 and finite");
  }
  if (!problem.softcap && args.softcap != 0) {
    refuse(problem, fmt::format("softcap={}", args.softcap),
           "the problem has no softcap: pass 0, or prepare the problem with /softcap");
  }
}

struct Strides {
  int64 batch, token, head;
};

// `tokens` x `heads` x `head_dim` numbers per sequence; 0 becomes the dense default.
Strides resolve(const std::int64_t (&strides)[3], std::int64_t tokens, std::int64_t heads,
                std::int64_t head_dim) {
  return {strides[0] != 0 ? strides[0] : tokens * heads * head_dim,
          strides[1] != 0 ? strides[1] : heads * head_dim, strides[2] != 0 ? strides[2] : head_dim};
}

template <typename T>
T* pointer(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

void check_arguments(const Problem& problem, const LaunchPlan& plan, const AttentionArgs& args) {
  check_pointer(problem, "q", args.q, kTensorAlignment);
  check_pointer(problem, "k", args.k, kTensorAlignment);
  check_pointer(problem, "v", args.v, kTensorAlignment);
  check_pointer(problem, "out", args.out, kTensorAlignment);
  check_pointer(problem, "kv_len", args.kv_len, kScalarAlignment);
  if (args.lse != 0) check_pointer(problem, "lse", args.lse, kScalarAlignment);
  if (plan.workspace_bytes() > 0) {
    check_pointer(problem, "workspace", args.workspace, kWorkspaceAlignment);
  }
  check_capacity(problem, args.capacity);
  check_strides(problem, "q", args.q_strides, kStrideMultiple);
  check_strides(problem, "k", args.k_strides, kStrideMultiple);
  check_strides(problem, "v", args.v_strides, kStrideMultiple);
  // Rows of `out` that overlap would be written twice.
  check_strides(problem, "out", args.out_strides, problem.head_dim);
  check_factors(problem, args);
}

AttentionParams attention_params(const Problem& problem, const LaunchPlan& plan,
                                 const AttentionArgs& args) {
  const Strides q =
      resolve(args.q_strides, problem.seqlen_q, problem.num_q_heads, problem.head_dim);
  const Strides k = resolve(args.k_strides, args.capacity, problem.num_kv_heads, problem.head_dim);
  const Strides v = resolve(args.v_strides, args.capacity, problem.num_kv_heads, problem.head_dim);
  const Strides out =
      resolve(args.out_strides, problem.seqlen_q, problem.num_q_heads, problem.head_dim);
  const bool ring = problem.kv_layout == KvLayout::kRing;

  AttentionParams params{};
  set_plan_params(problem, plan, args.workspace, &params);
  params.q = pointer<const void>(args.q);
  params.k = pointer<const void>(args.k);
  params.v = pointer<const void>(args.v);
  params.out = pointer<void>(args.out);
  params.lse = pointer<float>(args.lse);
  params.kv_len = pointer<const int>(args.kv_len);
  params.q_batch_stride = q.batch;
  params.q_token_stride = q.token;
  params.q_head_stride = q.head;
  params.k_batch_stride = k.batch;
  params.k_token_stride = k.token;
  params.k_head_stride = k.head;
  params.v_batch_stride = v.batch;
  params.v_token_stride = v.token;
  params.v_head_stride = v.head;
  params.out_batch_stride = out.batch;
  params.out_token_stride = out.token;
  params.out_head_stride = out.head;
  params.ring_capacity = ring ? static_cast<int>(args.capacity) : 0;
  params.sm_scale = args.sm_scale;
  params.softcap = args.softcap;
  return params;
}

}  // namespace attune
