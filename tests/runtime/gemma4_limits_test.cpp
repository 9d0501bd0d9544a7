// What the attention of a Gemma 4 model refuses, and that nothing is lost by it.
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/gemma4_fake.h"

namespace attune {
namespace {

using Gemma4LimitsTest = Gemma4FakeTest;

TEST_F(Gemma4LimitsTest, ABadOptionIsNamedWithWhatIsAllowed) {
  const Gemma4Geometry geometry = small_geometry(KvLayout::kContiguous);
  const auto expect = [&](auto change, const std::string& name, const std::string& allowed) {
    Gemma4Options options = small_options(KvLayout::kContiguous);
    change(&options);
    expect_refusal([&] { Gemma4Attention(engine(), geometry, options); }, {name, allowed});
  };
  expect([](Gemma4Options* o) { o->max_tokens = 4097; }, "max_tokens=4097", "4096 positions");
  expect([](Gemma4Options* o) { o->max_tokens = 0; }, "max_tokens=0", "1 to");
  expect([](Gemma4Options* o) { o->max_sequences = 0; }, "max_sequences=0", "1 to 65535");
  expect([](Gemma4Options* o) { o->max_prefill = 0; }, "max_prefill=0", "1 to 65536");
  expect([](Gemma4Options* o) { o->max_verify = 17; }, "max_verify=17", "1 to 16");
  expect([](Gemma4Options* o) { o->batch_sizes = {2}; }, "batch_sizes=2", "1 to max_sequences");
  expect([](Gemma4Options* o) { o->global_layout = KvLayout::kRing; }, "global_layout=ring",
         "no ring");
  expect([](Gemma4Options* o) { o->global_layout = KvLayout::kUnified; }, "global_layout=unified",
         "attention_k_eq_v");
  for (const int size : {0, -16, 8, 48, 512}) {
    expect([&](Gemma4Options* o) { o->global_layout = KvLayout::kPaged, o->page_size = size; },
           "page_size=" + std::to_string(size), "16, 32, 64, 128 or 256");
  }
}

TEST_F(Gemma4LimitsTest, StepsAreRefusedByTheirLimits) {
  const auto model = make_small();
  Gemma4Session session = model->open_session();
  const auto refuse = [&](auto body, const std::vector<std::string>& parts) {
    expect_refusal(body, parts);
    EXPECT_EQ(session.length(), 0);
    expect_refusal([&] { session.commit(0, nullptr); }, {"there is no step to commit"});
  };
  refuse([&] { session.prefill(0, 41, args(), nullptr); }, {"num_tokens=41", "1 to 40"});
  refuse([&] { session.prefill(0, 0, args(), nullptr); }, {"num_tokens=0", "1 to 40"});
  refuse([&] { session.verify(0, 6, args(), nullptr); }, {"num_tokens=6", "1 to 5"});
  refuse([&] { session.begin_step(41, nullptr); }, {"num_tokens=41", "at most 40"});
  refuse([&] { session.decode(4, args(), nullptr); }, {"layer=4", "the model has 4"});
  refuse([&] { session.decode(-1, args(), nullptr); }, {"layer=-1", "the model has 4"});
  for (int i = 0; i < 7; ++i) prefill(session, 40, 40);
  EXPECT_EQ(session.largest_step(), 20);
  expect_refusal([&] { session.prefill(0, 21, args(), nullptr); },
                 {"num_tokens=21", "length=280", "largest=20", "max_tokens=300", "is full"});
  prefill(session, 20, 20);
  EXPECT_EQ(session.largest_step(), 0);
  expect_refusal([&] { session.decode(0, args(), nullptr); }, {"largest=0", "roll back"});
}

TEST_F(Gemma4LimitsTest, LayersOfAStepHaveTheSameNumberOfTokens) {
  const auto model = make_small();
  Gemma4Session session = model->open_session();
  session.prefill(0, 7, args(), nullptr);
  expect_refusal([&] { session.prefill(1, 8, args(), nullptr); },
                 {"num_tokens=8", "open_tokens=7"});
  expect_refusal([&] { session.begin_step(7, nullptr); }, {"open already", "commit(0)"});
  expect_refusal([&] { session.commit(8, nullptr); }, {"num_tokens=8", "commit 0 to 7"});
  expect_refusal([&] { session.commit(-1, nullptr); }, {"num_tokens=-1", "commit 0 to 7"});
  expect_refusal([&] { session.rollback(0, nullptr); }, {"a step is open"});
  session.commit(3, nullptr);
  EXPECT_EQ(session.length(), 3);
  expect_refusal([&] { session.commit(1, nullptr); }, {"there is no step to commit", "length=3"});
}

TEST_F(Gemma4LimitsTest, PointersAndStridesAreCheckedWithTheLayer) {
  const auto model = make_small();
  Gemma4Session session = model->open_session();
  session.begin_step(1, nullptr);
  const auto& fake = static_cast<const FakeDevice&>(device());
  const int num_launches = fake.num_launches();
  const auto refuse = [&](int layer, auto change, const std::vector<std::string>& parts) {
    Gemma4LayerArgs bad = args(layer < 2);
    change(&bad);
    expect_refusal([&] { session.decode(layer, bad, nullptr); }, parts);
    EXPECT_EQ(fake.num_launches(), num_launches) << parts.front();
  };
  refuse(0, [](Gemma4LayerArgs* a) { a->q = 0; }, {"q=0", "layer 0", "pass a device pointer"});
  refuse(0, [](Gemma4LayerArgs* a) { a->k = 0; }, {"k=0"});
  refuse(1, [](Gemma4LayerArgs* a) { a->v = 0; }, {"v=0", "layer 1"});
  refuse(1, [](Gemma4LayerArgs* a) { a->out = 0; }, {"out=0"});
  refuse(0, [](Gemma4LayerArgs* a) { a->q = 0x10008; }, {"q=0x10008", "16 bytes"});
  refuse(2, [](Gemma4LayerArgs* a) { a->k = 0x30000; }, {"k=0x30000", "no such projection"});
  refuse(3, [](Gemma4LayerArgs* a) { a->v = 0x30000; }, {"v=0x30000", "layer 3"});
  refuse(0, [](Gemma4LayerArgs* a) { a->q_token_stride = 120; }, {"q_token_stride=120", "128"});
  refuse(0, [](Gemma4LayerArgs* a) { a->k_token_stride = 68; }, {"k_token_stride=68", "64"});
  refuse(0, [](Gemma4LayerArgs* a) { a->v_token_stride = -64; }, {"v_token_stride=-64"});
  refuse(0, [](Gemma4LayerArgs* a) { a->out_token_stride = 64; }, {"out_token_stride=64"});
  refuse(0, [](Gemma4LayerArgs* a) { a->lse = 0x50002; }, {"lse=0x50002"});
  // The good call opens the step, or goes on with it.
  session.decode(0, args(), nullptr);
  session.commit(1, nullptr);
  EXPECT_EQ(session.length(), 1);
}

TEST_F(Gemma4LimitsTest, NormWeightsAreNeededAndHaveTheirSize) {
  Gemma4Attention model(engine(), small_geometry(KvLayout::kContiguous),
                        small_options(KvLayout::kContiguous));
  Gemma4Session session = model.open_session();
  expect_refusal([&] { session.decode(0, args(), nullptr); }, {"norm weights are missing"});
  const std::vector<std::uint16_t> right(64), wrong(63);
  expect_refusal([&] { model.set_norm_weights(0, wrong, right); }, {"q_norm=63", "64"});
  expect_refusal([&] { model.set_norm_weights(0, right, {}); }, {"k_norm=0", "64"});
  expect_refusal([&] { model.set_norm_weights(2, right, right); }, {"k_norm=64", "k_norm 0"});
  expect_refusal([&] { model.set_norm_weights(4, right, right); }, {"layer=4"});
}

TEST_F(Gemma4LimitsTest, ARollbackEndsWhereTheRingsDo) {
  const auto model = make_small();
  Gemma4Session session = model->open_session();
  for (int i = 0; i < 5; ++i) prefill(session, 40, 40);
  // 128 rows hold positions from 72 on; a token at 95 sees 72.
  expect_refusal([&] { session.rollback(106, nullptr); },
                 {"num_tokens=106", "length=200", "ring_rows=128", "window=24", "at most 105"});
  expect_refusal([&] { session.rollback(201, nullptr); }, {"roll back 0 to 200"});
  session.rollback(105, nullptr);
  EXPECT_EQ(session.length(), 95);
  expect_refusal([&] { session.rollback(1, nullptr); }, {"at most 0 tokens, or all"});
  session.rollback(95, nullptr);
  EXPECT_EQ(session.length(), 0);
  // A sequence without tokens is as a new one.
  prefill(session, 40, 40);
  session.rollback(10, nullptr);
  EXPECT_EQ(session.length(), 30);
}

TEST_F(Gemma4LimitsTest, ASequenceNeedsAPlaceAndGivesItBack) {
  const auto model = make_small();
  Gemma4Session a = model->open_session(), b = model->open_session(), c = model->open_session();
  expect_refusal([&] { model->open_session(); }, {"max_sequences=3"});
  Gemma4Session moved = std::move(b);
  EXPECT_EQ(moved.length(), 0);
  expect_refusal([&] { b.length(); }, {"this session is empty"});
  moved = Gemma4Session();
  b = model->open_session();
  Gemma4Batch batch = model->make_batch(2);
  std::vector<Gemma4Session*> sessions = {&a, &b};
  batch.assign(sessions, nullptr);
  // Also out of a batch, which has to be assigned anew.
  a = Gemma4Session();
  expect_refusal([&] { batch.decode(0, args(), nullptr); }, {"closed"});
  a = model->open_session();
  expect_refusal([&] { batch.begin_step(1, nullptr); }, {"closed"});
  batch.assign(sessions, nullptr);
  batch.decode(0, args(), nullptr);
  const std::vector<int> one = {1, 1};
  batch.commit(one, nullptr);
  EXPECT_EQ(a.length() + b.length(), 2);
}

TEST_F(Gemma4LimitsTest, ABatchRefusesSessionsThatItCannotTake) {
  const auto model = make_small();
  const auto other = make_small();
  Gemma4Session a = model->open_session(), b = model->open_session();
  Gemma4Session foreign = other->open_session(), empty;
  Gemma4Batch batch = model->make_batch(2);
  const auto refuse = [&](std::vector<Gemma4Session*> sessions, const std::string& part) {
    expect_refusal([&] { batch.assign(sessions, nullptr); }, {part});
  };
  expect_refusal([&] { model->make_batch(3); }, {"size=3", "1, 2"});
  expect_refusal([&] { batch.decode(0, args(), nullptr); }, {"no sessions"});
  refuse({&a}, "sessions=1 size=2");
  refuse({&a, &a}, "twice");
  refuse({&a, nullptr}, "session number 1");
  refuse({&a, &empty}, "session number 1");
  refuse({&foreign, &a}, "session number 0");
  a.decode(0, args(), nullptr);
  refuse({&b, &a}, "open_tokens=1");
  a.commit(1, nullptr);
  std::vector<Gemma4Session*> sessions = {&b, &a};
  batch.assign(sessions, nullptr);
  batch.verify(0, 3, args(), nullptr);
  // All or none.
  const std::vector<int> too_many = {1, 4}, too_few = {1}, right = {3, 0};
  expect_refusal([&] { batch.commit(too_many, nullptr); }, {"num_tokens=4", "0 to 3"});
  expect_refusal([&] { batch.commit(too_few, nullptr); }, {"num_tokens=1 sessions=2"});
  EXPECT_EQ(b.length(), 0);
  batch.commit(right, nullptr);
  EXPECT_EQ(b.length(), 3);
  EXPECT_EQ(a.length(), 1);
}

TEST_F(Gemma4LimitsTest, LengthsDoNotChangeInsideACapture) {
  const auto model = make_small(KvLayout::kPaged, 12);
  Gemma4Session session = model->open_session();
  const Stream stream = device().create_stream();
  const auto captured = [&](const auto& body) { device().capture(stream.get(), body); };
  prefill(session, 14, 14);
  const auto run_layers = [&] {
    for (int layer = 0; layer < 4; ++layer) {
      session.verify(layer, 5, args(layer < 2), stream.get());
    }
  };
  // The step needs a page that nobody gave it in front of the capture. Nothing is lost.
  captured([&] { expect_refusal(run_layers, {"inside a capture"}); });
  EXPECT_EQ(session.length(), 14);
  session.begin_step(5, stream.get());
  captured([&] {
    run_layers();
    expect_refusal([&] { session.commit(5, stream.get()); }, {"inside a capture", "commit(0)"});
  });
  session.commit(0, stream.get());
  captured([&] {
    expect_refusal([&] { session.rollback(1, stream.get()); }, {"inside a capture"});
    expect_refusal([&] { session.reserve(40, stream.get()); }, {"inside a capture"});
  });
  // With its pages reserved a capture needs no begin_step.
  session.reserve(5, stream.get());
  captured(run_layers);
  session.commit(0, stream.get());
  session.rollback(14, stream.get());
}

TEST_F(Gemma4LimitsTest, PagesRunOutWithoutLosingAnything) {
  const auto model = make_small(KvLayout::kPaged, 5);
  Gemma4Session a = model->open_session(), b = model->open_session();
  prefill(a, 40, 40);
  EXPECT_EQ(model->free_pages(), 2);
  expect_refusal([&] { b.begin_step(40, nullptr); },
                 {"needed=3 free=2 held=0", "roll back", "num_pages"});
  prefill(b, 32, 20);
  EXPECT_EQ(model->free_pages(), 0);
  prefill(a, 8, 8);  // its last page has room
  expect_refusal([&] { a.decode(0, args(), nullptr); }, {"no free pages"});
  EXPECT_EQ(a.length(), 48);
  b.rollback(10, nullptr);
  EXPECT_EQ(model->free_pages(), 1);
  prefill(a, 1, 1);
  a = Gemma4Session();
  EXPECT_EQ(model->free_pages(), 4);
}

// A step of a batch that is refused for one sequence is as if it had not been asked for.
TEST_F(Gemma4LimitsTest, ARefusedStepOfABatchCostsItsOtherSequencesNothing) {
  const auto model = make_small(KvLayout::kPaged, 14);
  Gemma4Session a = model->open_session(), b = model->open_session();
  for (int i = 0; i < 4; ++i) prefill(a, 40, 40);
  prefill(b, 40, 40);
  Gemma4Batch batch = model->make_batch(2);
  std::vector<Gemma4Session*> sessions = {&a, &b};
  batch.assign(sessions, nullptr);
  expect_refusal([&] { batch.begin_step(16, nullptr); }, {"no free pages"});
  // 160 tokens reach back to 32, whose window the ring of 128 rows holds: 105 may be cut.
  a.rollback(105, nullptr);
  EXPECT_EQ(a.length(), 55);
}

TEST_F(Gemma4LimitsTest, ReservedPagesAreThereForLaterSteps) {
  const auto model = make_small(KvLayout::kPaged, 4);
  Gemma4Session a = model->open_session();
  a.reserve(64, nullptr);
  EXPECT_EQ(model->free_pages(), 0);
  expect_refusal([&] { a.reserve(301, nullptr); }, {"reserve 0 to 300"});
  prefill(a, 40, 40);
  prefill(a, 24, 24);
  EXPECT_EQ(a.length(), 64);
}

TEST_F(Gemma4LimitsTest, AnInvariantModelTakesContextsThatAreNotWholePages) {
  for (const int page_size : {16, 64, 256}) {
    for (const int max_tokens : {257, 300, 1500}) {
      Gemma4Options options = small_options(KvLayout::kPaged);
      options.max_tokens = max_tokens;
      options.page_size = page_size;
      options.invariant = true;
      const auto model = make(small_geometry(KvLayout::kPaged), options);
      Gemma4Session session = model->open_session();
      for (int layer = 0; layer < 4; ++layer) {
        EXPECT_NO_THROW(session.decode(layer, args(layer < 2), nullptr))
            << page_size << " " << max_tokens;
      }
    }
  }
}

TEST_F(Gemma4LimitsTest, ABatchWithoutSessionsCommitsNothing) {
  const auto model = make_small();
  Gemma4Batch batch = model->make_batch(2);
  expect_refusal([&] { batch.commit({}, nullptr); }, {"sessions=0", "assign"});
}

// Each has lengths of its own in device memory: another's would be old.
TEST_F(Gemma4LimitsTest, AStepIsRunByWhoBeganIt) {
  const auto model = make_small();
  Gemma4Session session = model->open_session();
  Gemma4Batch batch = model->make_batch(1);
  std::vector<Gemma4Session*> sessions = {&session};
  const std::vector<int> one = {1};
  batch.assign(sessions, nullptr);
  session.begin_step(1, nullptr);
  expect_refusal([&] { batch.decode(0, args(), nullptr); }, {"another object has opened"});
  expect_refusal([&] { batch.commit(one, nullptr); }, {"another object has opened"});
  session.commit(1, nullptr);
  batch.begin_step(1, nullptr);
  expect_refusal([&] { session.decode(0, args(), nullptr); }, {"another object has opened"});
  expect_refusal([&] { session.commit(1, nullptr); }, {"another object has opened"});
  batch.commit(one, nullptr);
  EXPECT_EQ(session.length(), 2);
}

TEST_F(Gemma4LimitsTest, ARefusedBatchStepGivesItsPagesBack) {
  const auto model = make_small(KvLayout::kPaged, 4);
  Gemma4Session a = model->open_session(), b = model->open_session();
  prefill(a, 16, 16);
  prefill(b, 32, 32);
  Gemma4Batch batch = model->make_batch(2);
  std::vector<Gemma4Session*> sessions = {&a, &b};
  batch.assign(sessions, nullptr);
  EXPECT_EQ(model->free_pages(), 1);
  expect_refusal([&] { batch.begin_step(4, nullptr); }, {"no free pages"});
  EXPECT_EQ(model->free_pages(), 1);
  prefill(b, 4, 4);
  EXPECT_EQ(b.length(), 36);
}

// Two sequences on pages of 16 tokens, both about to need one more.
class Gemma4FaultTest : public Gemma4FakeTest {
 protected:
  void begin(int num_pages) {
    model = make_small(KvLayout::kPaged, num_pages);
    a.emplace(model->open_session());
    b.emplace(model->open_session());
    prefill(*a, 14, 14);
    prefill(*b, 30, 30);
    batch.emplace(model->make_batch(2));
    sessions = {&*a, &*b};
    batch->assign(sessions, nullptr);
  }
  // Whether a step of `b` that needs no page is recorded: no change of lengths or pages is left over.
  bool nothing_is_pending() {
    const Stream stream = device().create_stream();
    try {
      device().capture(stream.get(), [&] {
        for (int layer = 0; layer < 4; ++layer) b->decode(layer, args(layer < 2), stream.get());
      });
    } catch (const InvalidArgument& error) {
      ADD_FAILURE() << error.what();
      return false;
    }
    b->commit(0, nullptr);
    return true;
  }
  // The launch of that number from now on fails.
  void fail_launch(int number) {
    static_cast<FakeDevice&>(device()).on_launch = [number](const auto&...) mutable {
      if (--number == 0) throw CudaError("cannot launch", 1, "CUDA_ERROR", "");
    };
  }
  std::unique_ptr<Gemma4Attention> model;
  std::optional<Gemma4Session> a, b;
  std::optional<Gemma4Batch> batch;
  std::vector<Gemma4Session*> sessions;
};

TEST_F(Gemma4FaultTest, ABatchStepThatIsRefusedHalfWayLeavesNothingForTheNextFlush) {
  begin(4);
  b->begin_step(1, nullptr);  // its length is on the device
  b->commit(0, nullptr);
  EXPECT_EQ(model->free_pages(), 1);
  expect_refusal([&] { batch->begin_step(4, nullptr); }, {"no free pages"});
  EXPECT_EQ(model->free_pages(), 1);
  EXPECT_TRUE(nothing_is_pending());
}

TEST_F(Gemma4FaultTest, ABatchStepWhoseLaunchesFailIsAsIfItHadNotBeenAskedFor) {
  begin(6);
  const int num_free = model->free_pages();
  fail_launch(1);  // of the block table
  EXPECT_THROW(batch->begin_step(4, nullptr), CudaError);
  EXPECT_EQ(model->free_pages(), num_free);
  EXPECT_TRUE(nothing_is_pending());
  batch->begin_step(4, nullptr);
  EXPECT_EQ(model->free_pages(), num_free - 2);
  const std::vector<int> kept = {4, 2};
  batch->commit(kept, nullptr);
  EXPECT_EQ(a->length(), 18);
  EXPECT_EQ(b->length(), 32);
}

TEST_F(Gemma4FaultTest, AReserveThatFailsHoldsNoPages) {
  begin(8);
  const int num_free = model->free_pages();
  fail_launch(1);
  EXPECT_THROW(a->reserve(40, nullptr), CudaError);
  EXPECT_EQ(model->free_pages(), num_free);
  EXPECT_TRUE(nothing_is_pending());
}

TEST_F(Gemma4FaultTest, AnAssignThatFailsLeavesTheSequencesThatWereThere) {
  begin(8);
  Gemma4Session c = model->open_session();
  prefill(c, 5, 5);
  std::vector<Gemma4Session*> others = {&c, &*b};
  fail_launch(1);
  EXPECT_THROW(batch->assign(others, nullptr), CudaError);
  batch->begin_step(1, nullptr);
  const std::vector<int> one = {1, 1};
  batch->commit(one, nullptr);
  EXPECT_EQ(a->length(), 15);
  EXPECT_EQ(c.length(), 5);
}

TEST_F(Gemma4LimitsTest, ASessionMayCloseBeforeItsBatchCommits) {
  const auto model = make_small();
  Gemma4Session a = model->open_session(), b = model->open_session();
  Gemma4Batch batch = model->make_batch(2);
  std::vector<Gemma4Session*> sessions = {&a, &b};
  batch.assign(sessions, nullptr);
  batch.begin_step(3, nullptr);
  b = Gemma4Session();
  const std::vector<int> kept = {2, 3};
  batch.commit(kept, nullptr);
  EXPECT_EQ(a.length(), 2);
  expect_refusal([&] { batch.begin_step(1, nullptr); }, {"was closed"});
  b = model->open_session();
  sessions = {&a, &b};
  batch.assign(sessions, nullptr);
  batch.begin_step(1, nullptr);
}

TEST_F(Gemma4LimitsTest, NumbersThatMeanNothingAreRefused) {
  Gemma4Options options = small_options(KvLayout::kPaged);
  options.num_pages = -5;
  expect_refusal([&] { make(small_geometry(KvLayout::kPaged), options); }, {"num_pages=-5"});
  const auto model = make_small();
  Gemma4Session session = model->open_session();
  prefill(session, 8, 8);
  expect_refusal([&] { session.begin_step(std::numeric_limits<int>::max(), nullptr); },
                 {"length=8", "the sequence is full"});
  // Three pairs are none of the prologue's.
  Gemma4Geometry odd = small_geometry(KvLayout::kContiguous);
  for (LayerGeometry& layer : odd.layers) layer.rope.num_pairs = 3;
  expect_refusal([&] { make(odd, small_options(KvLayout::kContiguous)); }, {"num_pairs=3"});
}

}  // namespace
}  // namespace attune
