#include "runtime/attune_c.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/c_handles.h"
#include "tests/runtime/serving_fixture.h"

namespace attune {
namespace {

attune_options default_options() {
  attune_options options{};
  options.struct_size = sizeof(options);
  return options;
}

attune_args plausible_c_args() {
  const AttentionArgs from = plausible_args();
  attune_args args{};
  args.struct_size = sizeof(args);
  args.q = from.q;
  args.k = from.k;
  args.v = from.v;
  args.out = from.out;
  args.kv_len = from.kv_len;
  args.workspace = from.workspace;
  args.capacity = from.capacity;
  args.sm_scale = from.sm_scale;
  return args;
}

// An engine of the C ABI on the fake device, with a winner of kDecode.
class CApiTest : public ServingTest {
 protected:
  attune_engine* c_engine() {
    store(kDecode);
    auto fake = device();
    fake->on_launch = [this](const Kernel&, const KernelLaunch& shape, const void*) {
      ++num_launches;
      num_programmatic += shape.programmatic;
      if (fail_launch) throw CudaError("cannot launch", 719, "CUDA_ERROR_LAUNCH_FAILED");
      if (throw_int) throw 7;
    };
    engine_.reset(new attune_engine{Engine(options, std::move(fake))});
    return engine_.get();
  }
  attune_attention* prepared() {
    attune_attention* attention = nullptr;
    EXPECT_EQ(attune_engine_prepare(c_engine(), kDecode, &attention), ATTUNE_OK);
    attention_.reset(attention);
    return attention;
  }
  int num_launches = 0;
  int num_programmatic = 0;
  bool fail_launch = false;
  bool throw_int = false;

 private:
  struct Destroy {
    void operator()(attune_engine* engine) const { attune_engine_destroy(engine); }
    void operator()(attune_attention* attention) const { attune_attention_destroy(attention); }
  };
  std::unique_ptr<attune_engine, Destroy> engine_;
  std::unique_ptr<attune_attention, Destroy> attention_;
};

void expect_failure(attune_status expected, attune_status got, const std::string& part) {
  EXPECT_EQ(got, expected);
  EXPECT_TRUE(contains(attune_last_error(), part));
}

TEST(CApi, HasAVersionAndANameForEveryStatus) {
  EXPECT_STREQ(attune_version(), "0.1.0");
  EXPECT_STREQ(attune_status_name(ATTUNE_OK), "ok");
  EXPECT_STREQ(attune_status_name(ATTUNE_NOT_PREPARED), "not prepared");
  EXPECT_STREQ(attune_status_name(static_cast<attune_status>(99)), "unknown status");
}

TEST(CApi, EveryNullPointerIsAStatusWithItsName) {
  size_t bytes = 0;
  attune_served served = ATTUNE_SERVED_EXACT;
  attune_attention* attention = nullptr;
  const attune_args args = plausible_c_args();
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_create(nullptr, nullptr), "engine=NULL");
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_seal(nullptr), "engine=NULL");
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_prepare(nullptr, kDecode, &attention),
                 "engine=NULL");
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_choices_digest(nullptr, nullptr, 0, &bytes),
                 "engine=NULL");
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_attention_workspace_bytes(nullptr, &bytes),
                 "attention=NULL");
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_attention_served(nullptr, &served),
                 "attention=NULL");
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_attention_launch(nullptr, &args, nullptr),
                 "attention=NULL");
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_attention_explain(nullptr, nullptr, 0, &bytes),
                 "attention=NULL");
  attune_engine_destroy(nullptr);
  attune_attention_destroy(nullptr);
}

TEST(CApi, ADeviceThatIsNotThereIsNoDevice) {
  attune_options options = default_options();
  options.device_ordinal = 1000;
  attune_engine* engine = reinterpret_cast<attune_engine*>(0x1);
  EXPECT_EQ(attune_engine_create(&options, &engine), ATTUNE_NO_DEVICE);
  EXPECT_EQ(engine, nullptr);
  EXPECT_STRNE(attune_last_error(), "");
}

