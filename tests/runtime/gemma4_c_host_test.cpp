// The C ABI of the Gemma 4 model on the host device: the same bits as the C++ interface.
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "jit/device.h"
#include "runtime/attune_gemma4_c.h"
#include "runtime/gemma4_attention.h"
#include "runtime/gemma4_c_handles.h"
#include "runtime/kv_rules.h"
#include "tests/support/require_cxx.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"
#include "tuner/reference.h"

namespace attune {
namespace {

constexpr int kMaxTokens = 96;
constexpr int kMaxPrefill = 20;
constexpr int kMaxVerify = 4;
constexpr int kBatch = 2;

std::vector<std::uint16_t> noise(std::size_t count, float mean, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<std::uint16_t> values(count);
  for (auto& value : values) value = float_to_bf16(mean + distribution(random));
  return values;
}

// Every layer's projections and results of one step, in memory of the device.
class StepData {
 public:
  StepData(Device& device, const Gemma4Geometry& geometry, int rows, unsigned seed)
      : device_(device) {
    for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
      const LayerGeometry& layer = geometry.layers[i];
      const std::size_t q = std::size_t{1} * rows * layer.num_q_heads * layer.head_dim;
      const std::size_t kv = std::size_t{1} * rows * layer.num_kv_heads * layer.head_dim;
      Gemma4LayerArgs& args = layers_.emplace_back();
      args.q = upload(noise(q, 0, seed + 3 * i));
      args.k = upload(noise(kv, 0, seed + 3 * i + 1));
      if (!layer.k_eq_v) args.v = upload(noise(kv, 0, seed + 3 * i + 2));
      args.out = upload(std::vector<std::uint16_t>(q, 0));
    }
  }
  const Gemma4LayerArgs& args(int layer) const { return layers_.at(layer); }
  attune_gemma4_args c_args(int layer) const {
    const Gemma4LayerArgs& from = args(layer);
    attune_gemma4_args to{};
    to.struct_size = sizeof(to);
    to.q = from.q;
    to.k = from.k;
    to.v = from.v;
    to.out = from.out;
    return to;
  }
  // What the step left in the results of all layers.
  std::vector<std::uint16_t> take_results() {
    std::vector<std::uint16_t> all;
    std::size_t mem = 0;
    for (const Gemma4LayerArgs& layer : layers_) {
      while (mems_[mem].ptr() != layer.out) ++mem;
      std::vector<std::uint16_t> out(mems_[mem].bytes() / sizeof(std::uint16_t));
      device_.copy_to_host(std::as_writable_bytes(std::span(out)), layer.out, nullptr);
      device_.fill_bytes(layer.out, 0, mems_[mem].bytes(), nullptr);
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  }

 private:
  DevicePtr upload(const std::vector<std::uint16_t>& values) {
    DeviceMem& mem = mems_.emplace_back(device_.allocate(values.size() * sizeof(values[0])));
    device_.copy_to_device(mem.ptr(), std::as_bytes(std::span(values)), nullptr);
    return mem.ptr();
  }
  Device& device_;
  std::vector<DeviceMem> mems_;
  std::vector<Gemma4LayerArgs> layers_;
};

class Gemma4CHostTest : public HostCompilerTest {
 protected:
  void SetUp() override {
    HostCompilerTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    Options options;
    options.device = "host";
    options.cache_path = (folder_.path() / "tune.db").string();
    options.cxx_path = test_host_search().cxx;
    engine = new attune_engine{Engine(options)};
    c_options.struct_size = sizeof(c_options);
    c_options.max_tokens = kMaxTokens;
    c_options.max_sequences = kBatch;
    c_options.max_prefill = kMaxPrefill;
    c_options.max_verify = kMaxVerify;
    c_options.batch_sizes = &kBatchSize;
    c_options.num_batch_sizes = 1;
    cpp_options = {.max_tokens = kMaxTokens,
                   .max_sequences = kBatch,
                   .max_prefill = kMaxPrefill,
                   .max_verify = kMaxVerify,
                   .batch_sizes = {kBatch}};
  }
  void TearDown() override { attune_engine_destroy(engine); }

