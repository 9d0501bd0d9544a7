// The C ABI of the Gemma 4 model without its kernels: geometry, and what is refused.
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "runtime/attune_gemma4_c.h"
#include "runtime/gemma4_c_handles.h"
#include "tests/runtime/serving_fixture.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

void expect_refusal(attune_status got, const std::string& part) {
  EXPECT_EQ(got, ATTUNE_INVALID_ARGUMENT) << part;
  EXPECT_TRUE(contains(attune_last_error(), part));
}

struct DestroyGeometry {
  void operator()(attune_gemma4_geometry* geometry) const {
    attune_gemma4_geometry_destroy(geometry);
  }
};
using GeometryHandle = std::unique_ptr<attune_gemma4_geometry, DestroyGeometry>;

GeometryHandle geometry_of(const std::string& name) {
  attune_gemma4_geometry* geometry = nullptr;
  EXPECT_EQ(attune_gemma4_geometry_from_file(test_data(name).c_str(), &geometry), ATTUNE_OK)
      << attune_last_error();
  return GeometryHandle(geometry);
}

template <typename T>
T sized() {
  T made{};
  made.struct_size = sizeof(T);
  return made;
}

TEST(Gemma4C, GivesEveryNumberOfTheGeometry) {
  const GeometryHandle handle = geometry_of("gemma4-configs/e2b-older.json");
  const auto model = Gemma4Geometry::from_file(test_data("gemma4-configs/e2b-older.json"));
  auto info = sized<attune_gemma4_info>();
  ASSERT_EQ(attune_gemma4_geometry_info(handle.get(), &info), ATTUNE_OK);
  ASSERT_EQ(info.num_layers, static_cast<int>(model.layers.size()));
  EXPECT_EQ(info.hidden_size, model.hidden_size);
  EXPECT_EQ(info.max_positions, model.max_positions);
  EXPECT_EQ(info.rms_norm_eps, model.rms_norm_eps);
  for (int i = 0; i < info.num_layers; ++i) {
    SCOPED_TRACE(i);
    const LayerGeometry& expected = model.layers[i];
    auto layer = sized<attune_gemma4_layer>();
    ASSERT_EQ(attune_gemma4_geometry_layer(handle.get(), i, &layer), ATTUNE_OK);
    EXPECT_EQ(layer.kind,
              expected.kind == LayerKind::kGlobal ? ATTUNE_GEMMA4_GLOBAL : ATTUNE_GEMMA4_SLIDING);
    EXPECT_EQ(layer.num_q_heads, expected.num_q_heads);
    EXPECT_EQ(layer.num_kv_heads, expected.num_kv_heads);
    EXPECT_EQ(layer.head_dim, expected.head_dim);
    EXPECT_EQ(layer.window, expected.window);
    EXPECT_EQ(layer.k_eq_v != 0, expected.k_eq_v);
    EXPECT_EQ(layer.kv_layer, expected.kv_layer);
    EXPECT_EQ(layer.rope_num_pairs, expected.rope.num_pairs);
    EXPECT_EQ(layer.rope_theta, expected.rope.theta);
    EXPECT_EQ(layer.rope_factor, expected.rope.factor);
  }
}

TEST(Gemma4C, ReadsTheTextOfAFileAsTheFile) {
  std::ifstream stream(test_data("gemma4-tiny/config.json"));
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  attune_gemma4_geometry* geometry = nullptr;
  ASSERT_EQ(attune_gemma4_geometry_from_json(text.c_str(), &geometry), ATTUNE_OK);
  const GeometryHandle handle(geometry);
  EXPECT_EQ(handle->geometry, geometry_of("gemma4-tiny")->geometry);
}

TEST(Gemma4C, AConfigThatCannotBeUsedIsAStatusAndGivesNoHandle) {
  auto* geometry = reinterpret_cast<attune_gemma4_geometry*>(0x1);
  expect_refusal(attune_gemma4_geometry_from_file("/none/config.json", &geometry),
                 "cannot read the Gemma 4 config");
  EXPECT_EQ(geometry, nullptr);
  geometry = reinterpret_cast<attune_gemma4_geometry*>(0x1);
  expect_refusal(attune_gemma4_geometry_from_json("{\"model_type\": \"llama\"}", &geometry),
                 "model_type=\"llama\"");
  EXPECT_EQ(geometry, nullptr);
  expect_refusal(attune_gemma4_geometry_from_json("", &geometry), "the Gemma 4 config");
}