TEST(CApi, RefusesOptionsThatMeanNothing) {
  attune_engine* engine = nullptr;
  attune_options options = default_options();
  options.struct_size = 0;
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_create(&options, &engine),
                 "attune_options.struct_size=0");
  options = default_options();
  options.on_miss = 4;
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_create(&options, &engine), "on_miss=4");
  options = default_options();
  options.tune_budget_s = -1;
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_create(&options, &engine),
                 "tune_budget_s=-1");
  options = default_options();
  options.device_ordinal = -1;
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_create(&options, &engine),
                 "device_ordinal=-1");
  options = default_options();
  options.device = "hots";
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_create(&options, &engine),
                 "device='hots'; use the number of a GPU");
  options = default_options();
  options.device = "host";
  options.disabled_families = "splitkv,spiltkv";
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_create(&options, &engine), "'spiltkv'");
}

TEST(CApi, TheOptionsOfVersion010HaveNoDevice) {
  attune_options options = default_options();
  options.struct_size = offsetof(attune_options, device);
  options.device = "hots";  // behind the end of what the caller knows
  options.device_ordinal = 1000;
  attune_engine* engine = nullptr;
  EXPECT_EQ(attune_engine_create(&options, &engine), ATTUNE_NO_DEVICE) << attune_last_error();
}

TEST(CApi, TheLibraryOfPrefillsIsTheEngines) {
  attune_options c = default_options();
  c.cublaslt_path = "/opt/cublas";
  EXPECT_EQ(engine_options(&c).cublaslt_path, "/opt/cublas");
  c.struct_size = offsetof(attune_options, cublaslt_path);  // a caller that does not know it
  setenv("ATTUNE_CUBLASLT", "off", 1);
  EXPECT_EQ(engine_options(&c).cublaslt_path, "off");
  unsetenv("ATTUNE_CUBLASLT");
}

TEST(CApi, TheOptionsOfTheCacheAreThoseOfTheEngine) {
  attune_options c = default_options();
  c.cache_bases = "/opt/a.db:/opt/b.db";
  c.cache_max_size = "1K";
  c.gpu_alias = "NVIDIA H200";
  const Options options = engine_options(&c);
  EXPECT_EQ(options.cache_bases, (std::vector<std::string>{"/opt/a.db", "/opt/b.db"}));
  EXPECT_EQ(options.cache_max_bytes, 1024u);
  EXPECT_EQ(options.gpu_alias, "NVIDIA H200");
  setenv("ATTUNE_CACHE_BASE", "/opt/c.db", 1);
  setenv("ATTUNE_CACHE_MAX_SIZE", "2K", 1);
  setenv("ATTUNE_GPU_ALIAS", "NVIDIA H100", 1);
  c.cache_bases = c.cache_max_size = c.gpu_alias = nullptr;  // the environment decides
  EXPECT_EQ(engine_options(&c).cache_bases, std::vector<std::string>{"/opt/c.db"});
  EXPECT_EQ(engine_options(&c).cache_max_bytes, 2048u);
  EXPECT_EQ(engine_options(&c).gpu_alias, "NVIDIA H100");
  c.cache_bases = c.gpu_alias = "";
  c.cache_max_size = "0";
  EXPECT_TRUE(engine_options(&c).cache_bases.empty());
  EXPECT_EQ(engine_options(&c).cache_max_bytes, 0u);
  EXPECT_EQ(engine_options(&c).gpu_alias, "");
  c.struct_size = offsetof(attune_options, cache_bases);  // a caller of version 0.1.0 and later
  EXPECT_EQ(engine_options(&c).gpu_alias, "NVIDIA H100");
  for (const char* name : {"ATTUNE_CACHE_BASE", "ATTUNE_CACHE_MAX_SIZE", "ATTUNE_GPU_ALIAS"}) {
    unsetenv(name);
  }
  c = default_options();
  c.cache_max_size = "much";
  attune_engine* engine = nullptr;
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_create(&c, &engine), "'much'");
}

TEST(CApi, TheNamedDeviceComesBeforeTheOrdinal) {
  attune_options options = default_options();
  options.device = "1000";
  attune_engine* engine = nullptr;
  EXPECT_EQ(attune_engine_create(&options, &engine), ATTUNE_NO_DEVICE) << attune_last_error();
}