  void ok(attune_status status) { ASSERT_EQ(status, ATTUNE_OK) << attune_last_error(); }
  // A model of the C ABI with norm weights; the geometry's handle does not outlive the call.
  attune_gemma4_model* c_model() {
    attune_gemma4_geometry* read = nullptr;
    attune_gemma4_model* model = nullptr;
    ok(attune_gemma4_geometry_from_file(test_data("gemma4-tiny").c_str(), &read));
    ok(attune_gemma4_model_create(engine, read, &c_options, &model));
    attune_gemma4_geometry_destroy(read);
    for (int layer = 0; model != nullptr && layer < num_layers(); ++layer) {
      const auto q = q_norm(layer), k = k_norm(layer);
      ok(attune_gemma4_model_set_norm_weights(model, layer, q.data(), q.size(), k.data(),
                                              k.size()));
    }
    return model;
  }
  void set_weights(Gemma4Attention* model) {
    for (int i = 0; i < num_layers(); ++i) model->set_norm_weights(i, q_norm(i), k_norm(i));
  }
  int num_layers() const { return static_cast<int>(geometry.layers.size()); }
  std::vector<std::uint16_t> q_norm(int layer) const {
    return noise(geometry.layers[layer].head_dim, 1, 1000 + layer);
  }
  std::vector<std::uint16_t> k_norm(int layer) const {
    return noise(geometry.layers[layer].head_dim, 1, 2000 + layer);
  }
  // Runs a step of all layers through both interfaces; `c_call` and `cpp_call` take a layer and its
  // arguments.
  template <typename CCall, typename CppCall>
  void expect_same(const char* what, StepData* data, const CCall& c_call, const CppCall& cpp_call) {
    for (int layer = 0; layer < num_layers(); ++layer) {
      const attune_gemma4_args args = data->c_args(layer);
      ok(c_call(layer, &args));
    }
    const auto got = data->take_results();
    for (int layer = 0; layer < num_layers(); ++layer) cpp_call(layer, data->args(layer));
    EXPECT_TRUE(got == data->take_results()) << what;
    EXPECT_NE(got, std::vector<std::uint16_t>(got.size(), 0)) << what;
  }
  StepData step_data(int rows, unsigned seed) {
    return StepData(engine->engine.device(), geometry, rows, seed);
  }

  static constexpr int32_t kBatchSize = kBatch;
  const Gemma4Geometry geometry = Gemma4Geometry::from_file(test_data("gemma4-tiny"));
  attune_engine* engine = nullptr;
  attune_gemma4_options c_options{};
  Gemma4Options cpp_options;