TEST(Gemma4C, AStructIsFilledAsFarAsTheCallerKnowsIt) {
  const GeometryHandle handle = geometry_of("gemma4-tiny");
  struct NewerLayer {
    attune_gemma4_layer known;
    std::uint64_t later[2];
  } newer{sized<attune_gemma4_layer>(), {1, 1}};
  newer.known.struct_size = sizeof(newer);
  ASSERT_EQ(attune_gemma4_geometry_layer(handle.get(), 5, &newer.known), ATTUNE_OK);
  EXPECT_EQ(newer.known.struct_size, sizeof(newer));
  EXPECT_EQ(newer.known.head_dim, 512);
  EXPECT_EQ(newer.later[0] + newer.later[1], 0u);

  auto layer = sized<attune_gemma4_layer>();
  for (const size_t size : {size_t{0}, sizeof(layer) - 8, ~size_t{0}}) {
    layer.struct_size = size;
    layer.head_dim = 77;
    expect_refusal(attune_gemma4_geometry_layer(handle.get(), 0, &layer), "set struct_size");
    EXPECT_EQ(layer.head_dim, 77);
  }
  auto info = sized<attune_gemma4_info>();
  for (const size_t size : {size_t{0}, sizeof(info) - 8, ~size_t{0}}) {
    info.struct_size = size;
    expect_refusal(attune_gemma4_geometry_info(handle.get(), &info), "attune_gemma4_info");
  }
  layer = sized<attune_gemma4_layer>();
  for (const int idx : {-1, 6}) {
    expect_refusal(attune_gemma4_geometry_layer(handle.get(), idx, &layer),
                   "layer=" + std::to_string(idx) + "; the model has 6");
  }
}

