// Programs in the place of attune-measure-worker that do not start, and the real one's limits.
#include "tuner/isolated_measure.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "common/error.h"
#include "jit/host/host_info.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

const Problem kProblem = Problem::parse("decode/b1/q1/kv1-16/h1x1/d64/contiguous/bf16");
const Candidate kCandidate = Candidate::parse("splitkv/m16n32s2w2/x1");

template <typename Work>
std::string unavailable(const Work& work) {
  try {
    work();
  } catch (const DeviceUnavailable& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

class IsolatedMeasureTest : public testing::Test {
 protected:
  IsolatedMeasure measure(const std::filesystem::path& program) const {
    return {{.worker_path = program.string(), .device = "host"}, host_device_info()};
  }
  // A script that notes each of its starts.
  std::filesystem::path script(const std::string& text) const {
    return folder.write_script("worker",
                               "echo >> " + (folder.path() / "starts").string() + "\n" + text);
  }
  int num_starts() const {
    std::ifstream file(folder.path() / "starts");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }
  VerifyOutcome verify(IsolatedMeasure& measure, const Stop& stop = {}) const {
    measure.open({kProblem, 1, &binary});
    return measure.verify(kCandidate, binary, stop);
  }
  static void expect_words(const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words) {
      EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
    }
  }

  // No code, and says so.
  static Binary empty_binary() {
    Binary binary;
    binary.arch = "host";
    binary.content = digest_of(binary.cubin);
    return binary;
  }

  TemporaryFolder folder;
  const Binary binary = empty_binary();
};

TEST_F(IsolatedMeasureTest, RefusesAMissingProgramAtOnce) {
  const std::string missing = (folder.path() / "nowhere").string();
  expect_words(unavailable([&] { measure(missing); }), {"attune-measure-worker", missing.c_str()});
  expect_words(unavailable([&] { measure(folder.path()); }), {"cannot be run"});
  const auto text = folder.write("text", "no program");  // not executable
  expect_words(unavailable([&] { measure(text); }), {"cannot be run", text.c_str()});
}

TEST_F(IsolatedMeasureTest, GivesUpAfterTwoStartsInARow) {
  IsolatedMeasure dies = measure(script("exit 3"));
  expect_words(unavailable([&] { verify(dies); }),
               {"the measure worker does not start", "program=", "device=host", "exit status 3"});
  EXPECT_EQ(num_starts(), 2);
}

TEST_F(IsolatedMeasureTest, NamesWhatCannotBeExecuted) {
  const auto text = folder.write("text", "no program");
  std::filesystem::permissions(text, std::filesystem::perms::owner_all);
  IsolatedMeasure no_program = measure(text);
  expect_words(unavailable([&] { verify(no_program); }), {"cannot start a worker", text.c_str()});
}

TEST_F(IsolatedMeasureTest, GivesUpOnAProgramThatTalksNonsense) {
  IsolatedMeasure talks = measure(script("echo this is no message; sleep 1000"));
  expect_words(unavailable([&] { verify(talks); }), {"cannot read a worker's message"});
  EXPECT_EQ(num_starts(), 2);
}

TEST_F(IsolatedMeasureTest, StopsWhileAWorkerStarts) {
  IsolatedMeasure hangs = measure(script("sleep 1000"));
  const auto begin = std::chrono::steady_clock::now();
  int polls = 0;
  EXPECT_TRUE(std::holds_alternative<Dropped>(verify(hangs, [&] { return ++polls > 2; })));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(num_starts(), 1);
}

TEST_F(IsolatedMeasureTest, StartsNothingBeforeItIsAsked) {
  IsolatedMeasure idle = measure(script("exit 3"));
  idle.open({kProblem, 1, &binary});
  idle.close();
  EXPECT_EQ(num_starts(), 0);
}

TEST_F(IsolatedMeasureTest, SaysThatTheWorkerSeesAnotherDevice) {
  DeviceInfo other = host_device_info();
  other.num_sms += 1;
  IsolatedMeasureOptions options{.device = "host"};
  if (const char* path = std::getenv("ATTUNE_MEASURE_WORKER")) options.worker_path = path;
  IsolatedMeasure measure(options, other);
  expect_words(unavailable([&] { verify(measure); }), {"another device", "tuner=", "worker="});
  EXPECT_EQ(measure.num_started(), 2);
}

// The measuring kernels of this unit are no code.
TEST_F(IsolatedMeasureTest, AUnitThatCannotBePreparedIsAnErrorOfTheUnit) {
  IsolatedMeasureOptions options{.device = "host"};
  if (const char* path = std::getenv("ATTUNE_MEASURE_WORKER")) options.worker_path = path;
  IsolatedMeasure measure(options, host_device_info());
  measure.open({kProblem, 1, &binary});
  EXPECT_THROW(measure.time(kCandidate, binary, 16, {}, {}), UnitError);
  // A candidate that is no code costs itself; its process is as good as before.
  const auto outcome = measure.verify(kCandidate, binary, {});
  ASSERT_TRUE(std::holds_alternative<Rejection>(outcome));
  EXPECT_EQ(std::get<Rejection>(outcome).reason, RejectReason::kLaunch);
  const int num_started = measure.num_started();
  measure.verify(kCandidate, binary, {});
  EXPECT_EQ(measure.num_started(), num_started);
}

}  // namespace
}  // namespace attune
