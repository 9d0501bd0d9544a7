// The whole tiny model on the host device.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "jit/host_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_kind_cases.h"
#include "tests/runtime/gemma4_model_cases.h"
#include "tests/support/forwarding_device.h"

namespace attune {
namespace {

Gemma4Bench bench() {
  Options options;
  options.device = "host";
  options.cache_path = gemma4_test_cache();
  return Gemma4Bench(options, open_host_device({}));
}

TEST(Gemma4ModelHost, GivesTheGoldenLogits) {
  Gemma4Bench on = bench();
  expect_golden_logits(on.engine);
}

TEST(Gemma4ModelHost, VerifyGivesTheBitsOfDecode) {
  Gemma4Bench on = bench();
  expect_verify_is_decode(on.engine, 24);
}

TEST(Gemma4ModelHost, TapsAreTheStreamsAndChangeNothing) {
  Gemma4Bench on = bench();
  expect_taps(on.engine);
}

TEST(Gemma4ModelHost, PerLayerInputsAndSharedCachesAreTheirFormulas) {
  Gemma4Bench on = bench();
  expect_kind_logits(on.engine, KindModel(served_config(tiny_dense_config())), 40);
  expect_kind_logits(on.engine, KindModel(served_config(tiny_per_layer_config())), 40);
}

TEST(Gemma4ModelHost, PerLayerInputsAreLossless) {
  Gemma4Bench on = bench();
  const KindModel kind(served_config(tiny_per_layer_config()));
  expect_kind_lossless(on.engine, kind, LinearWeights::kBf16, 8);
  expect_kind_lossless(on.engine, kind, LinearWeights::kInt4, 5);
}

TEST(Gemma4ModelHost, ExpertsAreTheirFormulas) {
  Gemma4Bench on = bench();
  expect_kind_logits(on.engine, KindModel(served_config(tiny_experts_config()), kDecidedSeed),
                     kDecidedTokens);
}

TEST(Gemma4ModelHost, ExpertsAreLossless) {
  Gemma4Bench on = bench();
  const KindModel kind(served_config(tiny_experts_config()), kDecidedSeed);
  expect_kind_lossless(on.engine, kind, LinearWeights::kBf16, 6);
  expect_kind_lossless(on.engine, kind, LinearWeights::kInt4, 4);
}

// Page-locked memory is read when the stream gets there, here in front of the next launch.
class PageLockingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::span<const std::byte> locked;
  int num_late_copies = 0;

  void copy_to_device(DevicePtr to, std::span<const std::byte> from, StreamHandle stream) override {
    const bool is_locked =
        from.data() >= locked.data() && from.data() < locked.data() + locked.size();
    if (!is_locked) return ForwardingDevice::copy_to_device(to, from, stream);
    ++num_late_copies;
    late_ = [=, this] { ForwardingDevice::copy_to_device(to, from, stream); };
  }
  void launch(const Graph& graph, StreamHandle stream) override {
    ForwardingDevice::launch(graph, stream);
  }
  void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
              StreamHandle stream) override {
    if (const auto late = std::exchange(late_, nullptr)) late();
    ForwardingDevice::launch(kernel, shape, params, stream);
  }

 private:
  std::function<void()> late_;
};

TEST(Gemma4ModelHost, IdsInPageLockedMemoryAreTheCallersAgainAtOnce) {
  Options options;
  options.device = "host";
  options.cache_path = gemma4_test_cache();
  auto locking = std::make_unique<PageLockingDevice>(open_host_device({}));
  PageLockingDevice& device = *locking;
  Engine engine(options, std::move(locking));
  Gemma4Model model = TinyModel().on(engine);
  Gemma4Session session = model.open_session();
  std::vector<int> ids = {2, 30, 77, 4};
  const std::vector<float> expected = verify(model, session, ids, 0);

  device.locked = std::as_bytes(std::span(ids));
  model.set_tokens(ids, nullptr);
  std::fill(ids.begin(), ids.end(), 9);
  model.verify(session, 4, nullptr);
  session.commit(0, nullptr);
  EXPECT_EQ(read_logits(model, 4), expected);
  EXPECT_EQ(device.num_late_copies, 0);
}

}  // namespace
}  // namespace attune
