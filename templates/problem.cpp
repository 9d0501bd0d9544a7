#include "templates/problem.h"

#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "common/text.h"
#include "templates/expert_params.h"

namespace attune {
namespace {

constexpr std::array kHeadDims = {64, 128, 256, 512};
constexpr std::array kOps = {Op::kDecode, Op::kVerify, Op::kPrefill, Op::kLinear, Op::kExperts};
constexpr std::array kEpilogues = {LinearEpilogue::kStore, LinearEpilogue::kGeglu,
                                   LinearEpilogue::kSwiglu, LinearEpilogue::kLogits};
constexpr std::array kWeights = {LinearWeights::kBf16, LinearWeights::kInt4};
constexpr const char* kForm =
    "the form is op/b<batch>/q<seqlen_q>/kv<min>[-<max>]/h<q heads>x<kv heads>/d<head_dim>"
    "[/w<window>][/full][/softcap][/invariant][/p<page_size>]/<layout>/<dtype>, for instance "
    "decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16, or "
    "linear/m<tokens>/n<out_features>/k<in_features>/<epilogue>/<weights>, for instance "
    "linear/m8/n21504/k5376/geglu/int4, of experts with /e<experts>x<top_k> behind it: "
    "experts/m8/n704/k2816/geglu/int4/e128x8";

// Walks over the segments of a problem's text.
class Segments {
 public:
  explicit Segments(std::string_view text) : text_(text), parts_(split(text, '/')) {}

  std::string_view next(std::string_view what) {
    if (idx_ == parts_.size()) fail(fmt::format("{} is missing", what));
    return parts_[idx_++];
  }
  // Takes the next segment when it equals `word`.
  bool take(std::string_view word) {
    if (idx_ == parts_.size() || parts_[idx_] != word) return false;
    ++idx_;
    return true;
  }
  bool next_starts_with(std::string_view prefix) const {
    return idx_ < parts_.size() && parts_[idx_].starts_with(prefix);
  }
  // Whether the next segment is `prefix` and a digit.
  bool next_is_numbered(std::string_view prefix) const {
    if (!next_starts_with(prefix) || parts_[idx_].size() == prefix.size()) return false;
    const char digit = parts_[idx_][prefix.size()];
    return digit >= '0' && digit <= '9';
  }
  void expect_end() {
    if (idx_ != parts_.size()) fail(fmt::format("'{}' is left over", parts_[idx_]));
  }
  int number(std::string_view text, std::string_view what) const {
    const auto value = parse_int(text);
    if (!value || *value < 0 || *value > std::numeric_limits<int>::max()) {
      fail(fmt::format("{}='{}' is not a number", what, text));
    }
    return static_cast<int>(*value);
  }
  // The number behind `prefix` in the next segment.
  int prefixed(std::string_view prefix, std::string_view what) {
    return number(without_prefix(prefix, what), what);
  }
  std::string_view without_prefix(std::string_view prefix, std::string_view what) {
    const std::string_view part = next(what);
    if (!part.starts_with(prefix)) {
      fail(fmt::format("{} is expected as {}<number>, found '{}'", what, prefix, part));
    }
    return part.substr(prefix.size());
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument("cannot read the problem", fmt::format("'{}': {}", text_, what), kForm);
  }

