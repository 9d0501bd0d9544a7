// One change for every field of what makes up a key of the cache. The counts are compared with the
// structs, so a new field without a change here fails the tests.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cache/records.h"

namespace attune {

template <typename Value>
struct Mutation {
  std::string field;  // of `Value`
  std::string what;   // more than the field where it is changed in several ways
  std::function<void(Value&)> apply;
};
template <typename Value>
using Mutations = std::vector<Mutation<Value>>;

template <typename Value>
std::set<std::string> fields_of(const Mutations<Value>& mutations) {
  std::set<std::string> fields;
  for (const Mutation<Value>& one : mutations) fields.insert(one.field);
  return fields;
}

// The number of fields of an aggregate: as many as it can be initialized with.
struct AnyField {
  template <typename T>
  operator T() const;  // NOLINT: is never called
};
template <typename T, typename... Fields>
constexpr std::size_t num_fields() {
  if constexpr (requires { T{Fields{}..., AnyField{}}; }) {
    return num_fields<T, Fields..., AnyField>();
  } else {
    return sizeof...(Fields);
  }
}

// Of "verify/b1/q8/kv1-4096/h32x16/d256/w1024/ring/bf16". `dtype` has one value and no change.
inline Mutations<Problem> problem_mutations() {
  return {{"op", "", [](Problem& p) { p.op = Op::kDecode; }},
          {"batch", "", [](Problem& p) { p.batch = 2; }},
          {"seqlen_q", "up", [](Problem& p) { p.seqlen_q = 9; }},
          {"seqlen_q", "far down", [](Problem& p) { p.seqlen_q = 3; }},
          {"kv", "min", [](Problem& p) { p.kv.min = 2; }},
          {"kv", "max", [](Problem& p) { p.kv.max = 4097; }},
          {"num_q_heads", "", [](Problem& p) { p.num_q_heads = 64; }},
          {"num_kv_heads", "", [](Problem& p) { p.num_kv_heads = 8; }},
          {"head_dim", "", [](Problem& p) { p.head_dim = 512; }},
          {"window", "", [](Problem& p) { p.window = 512; }},
          {"causal", "", [](Problem& p) { p.causal = false; }},
          {"softcap", "", [](Problem& p) { p.softcap = true; }},
          {"invariant", "", [](Problem& p) { p.invariant = true; }},
          {"kv_layout", "", [](Problem& p) { p.kv_layout = KvLayout::kContiguous; }}};
}
// page_size changes alone only in a paged layout.
inline Mutations<Problem> paged_problem_mutations() {
  return {{"page_size", "", [](Problem& p) { p.page_size = 64; }},
          {"kv_layout", "", [](Problem& p) { p.kv_layout = KvLayout::kUnifiedPaged; }}};
}

// Of "linear/m8/n512/k256/store/bf16". `what` is the name that explain has for the field.
inline Mutations<Problem> linear_problem_mutations() {
  return {{"linear_tokens", "tokens", [](Problem& p) { p.linear_tokens = 16; }},
          {"linear", "out_features", [](Problem& p) { p.linear.out_features = 513; }},
          {"linear", "in_features", [](Problem& p) { p.linear.in_features = 264; }},
          {"linear", "epilogue", [](Problem& p) { p.linear.epilogue = LinearEpilogue::kGeglu; }},
          {"linear", "weights", [](Problem& p) { p.linear.weights = LinearWeights::kInt4; }}};
}
// What "experts/m8/n512/k256/store/bf16/e128x8" has beside them.
inline Mutations<Problem> expert_problem_mutations() {
  return {{"linear", "experts", [](Problem& p) { p.linear.num_experts = 64; }},
          {"linear", "top_k", [](Problem& p) { p.linear.top_k = 4; }}};
}

inline Mutations<Toolchain> toolchain_mutations() {
  return {{"template_digest", "", [](Toolchain& t) { t.template_digest = digest_of("edited"); }},
          {"compiler_version", "", [](Toolchain& t) { t.compiler_version = "13.1"; }},
          {"options", "", [](Toolchain& t) { t.options += " -lineinfo"; }}};
}

inline Mutations<DeviceInfo> gpu_mutations() {
  return {{"name", "", [](DeviceInfo& g) { g.name += " NVL"; }},
          {"arch", "suffix", [](DeviceInfo& g) { g.arch = "sm_90"; }},
          {"arch", "family", [](DeviceInfo& g) { g.arch = "sm_120"; }},
          {"arch", "minor", [](DeviceInfo& g) { g.arch = "sm_121"; }},
          {"compute_major", "", [](DeviceInfo& g) { g.compute_major = 10; }},
          {"compute_minor", "", [](DeviceInfo& g) { g.compute_minor = 1; }},
          {"num_sms", "", [](DeviceInfo& g) { g.num_sms = 114; }},
          {"memory_bytes", "", [](DeviceInfo& g) { g.memory_bytes = std::size_t{80} << 30; }},
          {"mig", "", [](DeviceInfo& g) { g.mig = true; }}};
}
// What a GPU has beside its identity.
inline Mutations<DeviceInfo> other_gpu_mutations() {
  return {{"max_smem_per_block_bytes", "", [](DeviceInfo& g) { ++g.max_smem_per_block_bytes; }},
          {"smem_per_sm_bytes", "", [](DeviceInfo& g) { ++g.smem_per_sm_bytes; }},
          {"registers_per_sm", "", [](DeviceInfo& g) { ++g.registers_per_sm; }},
          {"max_threads_per_block", "", [](DeviceInfo& g) { ++g.max_threads_per_block; }},
          {"l2_bytes", "", [](DeviceInfo& g) { ++g.l2_bytes; }},
          {"uuid", "", [](DeviceInfo& g) { g.uuid = "GPU-1234"; }},
          {"driver_version", "", [](DeviceInfo& g) { g.driver_version = "14.0"; }}};
}

inline Mutations<Candidate> candidate_mutations() {
  return {{"family", "", [](Candidate& c) { c.family = "other"; }},
          {"config", "block_m", [](Candidate& c) { c.config.block_m = 32; }},
          {"config", "block_n", [](Candidate& c) { c.config.block_n = 32; }},
          {"config", "num_stages", [](Candidate& c) { c.config.num_stages = 3; }},
          {"config", "num_warps", [](Candidate& c) { c.config.num_warps = 4; }},
          {"split_cap", "", [](Candidate& c) { c.split_cap = 34; }}};
}

inline Mutations<Variant> variant_mutations() {
  return {{"family", "", [](Variant& v) { v.family = "swapab"; }},
          {"head_dim", "", [](Variant& v) { v.head_dim = 64; }},
          {"kv_layout", "", [](Variant& v) { v.kv_layout = KvLayout::kRing; }},
          {"softcap", "", [](Variant& v) { v.softcap = true; }},
          {"invariant", "", [](Variant& v) { v.invariant = true; }},
          {"config", "block_m", [](Variant& v) { v.config.block_m = 32; }},
          {"config", "block_n", [](Variant& v) { v.config.block_n = 32; }},
          {"config", "num_stages", [](Variant& v) { v.config.num_stages = 3; }},
          {"config", "num_warps", [](Variant& v) { v.config.num_warps = 4; }},
          {"shared_slots", "", [](Variant& v) { v.shared_slots = true; }}};
}
// Of "linear/bf16/store/m8n48s2w8".
inline Mutations<Variant> linear_variant_mutations() {
  return {{"epilogue", "", [](Variant& v) { v.epilogue = LinearEpilogue::kLogits; }},
          {"weights", "", [](Variant& v) { v.weights = LinearWeights::kInt4; }},
          {"config", "", [](Variant& v) { v.config.block_n = 32; }}};
}

}  // namespace attune