TEST(Gemma4C, EveryNullHandleIsAStatusWithItsName) {
  const auto args = sized<attune_gemma4_args>();
  const int32_t counts[1] = {1};
  int32_t number = 0;
  size_t bytes = 0;
  expect_refusal(attune_gemma4_geometry_from_file("x", nullptr), "geometry=NULL");
  expect_refusal(attune_gemma4_geometry_from_json("{}", nullptr), "geometry=NULL");
  attune_gemma4_geometry* geometry = nullptr;
  expect_refusal(attune_gemma4_geometry_from_file(nullptr, &geometry), "path=NULL");
  expect_refusal(attune_gemma4_geometry_from_json(nullptr, &geometry), "text=NULL");
  auto info = sized<attune_gemma4_info>();
  auto layer = sized<attune_gemma4_layer>();
  expect_refusal(attune_gemma4_geometry_info(nullptr, &info), "geometry=NULL");
  expect_refusal(attune_gemma4_geometry_layer(nullptr, 0, &layer), "geometry=NULL");
  const GeometryHandle tiny = geometry_of("gemma4-tiny");
  expect_refusal(attune_gemma4_geometry_info(tiny.get(), nullptr), "info=NULL");
  expect_refusal(attune_gemma4_geometry_layer(tiny.get(), 0, nullptr), "to=NULL");

  attune_gemma4_model* model = nullptr;
  expect_refusal(attune_gemma4_model_create(nullptr, tiny.get(), nullptr, &model), "engine=NULL");
  expect_refusal(attune_gemma4_model_create(nullptr, tiny.get(), nullptr, nullptr), "model=NULL");
  expect_refusal(attune_gemma4_model_set_norm_weights(nullptr, 0, nullptr, 0, nullptr, 0),
                 "attune_gemma4_model_set_norm_weights got a null pointer: model=NULL");
  expect_refusal(attune_gemma4_model_cache_bytes(nullptr, &bytes), "model=NULL");
  expect_refusal(attune_gemma4_model_workspace_bytes(nullptr, &bytes), "model=NULL");
  expect_refusal(attune_gemma4_model_free_pages(nullptr, &number), "model=NULL");
  expect_refusal(attune_gemma4_model_explain(nullptr, nullptr, 0, &bytes), "model=NULL");

  attune_gemma4_session* session = nullptr;
  expect_refusal(attune_gemma4_session_open(nullptr, &session), "model=NULL");
  expect_refusal(attune_gemma4_session_open(nullptr, nullptr), "session=NULL");
  expect_refusal(attune_gemma4_session_prefill(nullptr, 0, 1, &args, nullptr), "session=NULL");
  expect_refusal(attune_gemma4_session_decode(nullptr, 0, &args, nullptr), "session=NULL");
  expect_refusal(attune_gemma4_session_verify(nullptr, 0, 2, &args, nullptr), "session=NULL");
  expect_refusal(attune_gemma4_session_begin_step(nullptr, 1, nullptr), "session=NULL");
  expect_refusal(attune_gemma4_session_commit(nullptr, 1, nullptr), "session=NULL");
  expect_refusal(attune_gemma4_session_rollback(nullptr, 1, nullptr), "session=NULL");
  expect_refusal(attune_gemma4_session_reserve(nullptr, 1, nullptr), "session=NULL");
  expect_refusal(attune_gemma4_session_length(nullptr, &number), "session=NULL");
  expect_refusal(attune_gemma4_session_largest_step(nullptr, &number), "session=NULL");
  expect_refusal(attune_gemma4_session_cache_bytes(nullptr, &bytes), "session=NULL");

  attune_gemma4_batch* batch = nullptr;
  expect_refusal(attune_gemma4_batch_create(nullptr, 1, &batch), "model=NULL");
  expect_refusal(attune_gemma4_batch_create(nullptr, 1, nullptr), "batch=NULL");
  expect_refusal(attune_gemma4_batch_assign(nullptr, nullptr, 0, nullptr), "batch=NULL");
  expect_refusal(attune_gemma4_batch_prefill(nullptr, 0, 1, &args, nullptr), "batch=NULL");
  expect_refusal(attune_gemma4_batch_decode(nullptr, 0, &args, nullptr), "batch=NULL");
  expect_refusal(attune_gemma4_batch_verify(nullptr, 0, 2, &args, nullptr), "batch=NULL");
  expect_refusal(attune_gemma4_batch_begin_step(nullptr, 1, nullptr), "batch=NULL");
  expect_refusal(attune_gemma4_batch_commit(nullptr, counts, 1, nullptr), "batch=NULL");
  expect_refusal(attune_gemma4_batch_largest_step(nullptr, &number), "batch=NULL");
  expect_refusal(attune_gemma4_batch_workspace_bytes(nullptr, &bytes), "batch=NULL");

  attune_gemma4_geometry_destroy(nullptr);
  attune_gemma4_model_destroy(nullptr);
  attune_gemma4_session_close(nullptr);
  attune_gemma4_batch_destroy(nullptr);
}

// Handles whose objects are empty, as a moved-from C++ object is.
TEST(Gemma4C, EveryCallChecksItsPointers) {
  attune_gemma4_session session{};
  attune_gemma4_batch batch{};
  attune_gemma4_session* one = nullptr;
  expect_refusal(attune_gemma4_session_decode(&session, 0, nullptr, nullptr),
                 "attune_gemma4_session_decode got a null pointer: args=NULL");
  expect_refusal(attune_gemma4_session_prefill(&session, 0, 1, nullptr, nullptr), "args=NULL");
  expect_refusal(attune_gemma4_session_verify(&session, 0, 2, nullptr, nullptr), "args=NULL");
  expect_refusal(attune_gemma4_session_length(&session, nullptr), "num_tokens=NULL");
  expect_refusal(attune_gemma4_session_cache_bytes(&session, nullptr), "bytes=NULL");
  expect_refusal(attune_gemma4_session_commit(&session, 1, nullptr), "this session is empty");
  expect_refusal(attune_gemma4_batch_decode(&batch, 0, nullptr, nullptr), "args=NULL");
  expect_refusal(attune_gemma4_batch_prefill(&batch, 0, 1, nullptr, nullptr), "args=NULL");
  expect_refusal(attune_gemma4_batch_verify(&batch, 0, 2, nullptr, nullptr), "args=NULL");
  expect_refusal(attune_gemma4_batch_assign(&batch, nullptr, 1, nullptr), "sessions=NULL");
  expect_refusal(attune_gemma4_batch_assign(&batch, &one, 1, nullptr), "sessions[0]=NULL");
  expect_refusal(attune_gemma4_batch_commit(&batch, nullptr, 1, nullptr), "num_tokens=NULL");
  expect_refusal(attune_gemma4_batch_commit(&batch, nullptr, 0, nullptr), "this batch is empty");
}

