// Models of any size on a device that has no memory, with a compiler that compiles nothing.
#pragma once

#include <sys/mman.h>

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/gemma4_bench.h"
#include "tests/support/fake_device.h"
#include "tests/support/temporary_folder.h"

namespace attune {

// Answers as a compiler does, with code that only a fake device takes.
constexpr const char* kCompilerScript = R"(
object=
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then object=$2; fi
  shift
done
if [ -n "$object" ]; then
  echo code >"$object"
else
  echo '#define __GNUC__ 12'
  echo '#define __GNUC_MINOR__ 2'
  echo '#define __GNUC_PATCHLEVEL__ 0'
fi
)";

// Takes address space and no memory: the caches of real models fit.
class RoomyDevice : public FakeDevice {
 public:
  RoomyDevice() : FakeDevice(info_of_host()) {}
  DeviceMem allocate(std::size_t bytes) override {
    if (bytes < kSmall) return FakeDevice::allocate(bytes);
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return {reinterpret_cast<DevicePtr>(memory), bytes,
            [bytes](void* pointer) { munmap(pointer, bytes); }};
  }

 private:
  static constexpr std::size_t kSmall = std::size_t{1} << 20;
  static DeviceInfo info_of_host() {
    DeviceInfo info = fake_device_info();
    info.arch = "host";
    return info;
  }
};

class Gemma4FakeTest : public ::testing::Test {
 protected:
  Gemma4FakeTest() {
    Options options;
    options.device = "host";
    options.cxx_path = folder_.write_script("c++", kCompilerScript).string();
    options.log = [this](const std::string& message) { warnings.push_back(message); };
    engine_ = std::make_unique<Engine>(options, std::make_unique<RoomyDevice>());
  }

  std::unique_ptr<Gemma4Attention> make(const Gemma4Geometry& geometry, Gemma4Options options) {
    auto made = std::make_unique<Gemma4Attention>(*engine_, geometry, std::move(options));
    AppModel(made->geometry()).set_norm_weights(*made);
    return made;
  }
  // A small model with room for three sequences.
  std::unique_ptr<Gemma4Attention> make_small(KvLayout layout = KvLayout::kContiguous,
                                              int num_pages = 0) {
    Gemma4Options options = small_options(layout);
    options.max_sequences = 3;
    options.batch_sizes = {2};
    options.num_pages = num_pages;
    return make(small_geometry(layout), options);
  }
  Gemma4LayerArgs args(bool owns_cache = true) const {
    Gemma4LayerArgs made;
    made.q = 0x10000;
    made.out = 0x20000;
    if (owns_cache) made.k = 0x30000, made.v = 0x40000;
    return made;
  }
  // A step of all layers.
  void prefill(Gemma4Session& session, int num_tokens, int commit) {
    for (int layer = 0; layer < 4; ++layer) {
      session.prefill(layer, num_tokens, args(layer < 2), nullptr);
    }
    session.commit(commit, nullptr);
  }
  Device& device() { return engine_->device(); }
  Engine& engine() { return *engine_; }

  std::vector<std::string> warnings;

 private:
  TemporaryFolder folder_;
  std::unique_ptr<Engine> engine_;
};

// Expects an InvalidArgument that says all of `parts`.
template <typename Body>
void expect_refusal(const Body& body, const std::vector<std::string>& parts) {
  try {
    body();
    ADD_FAILURE() << "no error with '" << parts.front() << "'";
  } catch (const InvalidArgument& error) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << error.what();
    }
  }
}

}  // namespace attune
