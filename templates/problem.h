// What is asked for: one attention or linear layer, its text form and its parser.
#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>

#include "templates/config.h"
#include "templates/linear_shape.h"

namespace attune {

enum class Op { kDecode, kVerify, kPrefill, kLinear, kExperts };
enum class DataType { kBf16 };

inline constexpr std::array kKvLayouts = {KvLayout::kContiguous, KvLayout::kRing, KvLayout::kPaged,
                                          KvLayout::kUnified, KvLayout::kUnifiedPaged};

// Lengths whose sums with a split's or a tile's stay inside an int.
constexpr int kMaxKvLen = 1 << 29;
constexpr int kMaxWindow = 1 << 20;
constexpr int kMaxVerifyTokens = 16;
constexpr int kMaxPrefillTokens = 1 << 16;
// Packed rows of a KV head: they and the tiles that hold them are counted in an int.
constexpr int kMaxPackedRows = 1 << 26;
constexpr int kMaxLinearFeatures = 1 << 20;

// kv_len values that one choice of kernel has to be good for. Correctness never depends on it.
struct KvRange {
  int min = 1;
  int max = 1;
  bool contains(const KvRange& other) const { return min <= other.min && other.max <= max; }
  friend auto operator<=>(const KvRange&, const KvRange&) = default;
};

// Text form, one line, segments separated by '/', the ones in brackets left out at their default:
//   op/b<batch>/q<seqlen_q>/kv<min>[-<max>]/h<q heads>x<kv heads>/d<head_dim>
//     [/w<window>][/full][/softcap][/invariant][/p<page_size>]/<layout>/<dtype>
//   verify/b1/q8/kv1-131072/h32x16/d256/w1024/ring/bf16
//   prefill/b1/q512/kv1-131072/h32x4/d512/p64/unified-paged/bf16
// Of a linear layer for up to 8 or 16 tokens:
//   linear/m<tokens>/n<out_features>/k<in_features>/<epilogue>/<weights>
//   linear/m8/n21504/k5376/geglu/int4
// Of experts also how many there are, and how many of them a token chooses:
//   experts/m<tokens>/n<out_features>/k<in_features>/<epilogue>/<weights>/e<experts>x<top_k>
//   experts/m8/n704/k2816/geglu/int4/e128x8
struct Problem {
  Op op = Op::kDecode;
  int batch = 1;
  int seqlen_q = 1;  // 1 for decode, 2..16 for verify; prefill: the longest chunk, 1..65536
  KvRange kv;
  int num_q_heads = 1;
  int num_kv_heads = 1;
  int head_dim = 128;
  int window = 0;        // keys a query sees, itself included; 0 is all
  bool causal = true;    // false is written "full"
  bool softcap = false;  // the score is capped; the cap itself is an argument of the launch
  // The bits of a row depend on its position, its keys and nothing else: not on seqlen_q, batch,
  // kv_len or the op. All problems that differ in those alone give the same bits.
  bool invariant = false;
  int page_size = 0;  // rows of a page of the paged layouts, a power of two; 0 for the others
  KvLayout kv_layout = KvLayout::kContiguous;
  DataType dtype = DataType::kBf16;
  // Of kLinear and kExperts, where everything above has its default; 0 of others. Times have no length:
  // they are those of kv 1.
  int linear_tokens = 0;  // of a launch, at most: LinearShape::is_problem_of
  LinearShape linear = {};

  // Also of experts.
  bool is_linear() const { return op == Op::kLinear || op == Op::kExperts; }
  int group_size() const { return num_q_heads / num_kv_heads; }
  // Packed query rows per KV head.
  int num_rows() const { return seqlen_q * group_size(); }

  static Problem of_linear(int tokens, const LinearShape& shape);

  std::string text() const;
  // Throws InvalidArgument that names the segment, its value and what is allowed.
  static Problem parse(std::string_view text);
  // Throws InvalidArgument when a field is outside what attune defines.
  void validate() const;

  friend auto operator<=>(const Problem&, const Problem&) = default;
};

std::string_view name_of(Op op);
std::string_view name_of(KvLayout layout);
std::string_view name_of(DataType dtype);

}  // namespace attune
