#include "tuner/measure_protocol.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/host/host_info.h"
#include "tuner/measure_server.h"

namespace attune {
namespace {

Binary sample_binary() {
  Binary binary;
  binary.key = digest_of("inputs");
  binary.arch = "sm_90a";
  for (int i = 0; i < 300; ++i) binary.cubin.push_back(static_cast<std::byte>(i));
  binary.content = digest_of(binary.cubin);
  return binary;
}

template <typename Result>
Result after_the_way(const Result& result, bool is_usable = true) {
  const MeasureAnswer answer = decode_answer(encode_answer({result, is_usable}));
  EXPECT_EQ(answer.is_usable, is_usable);
  return std::get<Result>(answer.result);
}

TEST(MeasureProtocol, GivesARequestBack) {
  MeasureRequest request;
  request.ask = MeasureAsk::kTime;
  request.device = "host+checks";
  request.gpu = "NVIDIA H200|sm_90a|9.0|132|150323855360|0";
  request.problem = "a problem";
  request.seed = ~std::uint64_t{0};
  request.candidate = "splitkv/m16n64s2w8/x33";
  request.kv_len = 4096;
  request.options = {.min_samples = 1,
                     .max_samples = 2,
                     .relative_spread = 0.25,
                     .abandon_above_us = 1e-3,
                     .new_graph = true};
  request.binary = sample_binary();
  const MeasureRequest back = decode_request(encode_request(request));
  EXPECT_EQ(back.ask, request.ask);
  EXPECT_EQ(back.device, request.device);
  EXPECT_EQ(back.gpu, request.gpu);
  EXPECT_EQ(back.problem, request.problem);
  EXPECT_EQ(back.seed, request.seed);
  EXPECT_EQ(back.candidate, request.candidate);
  EXPECT_EQ(back.kv_len, request.kv_len);
  EXPECT_EQ(back.options.min_samples, 1);
  EXPECT_EQ(back.options.max_samples, 2);
  EXPECT_EQ(back.options.relative_spread, 0.25);
  EXPECT_EQ(back.options.abandon_above_us, 1e-3);
  EXPECT_TRUE(back.options.new_graph);
  ASSERT_TRUE(back.binary);
  EXPECT_EQ(back.binary->cubin, request.binary->cubin);
  EXPECT_EQ(back.binary->key, request.binary->key);
  EXPECT_FALSE(decode_request(encode_request({})).binary);
}

TEST(MeasureProtocol, GivesEveryAnswerBack) {
  EXPECT_EQ(after_the_way(Ready{1e300}).verification_flops, 1e300);
  EXPECT_EQ(after_the_way(UnitFailure{"no room"}, false).reason, "no room");
  EXPECT_EQ(after_the_way(NoDevice{"no driver"}).reason, "no driver");
  const Rejection rejection =
      after_the_way(Rejection{RejectReason::kOutOfBounds, "byte -16 of out"}, false);
  EXPECT_EQ(rejection.reason, RejectReason::kOutOfBounds);
  EXPECT_EQ(rejection.detail, "byte -16 of out");
  const Timing timing = after_the_way(summarize({3.25, 1.0 / 3, 7}));
  EXPECT_EQ(timing.samples_us, (std::vector<double>{3.25, 1.0 / 3, 7}));
  EXPECT_EQ(timing.median_us, 3.25);
  EXPECT_EQ(timing.num_samples, 3);
  EXPECT_GT(timing.spread_us, 0);
  const Admission admission =
      after_the_way(Admission{"cpu-double-1", 42, 1e-3, 2e-3, 3e-3, "2026-01-02T03:04:05Z"});
  EXPECT_EQ(admission.reference, "cpu-double-1");
  EXPECT_EQ(admission.num_cases, 42);
  EXPECT_EQ(admission.relative_l2, 1e-3);
  EXPECT_EQ(admission.worst_case_relative_l2, 2e-3);
  EXPECT_EQ(admission.max_abs_error, 3e-3);
  EXPECT_EQ(admission.created_at, "2026-01-02T03:04:05Z");
}

TEST(MeasureProtocol, RefusesAnythingElse) {
  const std::string request = encode_request({});
  const std::string answer = encode_answer({Ready{}});
  for (const std::string& body : {std::string(), std::string("nonsense"), request.substr(1)}) {
    EXPECT_THROW(decode_request(body), Error);
    EXPECT_THROW(decode_answer(body), Error);
  }
  EXPECT_THROW(decode_answer(request), Error);
  EXPECT_THROW(decode_request(answer), Error);
}

TEST(MeasureServer, OpensNoOtherDeviceThanTheTuners) {
  MeasureServer server;
  MeasureRequest request{.device = "host", .gpu = host_device_info().identity()};
  EXPECT_TRUE(std::holds_alternative<Ready>(server.answer(request).result));
  request.gpu = "another";
  const MeasureAnswer answer = MeasureServer().answer(request);
  ASSERT_TRUE(std::holds_alternative<NoDevice>(answer.result));
  EXPECT_NE(std::get<NoDevice>(answer.result).reason.find("tuner=another"), std::string::npos);
}

TEST(MeasureServer, RefusesACandidateBeforeItsUnitAndItsBinary) {
  MeasureServer server;
  EXPECT_THROW(server.answer({.ask = MeasureAsk::kVerify}), Error);
  server.answer({.device = "host", .gpu = host_device_info().identity()});
  EXPECT_THROW(server.answer({.ask = MeasureAsk::kOpen, .problem = "a problem"}), Error);
  server.answer({.ask = MeasureAsk::kOpen,
                 .problem = "decode/b1/q1/kv1-16/h1x1/d64/contiguous/bf16",
                 .binary = sample_binary()});
  EXPECT_THROW(server.answer({.ask = MeasureAsk::kVerify, .candidate = "splitkv/m16n32s2w2/x1"}),
               Error);
}

}  // namespace
}  // namespace attune
