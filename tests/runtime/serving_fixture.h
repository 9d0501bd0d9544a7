// What the runtime's tests share: a cache file of their own, made-up winners, engines on a fake
// device.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cache/tune_store.h"
#include "jit/compiler.h"
#include "runtime/attune.h"
#include "tests/support/fake_device.h"
#include "tests/support/temporary_folder.h"
#include "tuner/timer.h"

namespace attune {

constexpr const char* kDecode = "decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16";
constexpr const char* kVerify8 = "verify/b2/q8/kv1-4096/h8x2/d256/w1024/ring/bf16";
constexpr const char* kVerify5 = "verify/b2/q5/kv1-4096/h8x2/d256/w1024/ring/bf16";
constexpr const char* kCandidate = "splitkv/m16n64s1w8/x33";

// A winner as the tuner stores it, with a cubin that only the fake device takes.
inline Winner made_up_winner(const std::string& problem, const std::string& candidate,
                             const std::string& compiler_version) {
  const DeviceInfo gpu = fake_device_info();
  Winner winner;
  winner.problem = Problem::parse(problem);
  winner.candidate = Candidate::parse(candidate);
  winner.toolchain = {.template_digest = find_family(winner.candidate.family)->template_digest(),
                      .compiler_version = compiler_version,
                      .options = compile_options(gpu.arch)};
  const std::string text = problem + candidate + compiler_version;
  for (const char byte : text) winner.binary.cubin.push_back(static_cast<std::byte>(byte));
  winner.binary.key = digest_of(text);
  winner.binary.content = digest_of(winner.binary.cubin);
  winner.binary.arch = gpu.arch;
  winner.binary.compiler_version = compiler_version;
  winner.binary.options = winner.toolchain.options;
  winner.admission = {.reference = "cpu-double-1",
                      .num_cases = 12,
                      .relative_l2 = 1.9e-3,
                      .worst_case_relative_l2 = 3e-3,
                      .max_abs_error = 0.01,
                      .created_at = "2025-01-02T03:04:05Z"};
  winner.measurements = {{.kv_len = 1,
                          .median_us = 5.25,
                          .spread_us = 0.03,
                          .num_samples = 9,
                          .method = kTimingMethod,
                          .driver_version = gpu.driver_version,
                          .created_at = "2025-01-02T03:04:05Z"}};
  winner.runner_up = "splitkv/m16n32s2w8/x66";
  winner.margin_runner_up = 0.031;
  winner.default_candidate = "splitkv/m16n32s1w4/x132";
  winner.margin_default = 0.42;
  winner.method = kTimingMethod;
  winner.driver_version = gpu.driver_version;
  winner.created_at = "2025-01-02T03:04:05Z";
  return winner;
}

// A cache file in a folder of its own. `options` names an NVRTC that is not there, so that results
// do not depend on what is installed: winners of every NVRTC version count.
class ServingTest : public ::testing::Test {
 protected:
  ServingTest() {
    options.cache_path = (folder_.path() / "tune.db").string();
    options.nvrtc_path = (folder_.path() / "no-nvrtc").string();
    options.log = [this](const std::string& message) { warnings.push_back(message); };
  }

  void store(const Winner& winner) {
    TuneStore::open(options.cache_path)->put_winner(fake_device_info(), winner);
  }
  void store(const std::string& problem, const std::string& candidate = kCandidate) {
    store(made_up_winner(problem, candidate, "13.0"));
  }
  // Calls of the device are appended to `calls`.
  std::unique_ptr<FakeDevice> device() {
    auto fake = std::make_unique<FakeDevice>();
    fake->on_call = [this](std::string_view call) { calls.emplace_back(call); };
    return fake;
  }
  std::unique_ptr<Engine> engine() { return std::make_unique<Engine>(options, device()); }

  Options options;
  std::vector<std::string> warnings;
  std::vector<std::string> calls;

 private:
  TemporaryFolder folder_;
};

// Arguments that the contract admits for kDecode and kVerify8; the addresses are made up.
inline AttentionArgs plausible_args() {
  AttentionArgs args;
  args.q = 0x10000;
  args.k = 0x20000;
  args.v = 0x30000;
  args.out = 0x40000;
  args.kv_len = 0x50004;
  args.workspace = 0x60100;
  args.capacity = 131072;
  args.sm_scale = 1.0f;
  return args;
}

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

// The message of the error that `body` throws, "" when it throws none or one of another type.
template <typename ErrorType = Error, typename Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  } catch (...) {
    ADD_FAILURE() << "an error of another type";
  }
  return {};
}

}  // namespace attune