 private:
  std::string_view text_;
  std::vector<std::string_view> parts_;
  std::size_t idx_ = 0;
};

// "<first>x<second>" behind `prefix`; `form` is that in words.
std::pair<int, int> parse_pair(Segments& segments, std::string_view prefix, std::string_view what,
                               std::string_view form, std::string_view first,
                               std::string_view second) {
  const std::string_view text = segments.without_prefix(prefix, what);
  const auto counts = split(text, 'x');
  if (counts.size() != 2) segments.fail(fmt::format("{}='{}' is not {}", what, text, form));
  return {segments.number(counts[0], first), segments.number(counts[1], second)};
}

KvRange parse_kv_range(Segments& segments) {
  const std::string_view text = segments.without_prefix("kv", "kv");
  const auto ends = split(text, '-');
  if (ends.size() > 2) segments.fail(fmt::format("kv='{}' is not <min>[-<max>]", text));
  const int min = segments.number(ends.front(), "kv");
  return {min, segments.number(ends.back(), "kv")};
}

template <typename Enum, std::size_t N>
Enum parse_name(Segments& segments, std::string_view what, const std::array<Enum, N>& values) {
  const std::string_view text = segments.next(what);
  std::string known;
  for (const Enum value : values) {
    if (name_of(value) == text) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(value));
  }
  segments.fail(fmt::format("{}='{}' is not one of {}", what, text, known));
}

void require(bool holds, const Problem& problem, const std::string& what) {
  if (!holds) {
    throw InvalidArgument("the problem is not defined", fmt::format("{}: {}", problem.text(), what),
                          kForm);
  }
}

void parse_linear(Segments& segments, Problem* problem) {
  LinearShape& linear = problem->linear;
  problem->linear_tokens = segments.prefixed("m", "tokens");
  linear.out_features = segments.prefixed("n", "out_features");
  linear.in_features = segments.prefixed("k", "in_features");
  linear.epilogue = parse_name(segments, "epilogue", kEpilogues);
  linear.weights = parse_name(segments, "weights", kWeights);
  if (problem->op != Op::kExperts) return;
  std::tie(linear.num_experts, linear.top_k) =
      parse_pair(segments, "e", "experts", "<experts>x<top_k>", "num_experts", "top_k");
}

void parse_attention(Segments& segments, Problem* problem) {
  problem->batch = segments.prefixed("b", "batch");
  problem->seqlen_q = segments.prefixed("q", "seqlen_q");
  problem->kv = parse_kv_range(segments);
  std::tie(problem->num_q_heads, problem->num_kv_heads) =
      parse_pair(segments, "h", "heads", "<q heads>x<kv heads>", "num_q_heads", "num_kv_heads");
  problem->head_dim = segments.prefixed("d", "head_dim");
  if (segments.next_starts_with("w")) problem->window = segments.prefixed("w", "window");
  problem->causal = !segments.take("full");
  problem->softcap = segments.take("softcap");
  problem->invariant = segments.take("invariant");
  // The layout "paged" starts with a p too.
  if (segments.next_is_numbered("p")) problem->page_size = segments.prefixed("p", "page_size");
  problem->kv_layout = parse_name(segments, "layout", kKvLayouts);
  problem->dtype = parse_name(segments, "dtype", std::array{DataType::kBf16});
}

void validate_experts(const Problem& problem) {
  const LinearShape& linear = problem.linear;
  // Offsets of their outputs for all tokens stay inside an int.
  constexpr int kMostOutputs = 1 << 26;
  require(linear.epilogue != LinearEpilogue::kLogits, problem, "experts give no logits");
  require(linear.num_experts <= kMaxExperts && linear.top_k >= 1 && linear.top_k <= kMaxTopK &&
              linear.top_k <= linear.num_experts,
          problem,
          fmt::format("experts are e<1 to {}>x<1 to {}>, no more chosen than there are",
                      kMaxExperts, kMaxTopK));
  require(linear.out_features <= kMostOutputs / linear.num_experts, problem,
          "out_features times experts is 2^26 at most");
}

void validate_linear(const Problem& problem) {
  Problem rest = problem;
  rest.op = Op::kDecode;
  rest.linear_tokens = 0;
  rest.linear = {};
  require(rest == Problem{}, problem, "a linear layer has nothing of attention");
  require(problem.linear.is_experts() == (problem.op == Op::kExperts) &&
              problem.linear.num_experts >= 0 &&
              (problem.linear.is_experts() || problem.linear.top_k == 0),
          problem, "experts are at least 1, and of op experts");
  require(problem.linear.is_problem_of(problem.linear_tokens), problem,
          fmt::format("tokens are m{} or m{}, of packed rows and of experts also m1", kMmaTokens,
                      kMaxLinearTokens));
  require(problem.linear.out_features >= 1 && problem.linear.out_features <= kMaxLinearFeatures,
          problem, "out_features is n1 to n2^20");
  require(problem.linear.in_features >= 8 && problem.linear.in_features <= kMaxLinearFeatures &&
              problem.linear.in_features % 8 == 0,
          problem, "in_features is k8 to k2^20, a multiple of 8");
  if (problem.linear.is_experts()) validate_experts(problem);
}

}  // namespace

std::string Problem::text() const {
  if (is_linear()) {
    std::string text =
        fmt::format("{}/m{}/n{}/k{}/{}/{}", name_of(op), linear_tokens, linear.out_features,
                    linear.in_features, name_of(linear.epilogue), name_of(linear.weights));
    if (op == Op::kExperts) text += fmt::format("/e{}x{}", linear.num_experts, linear.top_k);
    return text;
  }
  std::string text = fmt::format("{}/b{}/q{}/kv{}", name_of(op), batch, seqlen_q, kv.min);
  if (kv.max != kv.min) text += fmt::format("-{}", kv.max);
  text += fmt::format("/h{}x{}/d{}", num_q_heads, num_kv_heads, head_dim);
  if (window > 0) text += fmt::format("/w{}", window);
  if (!causal) text += "/full";
  if (softcap) text += "/softcap";
  if (invariant) text += "/invariant";
  if (page_size > 0) text += fmt::format("/p{}", page_size);
  return text + fmt::format("/{}/{}", name_of(kv_layout), name_of(dtype));
}