TEST_F(CApiTest, ServesAWinner) {
  attune_attention* attention = prepared();
  const attune_args args = plausible_c_args();
  EXPECT_EQ(attune_attention_launch(attention, &args, nullptr), ATTUNE_OK);
  EXPECT_STREQ(attune_last_error(), "");
  EXPECT_EQ(num_launches, 2);
  size_t bytes = 0;
  EXPECT_EQ(attune_attention_workspace_bytes(attention, &bytes), ATTUNE_OK);
  EXPECT_EQ(bytes, attention->attention.workspace_bytes());
  attune_served served = ATTUNE_SERVED_DEFAULT;
  EXPECT_EQ(attune_attention_served(attention, &served), ATTUNE_OK);
  EXPECT_EQ(served, ATTUNE_SERVED_EXACT);
}

TEST_F(CApiTest, EveryUnsupportedProblemIsAStatusAndAMessage) {
  attune_engine* engine = c_engine();
  for (const char* problem :
       {"", "/", "decode", "extend/b1/q1/kv1/h8x2/d128/contiguous/bf16",
        "decode/b0/q1/kv1/h8x2/d128/contiguous/bf16", "decode/b1/q2/kv1/h8x2/d128/contiguous/bf16",
        "verify/b1/q17/kv1/h8x2/d128/contiguous/bf16", "decode/b1/q1/kv0/h8x2/d128/contiguous/bf16",
        "decode/b1/q1/kv9-8/h8x2/d128/contiguous/bf16",
        "decode/b1/q1/kv1/h8x3/d128/contiguous/bf16", "decode/b1/q1/kv1/h8x0/d128/contiguous/bf16",
        "decode/b1/q1/kv1/h8x2/d96/contiguous/bf16", "decode/b1/q1/kv1/h8x2/d128/paged/bf16",
        "decode/b1/q1/kv1/h8x2/d128/contiguous/fp8", "decode/b1/q1/kv1/h8x2/d128/ring/bf16",
        "decode/b1/q1/kv1/h8x2/d128/contiguous/bf16/more",
        "decode/b99999999999999999999/q1/kv1/h8x2/d128/contiguous/bf16"}) {
    attune_attention* attention = reinterpret_cast<attune_attention*>(0x1);
    EXPECT_EQ(attune_engine_prepare(engine, problem, &attention), ATTUNE_INVALID_ARGUMENT)
        << problem;
    EXPECT_STRNE(attune_last_error(), "") << problem;
    EXPECT_EQ(attention, nullptr);
  }
  attune_attention* attention = nullptr;
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_prepare(engine, nullptr, &attention),
                 "problem=NULL");
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_engine_prepare(engine, kDecode, nullptr),
                 "attention=NULL");
}

TEST_F(CApiTest, EveryErrorTypeHasItsStatus) {
  attune_attention* attention = prepared();
  attune_args args = plausible_c_args();
  args.capacity = 0;
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_attention_launch(attention, &args, nullptr),
                 "capacity=0");
  args = plausible_c_args();
  fail_launch = true;
  expect_failure(ATTUNE_CUDA_ERROR, attune_attention_launch(attention, &args, nullptr),
                 "CUDA_ERROR_LAUNCH_FAILED");
  fail_launch = false;
  throw_int = true;
  expect_failure(ATTUNE_ERROR, attune_attention_launch(attention, &args, nullptr),
                 "unknown exception");
  throw_int = false;
  EXPECT_EQ(attune_attention_launch(attention, &args, nullptr), ATTUNE_OK);
  EXPECT_STREQ(attune_last_error(), "");
}

TEST_F(CApiTest, AMissIsNoDeviceWithoutNvrtcAndNotPreparedByPolicy) {
  attune_attention* attention = nullptr;
  expect_failure(ATTUNE_NO_DEVICE, attune_engine_prepare(c_engine(), kVerify8, &attention),
                 options.nvrtc_path);
  options.on_miss = OnMiss::kError;
  expect_failure(ATTUNE_NOT_PREPARED, attune_engine_prepare(c_engine(), kVerify8, &attention),
                 "attune tune --problem");
  options.strict = true;
  attune_engine* sealed = c_engine();
  EXPECT_EQ(attune_engine_seal(sealed), ATTUNE_OK);
  expect_failure(ATTUNE_NOT_PREPARED, attune_engine_prepare(sealed, kDecode, &attention), "sealed");
}

