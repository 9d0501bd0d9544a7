#include "templates/problem.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"

namespace attune {
namespace {

constexpr const char* kDecode = "decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16";
constexpr const char* kVerify = "verify/b8/q16/kv4096/h32x16/d256/w1024/full/softcap/ring/bf16";

// The message of the InvalidArgument that parsing `text` throws; empty when it does not throw.
std::string parse_error(const std::string& text) {
  try {
    Problem::parse(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

void expect_parse_error(const std::string& text, const std::string& part) {
  const std::string message = parse_error(text);
  EXPECT_NE(message.find(part), std::string::npos)
      << "text='" << text << "' expected='" << part << "' message='" << message << "'";
  EXPECT_NE(message.find("; the form is "), std::string::npos) << message;
}

TEST(ProblemText, SpellsDefaultsByLeavingThemOut) {
  const Problem problem{.op = Op::kDecode,
                        .batch = 1,
                        .seqlen_q = 1,
                        .kv = {1, 131072},
                        .num_q_heads = 32,
                        .num_kv_heads = 4,
                        .head_dim = 512};
  EXPECT_EQ(problem.text(), kDecode);
}

TEST(ProblemText, SpellsEveryFieldInOrder) {
  const Problem problem{.op = Op::kVerify,
                        .batch = 8,
                        .seqlen_q = 16,
                        .kv = {4096, 4096},
                        .num_q_heads = 32,
                        .num_kv_heads = 16,
                        .head_dim = 256,
                        .window = 1024,
                        .causal = false,
                        .softcap = true,
                        .kv_layout = KvLayout::kRing};
  EXPECT_EQ(problem.text(), kVerify);
  EXPECT_EQ(Problem::parse(kVerify), problem);
}

TEST(ProblemText, RoundTrips) {
  for (const char* text : {kDecode, kVerify, "verify/b1/q8/kv1-131072/h32x16/d256/w1024/ring/bf16",
                           "decode/b65535/q1/kv1/h1x1/d64/full/contiguous/bf16",
                           "verify/b1/q2/kv1-536870912/h7x7/d128/softcap/contiguous/bf16"}) {
    EXPECT_EQ(Problem::parse(text).text(), text);
  }
}

TEST(ProblemText, NamesTheSegmentThatIsMalformed) {
  expect_parse_error("", "op=''");
  expect_parse_error("append/b1/q1/kv1/h1x1/d64/contiguous/bf16",
                     "op='append' is not one of decode, verify, prefill");
  expect_parse_error("decode/1/q1/kv1/h1x1/d64/contiguous/bf16",
                     "batch is expected as b<number>, found '1'");
  expect_parse_error("decode/b/q1/kv1/h1x1/d64/contiguous/bf16", "batch='' is not a number");
  expect_parse_error("decode/b-1/q1/kv1/h1x1/d64/contiguous/bf16", "batch='-1' is not a number");
  expect_parse_error("decode/b1/qx/kv1/h1x1/d64/contiguous/bf16", "seqlen_q='x'");
  expect_parse_error("decode/b1/q1/k1/h1x1/d64/contiguous/bf16",
                     "kv is expected as kv<number>, found 'k1'");
  expect_parse_error("decode/b1/q1/kv1-2-3/h1x1/d64/contiguous/bf16",
                     "kv='1-2-3' is not <min>[-<max>]");
  expect_parse_error("decode/b1/q1/kv1-/h1x1/d64/contiguous/bf16", "kv='' is not a number");
  expect_parse_error("decode/b1/q1/kv4294967297/h1x1/d64/contiguous/bf16", "kv='4294967297'");
  expect_parse_error("decode/b1/q1/kv1/h32/d64/contiguous/bf16",
                     "heads='32' is not <q heads>x<kv heads>");
  expect_parse_error("decode/b1/q1/kv1/hx4/d64/contiguous/bf16", "num_q_heads=''");
  expect_parse_error("decode/b1/q1/kv1/h4x/d64/contiguous/bf16", "num_kv_heads=''");
  expect_parse_error("decode/b1/q1/kv1/h1x1/64/contiguous/bf16",
                     "head_dim is expected as d<number>, found '64'");
  expect_parse_error("decode/b1/q1/kv1/h1x1/d64/wide/contiguous/bf16", "window='ide'");
  expect_parse_error(
      "decode/b1/q1/kv1/h1x1/d64/pages/bf16",
      "layout='pages' is not one of contiguous, ring, paged, unified, unified-paged");
  expect_parse_error("decode/b1/q1/kv1/h1x1/d64/paged/bf16", "a paged layout has /p<page_size>");
  expect_parse_error("decode/b1/q1/kv1/h1x1/d64/p48/paged/bf16", "a power of two from 16 to 256");
  expect_parse_error("decode/b1/q1/kv1/h1x1/d64/p512/paged/bf16", "a power of two from 16 to 256");
  expect_parse_error("decode/b1/q1/kv1/h1x1/d64/p64/contiguous/bf16", "only paged layouts have");
  expect_parse_error("decode/b1/q1/kv1/h1x1/d64/unified/bf16", "defined for head_dim 512");
  expect_parse_error("decode/b1/q1/kv1/h1x1/d64/full/invariant/contiguous/bf16", "drop /full");
  expect_parse_error("prefill/b1/q65537/kv1/h1x1/d64/contiguous/bf16", "prefill has q1 to q65536");
  // 2^26 packed rows of a KV head and no more.
  EXPECT_EQ(Problem::parse("prefill/b1/q65536/kv1/h1024x1/d64/contiguous/bf16").num_rows(),
            1 << 26);
  expect_parse_error(
      "prefill/b1/q65536/kv1/h1025x1/d64/contiguous/bf16",
      "seqlen_q * q heads / kv heads = 67174400 is above the limit of 67108864 packed");
  expect_parse_error("prefill/b1/q65536/kv1/h1048576x1/d64/contiguous/bf16",
                     "seqlen_q * q heads / kv heads = 68719476736 is above");
  expect_parse_error("decode/b1/q1/kv1/h1x1/d64/contiguous/fp8", "dtype='fp8' is not one of bf16");
}

TEST(ProblemText, SpellsLinearLayers) {
  Problem problem;
  problem.op = Op::kLinear;
  problem.linear_tokens = 8;
  problem.linear = {.out_features = 21504,
                    .in_features = 5376,
                    .epilogue = LinearEpilogue::kGeglu,
                    .weights = LinearWeights::kInt4};
  EXPECT_EQ(problem.text(), "linear/m8/n21504/k5376/geglu/int4");
  EXPECT_EQ(Problem::parse(problem.text()), problem);
  EXPECT_EQ(Problem::of_linear(8, problem.linear), problem);
  for (const char* text : {"linear/m8/n1/k8/store/bf16", "linear/m16/n1048576/k1048576/logits/bf16",
                           "linear/m16/n64/k64/swiglu/int4", "linear/m1/n64/k64/store/int4"}) {
    EXPECT_EQ(Problem::parse(text).text(), text);
  }
}

TEST(ProblemText, SpellsLayersOfExperts) {
  const Problem problem = Problem::parse("experts/m8/n704/k2816/geglu/int4/e128x8");
  EXPECT_EQ(problem.op, Op::kExperts);
  EXPECT_TRUE(problem.is_linear());
  EXPECT_EQ(problem.linear,
            (LinearShape{704, 2816, LinearEpilogue::kGeglu, LinearWeights::kInt4, 128, 8}));
  EXPECT_EQ(Problem::of_linear(8, problem.linear), problem);
  for (const char* text :
       {"experts/m1/n704/k2816/geglu/bf16/e128x8", "experts/m16/n262144/k8/store/int4/e256x32",
        "experts/m8/n1/k8/store/bf16/e1x1"}) {
    EXPECT_EQ(Problem::parse(text).text(), text);
  }
  expect_parse_error("experts/m8/n64/k64/store/bf16", "experts is missing");
  expect_parse_error("experts/m8/n64/k64/store/bf16/x", "experts is expected as e<number>");
  expect_parse_error("experts/m8/n64/k64/store/bf16/e8", "experts='8' is not <experts>x<top_k>");
  expect_parse_error("experts/m8/n64/k64/store/bf16/e8x", "top_k='' is not a number");
  expect_parse_error("experts/m8/n64/k64/store/bf16/e0x0", "experts are at least 1");
  expect_parse_error("experts/m8/n64/k64/store/bf16/e257x8", "experts are e<1 to 256>x<1 to 32>");
  expect_parse_error("experts/m8/n64/k64/store/bf16/e4x5", "no more chosen than there are");
  expect_parse_error("experts/m8/n64/k64/store/bf16/e64x33", "experts are e<1 to 256>");
  expect_parse_error("experts/m8/n64/k64/logits/bf16/e8x2", "experts give no logits");
  expect_parse_error("experts/m8/n262145/k8/store/bf16/e256x8", "2^26 at most");
  expect_parse_error("experts/m4/n64/k64/store/bf16/e8x2", "of packed rows and of experts also m1");
  expect_parse_error("linear/m8/n64/k64/store/bf16/e8x2", "'e8x2' is left over");
}

TEST(ProblemText, NamesTheSegmentOfALinearLayer) {
  expect_parse_error("linear", "tokens is missing");
  expect_parse_error("linear/m8", "out_features is missing");
  expect_parse_error("linear/m8/n64", "in_features is missing");
  expect_parse_error("linear/m8/n64/k64", "epilogue is missing");
  expect_parse_error("linear/m8/n64/k64/store", "weights is missing");
  expect_parse_error("linear/8/n64/k64/store/bf16", "tokens is expected as m<number>, found '8'");
  expect_parse_error("linear/m8/n/k64/store/bf16", "out_features='' is not a number");
  expect_parse_error("linear/m8/k64/n64/store/bf16", "out_features is expected as n<number>");
  expect_parse_error("linear/m8/n64/k64/relu/bf16",
                     "epilogue='relu' is not one of store, geglu, swiglu, logits");
  expect_parse_error("linear/m8/n64/k64/store/fp8", "weights='fp8' is not one of bf16, int4");
  expect_parse_error("linear/m8/n64/k64/store/bf16/x", "'x' is left over");
  expect_parse_error("linear/m08/n64/k64/store/bf16", "the canonical form is");
  expect_parse_error("linear/m4/n64/k64/store/bf16", "tokens are m8 or m16");
  expect_parse_error("linear/m1/n64/k64/store/bf16", "of packed rows and of experts also m1");
  expect_parse_error("linear/m8/n0/k64/store/bf16", "out_features is n1 to n2^20");
  expect_parse_error("linear/m8/n1048577/k64/store/bf16", "out_features is n1 to n2^20");
  expect_parse_error("linear/m8/n64/k4/store/bf16", "in_features is k8 to k2^20");
  expect_parse_error("linear/m8/n64/k68/store/bf16", "a multiple of 8");
  expect_parse_error("linear/b1/q1/kv1/h1x1/d64/contiguous/bf16", "tokens is expected as m");
}

TEST(ProblemText, NamesTheSegmentThatIsMissing) {
  const std::vector<std::pair<std::string, std::string>> cuts = {
      {"decode", "batch is missing"},
      {"decode/b1", "seqlen_q is missing"},
      {"decode/b1/q1", "kv is missing"},
      {"decode/b1/q1/kv1", "heads is missing"},
      {"decode/b1/q1/kv1/h1x1", "head_dim is missing"},
      {"decode/b1/q1/kv1/h1x1/d64", "layout is missing"},
      {"decode/b1/q1/kv1/h1x1/d64/contiguous", "dtype is missing"}};
  for (const auto& [text, part] : cuts) expect_parse_error(text, part);
}

TEST(ProblemText, RefusesWhatIsLeftOver) {
  expect_parse_error(std::string(kDecode) + "/extra", "'extra' is left over");
  expect_parse_error(std::string(kDecode) + "/", "'' is left over");
}

TEST(ProblemText, RefusesASecondSpellingOfTheSameProblem) {
  expect_parse_error("decode/b01/q1/kv1/h1x1/d64/contiguous/bf16", "the canonical form is");
  expect_parse_error("decode/b1/q1/kv5-5/h1x1/d64/contiguous/bf16", "the canonical form is");
  expect_parse_error("decode/b1/q1/kv5/h1x1/d64/w0/contiguous/bf16", "the canonical form is");
}

TEST(ProblemText, RefusesOptionsOutOfOrder) {
  expect_parse_error("decode/b1/q1/kv5/h1x1/d64/softcap/full/contiguous/bf16", "layout='full'");
  expect_parse_error("decode/b1/q1/kv5/h1x1/d64/full/w8/contiguous/bf16", "layout='w8'");
}

Problem valid_problem() { return Problem::parse(kDecode); }

void expect_invalid(const Problem& problem, const std::string& part) {
  try {
    problem.validate();
    ADD_FAILURE() << "accepted " << problem.text();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(problem.text()), std::string::npos) << error.what();
  }
}

TEST(ProblemValidate, AcceptsTheEndsOfEveryRange) {
  Problem problem = valid_problem();
  problem.batch = 65535;
  problem.kv = {kMaxKvLen, kMaxKvLen};
  problem.window = 1 << 20;
  EXPECT_NO_THROW(problem.validate());
  problem.op = Op::kVerify;
  for (const int seqlen_q : {2, 16}) {
    problem.seqlen_q = seqlen_q;
    EXPECT_NO_THROW(problem.validate());
  }
  for (const int head_dim : {64, 128, 256, 512}) {
    problem.head_dim = head_dim;
    EXPECT_NO_THROW(problem.validate());
  }
}

TEST(ProblemValidate, AcceptsGroupSizesThatAreNoPowerOfTwo) {
  Problem problem = valid_problem();
  problem.num_q_heads = 21;
  problem.num_kv_heads = 3;
  EXPECT_NO_THROW(problem.validate());
  EXPECT_EQ(problem.group_size(), 7);
}

TEST(ProblemValidate, RefusesSeqlenQThatTheOpDoesNotHave) {
  Problem problem = valid_problem();
  for (const int seqlen_q : {0, 2}) {
    problem.seqlen_q = seqlen_q;
    expect_invalid(problem, "decode has q1");
  }
  problem.op = Op::kVerify;
  for (const int seqlen_q : {0, 1, 17}) {
    problem.seqlen_q = seqlen_q;
    expect_invalid(problem, "verify has q2 to q16");
  }
}

TEST(ProblemValidate, RefusesBatchOutsideItsRange) {
  Problem problem = valid_problem();
  for (const int batch : {-1, 0, 65536}) {
    problem.batch = batch;
    expect_invalid(problem, "batch is 1 to 65535");
  }
}

TEST(ProblemValidate, RefusesEmptyAndReversedKvRanges) {
  Problem problem = valid_problem();
  for (const KvRange kv :
       {KvRange{0, 0}, KvRange{0, 8}, KvRange{9, 8}, KvRange{1, kMaxKvLen + 1}}) {
    problem.kv = kv;
    expect_invalid(problem, "1 <= min <= max <= 2^29");
  }
}

TEST(ProblemValidate, RefusesHeadsThatDoNotDivide) {
  Problem problem = valid_problem();
  for (const auto& [q, kv] : {std::pair{32, 0}, {0, 4}, {4, 32}, {10, 4}, {-4, -4}}) {
    problem.num_q_heads = q;
    problem.num_kv_heads = kv;
    expect_invalid(problem, "multiple of the kv heads");
  }
}

TEST(ProblemValidate, RefusesOtherHeadDims) {
  Problem problem = valid_problem();
  for (const int head_dim : {-64, 0, 32, 96, 192, 1024}) {
    problem.head_dim = head_dim;
    expect_invalid(problem, "head_dim is 64, 128, 256 or 512");
  }
}

TEST(ProblemValidate, RefusesFieldsOfTheOtherKind) {
  Problem attention = valid_problem();
  attention.linear_tokens = 8;
  expect_invalid(attention, "attention has nothing of a linear layer");
  attention = valid_problem();
  attention.linear.in_features = 64;
  expect_invalid(attention, "attention has nothing of a linear layer");
  const Problem linear = Problem::parse("linear/m8/n64/k64/store/bf16");
  EXPECT_NO_THROW(linear.validate());
  for (const auto& mutate : std::vector<void (*)(Problem&)>{
           [](Problem& p) { p.batch = 2; }, [](Problem& p) { p.seqlen_q = 2; },
           [](Problem& p) {
             p.kv = {1, 2};
           },
           [](Problem& p) { p.head_dim = 64; }, [](Problem& p) { p.softcap = true; },
           [](Problem& p) { p.invariant = true; }}) {
    Problem mixed = linear;
    mutate(mixed);
    expect_invalid(mixed, "a linear layer has nothing of attention");
  }
  Problem experts = Problem::parse("experts/m8/n64/k64/store/bf16/e8x2");
  experts.op = Op::kLinear;
  expect_invalid(experts, "experts are at least 1, and of op experts");
  experts.linear.num_experts = 0;  // top_k alone
  expect_invalid(experts, "experts are at least 1, and of op experts");
}

TEST(ProblemValidate, RefusesARingWithoutAWindow) {
  Problem problem = valid_problem();
  problem.kv_layout = KvLayout::kRing;
  expect_invalid(problem, "a ring holds a window's keys only");
  problem.window = -1;
  expect_invalid(problem, "the window is 0 (all)");
}

TEST(KvRange, ContainsRangesInsideItAndItself) {
  const KvRange range{10, 20};
  EXPECT_TRUE(range.contains({10, 20}));
  EXPECT_TRUE(range.contains({15, 15}));
  EXPECT_FALSE(range.contains({9, 20}));
  EXPECT_FALSE(range.contains({10, 21}));
}

}  // namespace
}  // namespace attune