 private:
  TemporaryFolder folder_;
};

TEST_F(Gemma4CHostTest, ASessionGivesTheBitsOfTheCppInterface) {
  attune_gemma4_model* model = c_model();
  ASSERT_NE(model, nullptr);
  Gemma4Attention cpp_model(engine->engine, geometry, cpp_options);
  set_weights(&cpp_model);
  attune_gemma4_session* c = nullptr;
  ok(attune_gemma4_session_open(model, &c));
  ASSERT_NE(c, nullptr);
  Gemma4Session cpp = cpp_model.open_session();

  StepData data = step_data(kMaxPrefill, 7);
  const auto expect_length = [&](int expected) {
    int32_t length = -1, largest = -1;
    size_t bytes = 0;
    ok(attune_gemma4_session_length(c, &length));
    ok(attune_gemma4_session_largest_step(c, &largest));
    ok(attune_gemma4_session_cache_bytes(c, &bytes));
    EXPECT_EQ(length, expected);
    EXPECT_EQ(cpp.length(), expected);
    EXPECT_EQ(largest, cpp.largest_step());
    EXPECT_EQ(bytes, cpp.cache_bytes());
  };
  const auto decode = [&](const char* what) {
    expect_same(
        what, &data,
        [&](int layer, const auto* args) {
          return attune_gemma4_session_decode(c, layer, args, nullptr);
        },
        [&](int layer, const auto& args) { cpp.decode(layer, args, nullptr); });
  };

  expect_same(
      "prefill", &data,
      [&](int layer, const auto* args) {
        return attune_gemma4_session_prefill(c, layer, 20, args, nullptr);
      },
      [&](int layer, const auto& args) { cpp.prefill(layer, 20, args, nullptr); });
  ok(attune_gemma4_session_commit(c, 20, nullptr));
  cpp.commit(20, nullptr);
  expect_length(20);

  decode("decode");
  ok(attune_gemma4_session_commit(c, 1, nullptr));
  cpp.commit(1, nullptr);

  ok(attune_gemma4_session_begin_step(c, 4, nullptr));
  expect_same(
      "verify", &data,
      [&](int layer, const auto* args) {
        return attune_gemma4_session_verify(c, layer, 4, args, nullptr);
      },
      [&](int layer, const auto& args) { cpp.verify(layer, 4, args, nullptr); });
  ok(attune_gemma4_session_commit(c, 2, nullptr));
  cpp.commit(2, nullptr);
  expect_length(23);

  ok(attune_gemma4_session_rollback(c, 1, nullptr));
  cpp.rollback(1, nullptr);
  ok(attune_gemma4_session_reserve(c, 8, nullptr));
  cpp.reserve(8, nullptr);
  expect_length(22);
  decode("decode after a rollback");

  attune_gemma4_session_close(c);
  attune_gemma4_model_destroy(model);
}

TEST_F(Gemma4CHostTest, ABatchGivesTheBitsOfTheCppInterface) {
  attune_gemma4_model* model = c_model();
  ASSERT_NE(model, nullptr);
  Gemma4Attention cpp_model(engine->engine, geometry, cpp_options);
  set_weights(&cpp_model);
  attune_gemma4_session* c[kBatch] = {};
  std::vector<Gemma4Session> cpp;
  for (auto& session : c) ok(attune_gemma4_session_open(model, &session));
  for (int i = 0; i < kBatch; ++i) cpp.push_back(cpp_model.open_session());
  Gemma4Session* const cpp_sessions[] = {&cpp[0], &cpp[1]};
  attune_gemma4_batch* batch = nullptr;
  ok(attune_gemma4_batch_create(model, kBatch, &batch));
  ASSERT_NE(batch, nullptr);
  Gemma4Batch cpp_batch = cpp_model.make_batch(kBatch);
  ok(attune_gemma4_batch_assign(batch, c, kBatch, nullptr));
  cpp_batch.assign(cpp_sessions, nullptr);

  StepData data = step_data(kBatch * kMaxPrefill, 11);
  const auto commit = [&](const std::vector<int>& accepted) {
    ok(attune_gemma4_batch_commit(batch, accepted.data(), accepted.size(), nullptr));
    cpp_batch.commit(accepted, nullptr);
  };
  expect_same(
      "prefill", &data,
      [&](int layer, const auto* args) {
        return attune_gemma4_batch_prefill(batch, layer, 9, args, nullptr);
      },
      [&](int layer, const auto& args) { cpp_batch.prefill(layer, 9, args, nullptr); });
  commit({9, 4});
  ok(attune_gemma4_batch_begin_step(batch, 3, nullptr));
  expect_same(
      "verify", &data,
      [&](int layer, const auto* args) {
        return attune_gemma4_batch_verify(batch, layer, 3, args, nullptr);
      },
      [&](int layer, const auto& args) { cpp_batch.verify(layer, 3, args, nullptr); });
  commit({1, 3});
  expect_same(
      "decode", &data,
      [&](int layer, const auto* args) {
        return attune_gemma4_batch_decode(batch, layer, args, nullptr);
      },
      [&](int layer, const auto& args) { cpp_batch.decode(layer, args, nullptr); });
  commit({1, 1});
  for (int i = 0; i < kBatch; ++i) {
    int32_t length = 0;
    ok(attune_gemma4_session_length(c[i], &length));
    EXPECT_EQ(length, cpp[i].length());
  }
  int32_t largest = 0;
  size_t bytes = 0;
  ok(attune_gemma4_batch_largest_step(batch, &largest));
  ok(attune_gemma4_batch_workspace_bytes(batch, &bytes));
  EXPECT_EQ(largest, cpp_batch.largest_step());
  EXPECT_EQ(bytes, cpp_batch.workspace_bytes());

  attune_gemma4_batch_destroy(batch);
  for (auto* session : c) attune_gemma4_session_close(session);
  attune_gemma4_model_destroy(model);
}

TEST_F(Gemma4CHostTest, HandlesGoInAnyOrder) {
  attune_gemma4_model* model = c_model();
  ASSERT_NE(model, nullptr);
  attune_gemma4_session *first = nullptr, *second = nullptr;
  attune_gemma4_batch* batch = nullptr;
  ok(attune_gemma4_session_open(model, &first));
  ok(attune_gemma4_session_open(model, &second));
  ok(attune_gemma4_batch_create(model, kBatch, &batch));
  attune_gemma4_session* const both[] = {first, second};
  ok(attune_gemma4_batch_assign(batch, both, kBatch, nullptr));
  StepData data = step_data(kBatch, 3);

  attune_gemma4_model_destroy(model);
  attune_engine_destroy(engine);
  engine = nullptr;
  for (int layer = 0; layer < num_layers(); ++layer) {
    const attune_gemma4_args args = data.c_args(layer);
    ok(attune_gemma4_batch_decode(batch, layer, &args, nullptr));
  }
  const int32_t accepted[] = {1, 1};
  ok(attune_gemma4_batch_commit(batch, accepted, kBatch, nullptr));
  attune_gemma4_session_close(first);
  int32_t length = 0;
  ok(attune_gemma4_session_length(second, &length));
  EXPECT_EQ(length, 1);
  attune_gemma4_batch_destroy(batch);
  attune_gemma4_session_close(second);
}

// The formula of docs/gemma4-attention.md.
TEST_F(Gemma4CHostTest, CachesHaveTheBytesOfTheDocumentedFormula) {
  for (const int layout : {ATTUNE_GEMMA4_CONTIGUOUS, ATTUNE_GEMMA4_UNIFIED_PAGED}) {
    c_options.global_layout = layout;
    c_options.page_size = 16;
    c_options.num_pages = layout == ATTUNE_GEMMA4_CONTIGUOUS ? 0 : 7;
    attune_gemma4_model* model = c_model();
    ASSERT_NE(model, nullptr);
    const std::size_t sliding = std::size_t{5} * ring_rows(32, kMaxPrefill) * 4 * 256 * 4;
    const std::size_t rows = layout == ATTUNE_GEMMA4_CONTIGUOUS ? kMaxTokens : 16;
    const std::size_t global =
        rows * 1 * (layout == ATTUNE_GEMMA4_CONTIGUOUS ? std::size_t{2} * 512 : 640) * 2;
    attune_gemma4_session* session = nullptr;
    ok(attune_gemma4_session_open(model, &session));
    ok(attune_gemma4_session_reserve(session, 40, nullptr));
    size_t bytes = 0;
    int32_t pages = -1;
    ok(attune_gemma4_session_cache_bytes(session, &bytes));
    ok(attune_gemma4_model_free_pages(model, &pages));
    const bool paged = layout == ATTUNE_GEMMA4_UNIFIED_PAGED;
    EXPECT_EQ(bytes, sliding + (paged ? 3 : 1) * global);
    EXPECT_EQ(pages, paged ? 4 : 0);
    ok(attune_gemma4_model_cache_bytes(model, &bytes));
    EXPECT_EQ(bytes, kBatch * sliding + (paged ? 7 : kBatch) * global);
    ok(attune_gemma4_model_workspace_bytes(model, &bytes));
    EXPECT_GT(bytes, 0u);
    size_t needed = 0;
    ok(attune_gemma4_model_explain(model, nullptr, 0, &needed));
    std::string text(needed, '?');
    ok(attune_gemma4_model_explain(model, text.data(), needed, nullptr));
    EXPECT_NE(text.find("decode/b1/q1/"), std::string::npos) << text;
    attune_gemma4_session_close(session);
    attune_gemma4_model_destroy(model);
  }
}

}  // namespace
}  // namespace attune