TEST(Gemma4C, RefusesArgumentsOfASizeOrWithFieldsThatItDoesNotKnow) {
  attune_gemma4_session session{};
  struct NewerArgs {
    attune_gemma4_args known;
    std::uint64_t later;
  } args{};
  for (const size_t size : {size_t{0}, sizeof(args.known) - 8, ~size_t{0}}) {
    args.known.struct_size = size;
    expect_refusal(attune_gemma4_session_decode(&session, 0, &args.known, nullptr),
                   "set struct_size");
  }
  args.known.struct_size = sizeof(args);
  expect_refusal(attune_gemma4_session_decode(&session, 0, &args.known, nullptr),
                 "this session is empty");
  args.later = 1;
  expect_refusal(attune_gemma4_session_decode(&session, 0, &args.known, nullptr),
                 "use a newer library");
}

class Gemma4CModel : public ServingTest {
 protected:
  void expect_refused(const attune_gemma4_options& given, const std::string& part) {
    auto* model = reinterpret_cast<attune_gemma4_model*>(0x1);
    expect_refusal(attune_gemma4_model_create(&engine, tiny.get(), &given, &model), part);
    EXPECT_EQ(model, nullptr);
    EXPECT_EQ(engine.num_owners, 1);
  }
  attune_engine engine{Engine(options, device())};
  const GeometryHandle tiny = geometry_of("gemma4-tiny");
};

TEST_F(Gemma4CModel, RefusesOptionsByName) {
  const auto with = [](auto attune_gemma4_options::*field, auto value) {
    auto given = sized<attune_gemma4_options>();
    given.max_tokens = 64;
    given.*field = value;
    return given;
  };
  expect_refused(with(&attune_gemma4_options::struct_size, 8), "struct_size=8");
  expect_refused(with(&attune_gemma4_options::max_tokens, -1), "max_tokens=-1");
  expect_refused(with(&attune_gemma4_options::max_tokens, 4097), "max_tokens=4097");
  expect_refused(with(&attune_gemma4_options::max_sequences, -2), "max_sequences=-2");
  expect_refused(with(&attune_gemma4_options::global_layout, 4), "global_layout=4");
  expect_refused(with(&attune_gemma4_options::num_batch_sizes, size_t{1}), "batch_sizes=NULL");
  auto given = sized<attune_gemma4_options>();
  given.max_tokens = 64;
  given.max_verify = 17;
  expect_refused(given, "max_verify=17");
  given.max_verify = 0;
  const int32_t sizes[] = {1, 3};
  given.batch_sizes = sizes;
  given.num_batch_sizes = 2;
  expect_refused(given, "batch_sizes=3");
}

TEST_F(Gemma4CModel, TheDefaultsAreThoseOfTheCppOptions) {
  // The tiny model has 4096 positions, the default is 8192 tokens.
  attune_gemma4_model* model = nullptr;
  expect_refusal(attune_gemma4_model_create(&engine, tiny.get(), nullptr, &model),
                 "max_tokens=8192");
  expect_refused(sized<attune_gemma4_options>(), "max_tokens=8192");
  expect_refusal(attune_gemma4_model_create(&engine, nullptr, nullptr, &model), "geometry=NULL");
}

TEST_F(Gemma4CModel, KernelsThatCannotBeMadeAreNoDevice) {
  auto given = sized<attune_gemma4_options>();
  given.max_tokens = 64;
  attune_gemma4_model* model = nullptr;
  EXPECT_EQ(attune_gemma4_model_create(&engine, tiny.get(), &given, &model), ATTUNE_NO_DEVICE);
  EXPECT_TRUE(contains(attune_last_error(), options.nvrtc_path));
  EXPECT_EQ(engine.num_owners, 1);
}

}  // namespace
}  // namespace attune
