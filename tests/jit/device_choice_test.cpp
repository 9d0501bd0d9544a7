#include "jit/device_choice.h"

#include <string>

#include <gtest/gtest.h>

#include "common/error.h"

namespace attune {
namespace {

TEST(DeviceChoice, HasOneTextForm) {
  EXPECT_EQ(DeviceChoice{}.text(), "0");
  EXPECT_EQ(DeviceChoice{.ordinal = 7}.text(), "7");
  for (const char* text :
       {"0", "63", "host", "host+checks", "host+sanitizers", "host+debug", "host+checks+debug"}) {
    EXPECT_EQ(DeviceChoice::parse(text).text(), text);
  }
  EXPECT_FALSE(DeviceChoice::parse("3").host);
  EXPECT_EQ(DeviceChoice::parse("3").ordinal, 3);
  EXPECT_EQ(DeviceChoice::parse("host+checks").host->checks, HostChecks::kAccesses);
}

TEST(DeviceChoice, AWrongTextIsRefusedWithTheForms) {
  for (const char* text : {"", "-1", "1024", "0x1", "gpu", "hosts", "HOST", "host+", "host+check",
                           "host+debug+checks", "host "}) {
    try {
      DeviceChoice::parse(text);
      ADD_FAILURE() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("host+checks or host+sanitizers"), std::string::npos)
          << error.what();
    }
  }
}

TEST(DeviceChoice, OpensTheHostDeviceWithItsTarget) {
  const auto device = open_device(DeviceChoice::parse("host+checks"));
  EXPECT_EQ(device->info().arch, "host+checks");
}

TEST(DeviceChoice, TheHostWithSanitizersNeedsAProgramThatHasThem) {
  const DeviceChoice choice = DeviceChoice::parse("host+sanitizers");
#ifdef __SANITIZE_ADDRESS__
  EXPECT_EQ(open_device(choice)->info().arch, "host+sanitizers");
#else
  EXPECT_THROW(open_device(choice), DeviceUnavailable);
#endif
}

}  // namespace
}  // namespace attune
