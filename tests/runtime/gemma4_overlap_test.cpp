// Which launches of a Gemma 4 step may start before the one in front ends.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/gemma4_fake.h"

namespace attune {
namespace {

class Gemma4OverlapTest : public Gemma4FakeTest, public ::testing::WithParamInterface<KvLayout> {
 protected:
  struct Launched {
    std::string symbol;
    bool programmatic;
    int overlap;  // of attention
  };
  bool is(const Launched& one, const char* what) const { return one.symbol.starts_with(what); }

  // What `body` launches.
  template <typename Body>
  std::vector<Launched> launched_by(const Body& body) {
    std::vector<Launched> launched;
    auto& fake = dynamic_cast<FakeDevice&>(device());
    fake.on_launch = [&](const Kernel& kernel, const KernelLaunch& shape, const void* params) {
      const std::string& symbol = FakeDevice::symbol_of(kernel);
      const bool is_attention = !symbol.starts_with("prologue_") && symbol != "write_state";
      launched.push_back({symbol, shape.programmatic,
                          is_attention ? static_cast<const AttentionParams*>(params)->overlap : 0});
    };
    body();
    fake.on_launch = nullptr;
    return launched;
  }
};

// Attention reads lengths, pages and older keys early, so what writes them is launched in plain
// stream order, and in front of attention is a prologue, which waits for it.
TEST_P(Gemma4OverlapTest, AttentionIsLaunchedEarlyBehindItsPrologueAlone) {
  const auto model = make_small(GetParam(), 32);
  Gemma4Session session = model->open_session();
  const auto args_of = [&](int layer) {
    Gemma4LayerArgs made = args(layer < 2);
    if (layer == 1 && is_unified(GetParam())) made.v = 0;
    return made;
  };
  const auto launched = launched_by([&] {
    for (int layer = 0; layer < 4; ++layer) session.prefill(layer, 40, args_of(layer), nullptr);
    session.commit(40, nullptr);
    for (int layer = 0; layer < 4; ++layer) session.verify(layer, 4, args_of(layer), nullptr);
    session.commit(2, nullptr);
    for (int layer = 0; layer < 4; ++layer) session.decode(layer, args_of(layer), nullptr);
    session.commit(1, nullptr);
  });
  int num_steps = 0;
  int num_writes = 0;
  for (std::size_t i = 0; i < launched.size(); ++i) {
    const Launched& one = launched[i];
    if (is(one, "write_state")) {
      ++num_writes;
      EXPECT_FALSE(one.programmatic);
      continue;
    }
    EXPECT_TRUE(one.programmatic) << one.symbol;
    if (is(one, "prologue_")) continue;
    EXPECT_EQ(one.overlap, 1) << one.symbol;
    if (is(one, "combine_")) continue;
    ++num_steps;
    ASSERT_GT(i, 0u);
    EXPECT_TRUE(is(launched[i - 1], "prologue_")) << launched[i - 1].symbol;
  }
  EXPECT_EQ(num_steps, 3 * 4);
  EXPECT_GE(num_writes, 3);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Gemma4OverlapTest, ::testing::ValuesIn(kGlobalLayouts),
                         name_of_layout);

}  // namespace
}  // namespace attune