TEST_F(CApiTest, ReadsArgumentsOfNewerCallersOnlyWhenNothingIsLost) {
  struct NewerArgs {
    attune_args known;
    std::uint64_t later[2];
  } args{plausible_c_args(), {0, 0}};
  args.known.struct_size = sizeof(args);
  attune_attention* attention = prepared();
  EXPECT_EQ(attune_attention_launch(attention, &args.known, nullptr), ATTUNE_OK);
  args.later[1] = 1;
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_attention_launch(attention, &args.known, nullptr),
                 "use a newer library");
}

// The combine may start early in any case.
TEST_F(CApiTest, OverlapIsOnWhereACallerKnowsItAndSaysSo) {
  attune_attention* attention = prepared();
  const auto programmatic_launches = [&](const attune_args& args) {
    num_programmatic = 0;
    EXPECT_EQ(attune_attention_launch(attention, &args, nullptr), ATTUNE_OK);
    return num_programmatic;
  };
  attune_args args = plausible_c_args();
  EXPECT_EQ(programmatic_launches(args), 1);
  args.overlap = 1;
  EXPECT_EQ(programmatic_launches(args), 2);
  args.overlap = -1;
  EXPECT_EQ(programmatic_launches(args), 2);
  args.struct_size = offsetof(attune_args, overlap);  // of a caller that does not know it
  EXPECT_EQ(programmatic_launches(args), 1);
}

// What a newer caller may have put there would be lost.
TEST_F(CApiTest, RefusesAFieldThatIsKeptForLater) {
  attune_attention* attention = prepared();
  attune_args args = plausible_c_args();
  args.reserved = 7;
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_attention_launch(attention, &args, nullptr),
                 "attune_args.reserved=7");
  static_assert(offsetof(attune_args, reserved) + sizeof(args.reserved) == sizeof(args),
                "no room that nothing checks");
}

TEST_F(CApiTest, RefusesArgumentsWithoutASize) {
  attune_attention* attention = prepared();
  attune_args args = plausible_c_args();
  for (const size_t size : {size_t{0}, offsetof(attune_args, softcap), ~size_t{0}}) {
    args.struct_size = size;
    expect_failure(ATTUNE_INVALID_ARGUMENT, attune_attention_launch(attention, &args, nullptr),
                   "set struct_size");
  }
}

TEST_F(CApiTest, CutsTextsToTheBufferAndTellsTheirLength) {
  attune_attention* attention = prepared();
  size_t needed = 0;
  EXPECT_EQ(attune_attention_explain(attention, nullptr, 0, &needed), ATTUNE_OK);
  EXPECT_EQ(needed, attention->attention.explain().size() + 1);
  std::string text(needed, '?');
  EXPECT_EQ(attune_attention_explain(attention, text.data(), needed, nullptr), ATTUNE_OK);
  EXPECT_STREQ(text.c_str(), attention->attention.explain().c_str());
  char small[8] = "???????";
  EXPECT_EQ(attune_attention_explain(attention, small, 4, &needed), ATTUNE_OK);
  EXPECT_STREQ(small, "pro");
  EXPECT_EQ(small[4], '?');
  expect_failure(ATTUNE_INVALID_ARGUMENT, attune_attention_explain(attention, nullptr, 4, &needed),
                 "text=NULL");
}

TEST_F(CApiTest, GivesTheDigestOfTheChoices) {
  attune_engine* engine = c_engine();
  char text[33];
  EXPECT_EQ(attune_engine_choices_digest(engine, text, sizeof(text), nullptr), ATTUNE_OK);
  EXPECT_EQ(std::string(text), engine->engine.choices_digest());
}

TEST_F(CApiTest, AnAttentionOutlivesItsEngine) {
  attune_engine* engine = new attune_engine{Engine(options, device())};
  store(kDecode);
  attune_attention* attention = nullptr;
  ASSERT_EQ(attune_engine_prepare(engine, kDecode, &attention), ATTUNE_OK);
  attune_engine_destroy(engine);
  const attune_args args = plausible_c_args();
  EXPECT_EQ(attune_attention_launch(attention, &args, nullptr), ATTUNE_OK);
  attune_attention_destroy(attention);
}

TEST(CApi, EveryThreadHasItsOwnMessage) {
  EXPECT_EQ(attune_engine_seal(nullptr), ATTUNE_INVALID_ARGUMENT);
  std::thread other([] { EXPECT_STREQ(attune_last_error(), ""); });
  other.join();
  EXPECT_STRNE(attune_last_error(), "");
}

}  // namespace
}  // namespace attune
