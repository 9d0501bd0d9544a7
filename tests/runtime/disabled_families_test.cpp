// Options::disabled_families on a fake device.
#include <gtest/gtest.h>

#include "tests/runtime/serving_fixture.h"

namespace attune {
namespace {

class DisabledFamiliesTest : public ServingTest {
 protected:
  DisabledFamiliesTest() {
    options.disabled_families = {"splitkv"};
    options.on_miss = OnMiss::kError;
  }
};

TEST_F(DisabledFamiliesTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  options.disabled_families = {"splitkv", "none"};
  const std::string message = message_of<InvalidArgument>([&] { engine(); });
  EXPECT_TRUE(contains(message, "'none'"));
  EXPECT_TRUE(contains(message, "the families are splitkv"));
}

TEST_F(DisabledFamiliesTest, AWinnerOfAFamilyThatIsOffIsAMiss) {
  store(kDecode);
  EXPECT_TRUE(contains(message_of<NotPrepared>([&] { engine()->prepare(kDecode); }),
                       "disabled_families=splitkv"));
  options.disabled_families.clear();
  EXPECT_EQ(engine()->prepare(kDecode).served(), Served::kExact);
}

TEST_F(DisabledFamiliesTest, AProblemOfFamiliesThatAreOffIsRefusedWithTheirNames) {
  options.on_miss = OnMiss::kDefault;
  options.disabled_families = {"splitkv", "oneround", "swapab"};
  const std::string message = message_of<InvalidArgument>([&] { engine()->prepare(kDecode); });
  EXPECT_TRUE(contains(message, "switched off"));
  EXPECT_TRUE(contains(message, "disabled_families=splitkv,oneround,swapab"));
}

TEST_F(DisabledFamiliesTest, TuningLeavesThemOutToo) {
  options.disabled_families = {"splitkv", "oneround", "swapab"};
  options.on_miss = OnMiss::kTune;  // without NVRTC it cannot even begin
  EXPECT_THROW(engine()->prepare(kDecode), InvalidArgument);
}

}  // namespace
}  // namespace attune
