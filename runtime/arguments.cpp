#include "runtime/arguments.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "runtime/device_pointer.h"

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
  if (problem.page_size > 0 && capacity % problem.page_size != 0) {
    refuse(problem, fmt::format("capacity={}", capacity),
           "the capacity of a paged layout is a multiple of its page size");
  }
  // The workspace has room for the chunks of the problem's longest context.
  if (problem.invariant && problem.window == 0) {
    Problem longest = problem;
    longest.kv.max = static_cast<int>(std::min<std::int64_t>(capacity, kMaxKvLen));
    if (invariant_split_cap(longest) > invariant_split_cap(problem)) {
      refuse(problem, fmt::format("capacity={} kv_max={}", capacity, problem.kv.max),
             "an invariant problem serves contexts of its kv range: prepare a longer one");
    }
  }
}

void check_sequences(const Problem& problem, const AttentionArgs& args) {
  if (args.sequence != 0) check_pointer(problem, "sequence", args.sequence, kScalarAlignment);
  if (args.kv_len_add < 0 || args.kv_len_add > problem.seqlen_q) {
    refuse(problem, fmt::format("kv_len_add={}", args.kv_len_add),
           "kv_len_add is 0, or seqlen_q where kv_len counts the tokens before the queries");
  }
  if (!is_paged(problem.kv_layout)) {
    if (args.block_table != 0) {
      refuse(problem, fmt::format("block_table={:#x}", args.block_table),
             "only paged layouts have a block table: pass 0");
    }
    return;
  }
  check_pointer(problem, "block_table", args.block_table, kScalarAlignment);
  const std::int64_t least = args.capacity / problem.page_size;
  if (args.block_table_stride != 0 && args.block_table_stride < least) {
    refuse(problem, fmt::format("block_table_stride={} least={}", args.block_table_stride, least),
           "a row of the block table has an entry for every page of the capacity");
  }
}

void check_seqlen_q(const Problem& prepared, int seqlen_q) {
  if (seqlen_q == 0 || seqlen_q == prepared.seqlen_q) return;
  if (prepared.op != Op::kPrefill) {
    refuse(prepared, fmt::format("seqlen_q={}", seqlen_q),
           "only a prefill takes other numbers of tokens than its problem: pass 0");
  }
  if (seqlen_q < 1 || seqlen_q > prepared.seqlen_q) {
    refuse(prepared, fmt::format("seqlen_q={}", seqlen_q),
           "a chunk has 1 to the problem's seqlen_q tokens: split it, or prepare a longer one");
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

}  // namespace

Problem launched_problem(const Problem& prepared, const AttentionArgs& args) {
  check_seqlen_q(prepared, args.seqlen_q);
  Problem problem = prepared;
  if (args.seqlen_q != 0) problem.seqlen_q = args.seqlen_q;
  return problem;
}

void check_arguments(const Problem& problem, const LaunchPlan& plan, const AttentionArgs& args) {
  check_pointer(problem, "q", args.q, kTensorAlignment);
  check_pointer(problem, "k", args.k, kTensorAlignment);
  if (!is_unified(problem.kv_layout)) check_pointer(problem, "v", args.v, kTensorAlignment);
  check_pointer(problem, "out", args.out, kTensorAlignment);
  check_pointer(problem, "kv_len", args.kv_len, kScalarAlignment);
  if (args.lse != 0) check_pointer(problem, "lse", args.lse, kScalarAlignment);
  if (plan.workspace_bytes() > 0) {
    check_pointer(problem, "workspace", args.workspace, kWorkspaceAlignment);
  }
  check_capacity(problem, args.capacity);
  check_sequences(problem, args);
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
  // Of a sequence, or of a page.
  const std::int64_t rows = problem.page_size > 0 ? problem.page_size : args.capacity;
  const int columns = kv_row_columns(problem.kv_layout, problem.head_dim);
  const Strides k = resolve(args.k_strides, rows, problem.num_kv_heads, columns);
  const Strides v = resolve(args.v_strides, rows, problem.num_kv_heads, columns);
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
  params.sequence = pointer<const int>(args.sequence);
  params.kv_len_add = args.kv_len_add;
  params.block_table = pointer<const int>(args.block_table);
  if (problem.page_size > 0) {
    params.block_table_stride =
        args.block_table_stride != 0 ? args.block_table_stride : args.capacity / problem.page_size;
  }
  params.kv_capacity = static_cast<int>(args.capacity);
  params.overlap = args.overlap ? 1 : 0;
  params.ring_capacity = ring ? static_cast<int>(args.capacity) : 0;
  params.sm_scale = args.sm_scale;
  params.softcap = args.softcap;
  return params;
}

}  // namespace attune