Problem Problem::of_linear(int tokens, const LinearShape& shape) {
  Problem problem;
  problem.op = shape.is_experts() ? Op::kExperts : Op::kLinear;
  problem.linear_tokens = tokens;
  problem.linear = shape;
  return problem;
}

Problem Problem::parse(std::string_view text) {
  Segments segments(text);
  Problem problem;
  problem.op = parse_name(segments, "op", kOps);
  if (problem.is_linear()) {
    parse_linear(segments, &problem);
  } else {
    parse_attention(segments, &problem);
  }
  segments.expect_end();
  problem.validate();
  if (problem.text() != text) {
    segments.fail(fmt::format("the canonical form is '{}'", problem.text()));
  }
  return problem;
}

void Problem::validate() const {
  if (is_linear()) return validate_linear(*this);
  require(linear_tokens == 0 && linear == LinearShape{}, *this,
          "attention has nothing of a linear layer");
  require(batch >= 1 && batch <= 65535, *this, "batch is 1 to 65535");
  require(op != Op::kDecode || seqlen_q == 1, *this, "decode has q1; use verify for more");
  require(op != Op::kVerify || (seqlen_q >= 2 && seqlen_q <= kMaxVerifyTokens), *this,
          fmt::format("verify has q2 to q{}; use prefill for more", kMaxVerifyTokens));
  require(op != Op::kPrefill || (seqlen_q >= 1 && seqlen_q <= kMaxPrefillTokens), *this,
          fmt::format("prefill has q1 to q{}", kMaxPrefillTokens));
  require(kv.min >= 1 && kv.max >= kv.min && kv.max <= kMaxKvLen, *this,
          "kv is <min>[-<max>] with 1 <= min <= max <= 2^29");
  require(num_kv_heads >= 1 && num_kv_heads <= 65535 && num_q_heads >= num_kv_heads &&
              num_q_heads <= (1 << 20) && num_q_heads % num_kv_heads == 0,
          *this, "the q heads are a multiple of the kv heads");
  const std::int64_t packed_rows = std::int64_t{1} * seqlen_q * group_size();
  require(
      packed_rows <= kMaxPackedRows, *this,
      fmt::format("seqlen_q * q heads / kv heads = {} is above the limit of {} packed rows: take "
                  "fewer tokens",
                  packed_rows, kMaxPackedRows));
  bool known_head_dim = false;
  for (const int known : kHeadDims) known_head_dim |= head_dim == known;
  require(known_head_dim, *this, "head_dim is 64, 128, 256 or 512");
  require(window >= 0 && window <= kMaxWindow, *this, "the window is 0 (all) to 2^20 keys");
  require(kv_layout != KvLayout::kRing || window > 0, *this,
          "a ring holds a window's keys only: add /w<window> or use contiguous");
  require(!invariant || causal, *this,
          "an invariant row is the same whatever comes after it: drop /full");
  require(!is_unified(kv_layout) || head_dim == kUnifiedHeadDim, *this,
          fmt::format("unified rows are defined for head_dim {}", kUnifiedHeadDim));
  const bool is_power_of_two = (page_size & (page_size - 1)) == 0;
  require(!is_paged(kv_layout) ||
              (page_size >= kMinPageSize && page_size <= kMaxPageSize && is_power_of_two),
          *this,
          fmt::format("a paged layout has /p<page_size>, a power of two from {} to {}",
                      kMinPageSize, kMaxPageSize));
  require(is_paged(kv_layout) || page_size == 0, *this,
          "only paged layouts have pages: drop /p<page_size>");
}

std::string_view name_of(Op op) {
  switch (op) {
    case Op::kDecode:
      return "decode";
    case Op::kVerify:
      return "verify";
    case Op::kPrefill:
      return "prefill";
    case Op::kLinear:
      return "linear";
    case Op::kExperts:
      return "experts";
  }
  return "?";
}

std::string_view name_of(LinearEpilogue epilogue) {
  switch (epilogue) {
    case LinearEpilogue::kStore:
      return "store";
    case LinearEpilogue::kGeglu:
      return "geglu";
    case LinearEpilogue::kSwiglu:
      return "swiglu";
    case LinearEpilogue::kLogits:
      return "logits";
  }
  return "?";
}

std::string_view name_of(LinearWeights weights) {
  return weights == LinearWeights::kInt4 ? "int4" : "bf16";
}

std::string_view name_of(KvLayout layout) {
  switch (layout) {
    case KvLayout::kContiguous:
      return "contiguous";
    case KvLayout::kRing:
      return "ring";
    case KvLayout::kPaged:
      return "paged";
    case KvLayout::kUnified:
      return "unified";
    case KvLayout::kUnifiedPaged:
      return "unified-paged";
  }
  return "?";
}

std::string_view name_of(DataType) { return "bf16"; }

}  // namespace attune
