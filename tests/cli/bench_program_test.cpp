// `attune bench` of a whole model, on the CPU.
#include "tests/cli/host_program.h"
#include "tests/cli/tiny_models.h"

namespace attune {
namespace {

class ModelBenchProgram : public HostProgramTest {
 protected:
  Finished bench(std::vector<std::string> more) {
    const std::string config = write_two_layers(folder_.path()).string();
    std::vector<std::string> arguments = {"bench", "--random-weights", config,      "--device",
                                          "host",  "--context",        "8",         "--tokens",
                                          "1,2",   "--json",           cache_flag()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

// q, k, v, o of 4 and 2 heads of 64 and of 4 and 1 heads of 128, three matrices of the MLP and the
// head; norms and scalars.
constexpr int kRowsOf64 = (256 + 128 + 128 + 96 + 96) + (512 + 128 + 128 + 96 + 96) + 320;
constexpr int kVectors = 2 * 4 * 64 + 2 * 64 + 2 * 128 + 2 + 64;

TEST_F(ModelBenchProgram, TimesTheStepsOfAModelOfRandomWeights) {
  const Finished finished = bench({});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const auto json = finished.json();
  // o_proj reads 256 and 512 columns, down_proj 96.
  EXPECT_EQ(json["weight_bytes"], 2 * (64 * (kRowsOf64 + 256 + 512 + 96 + 96) + kVectors));
  ASSERT_EQ(json["points"].size(), 2U);
  for (int i = 0; i < 2; ++i) {
    const auto& point = json["points"][static_cast<std::size_t>(i)];
    EXPECT_EQ(point["context"], 8);
    EXPECT_EQ(point["tokens"], i + 1);
    EXPECT_GT(point["step_us"], 0);
    EXPECT_GT(point["floor_us"], 0);
  }
}

TEST_F(ModelBenchProgram, TimesPackedWeightsToo) {
  const Finished finished = bench({"--weights", "int4", "--invariant"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  // Panels of 256 columns, 144 bytes: o_proj of 512 columns has two.
  EXPECT_EQ(finished.json()["weight_bytes"],
            144 * (kRowsOf64 + 64 + 2 * 64 + 64 + 64) + 2 * kVectors);
}

}  // namespace
}  // namespace attune
