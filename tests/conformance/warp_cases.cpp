#include "tests/conformance/case.h"

namespace attune::conformance {
namespace {

constexpr int kLanes = 32;

Case warp_case(std::string name, std::string kernel, unsigned threads, std::size_t num_outputs) {
  Case one;
  one.name = std::move(name);
  one.kernel = std::move(kernel);
  one.launch.block.x = threads;
  one.num_outputs = num_outputs;
  return one;
}

Case shuffle_case() {
  constexpr int kSteps = 72;
  Case one = warp_case("shuffle", "shuffle", kLanes, kSteps * 4 * kLanes);
  one.args[0] = kSteps;
  one.inputs = [](Random& random) {
    Words words;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) words.push_back(0x3f800000 + lane);
    for (int step = 0; step < kSteps; ++step) {
      words.push_back(1U << step % 6);  // width
      const auto same = static_cast<std::uint32_t>(step / 6 * 3 % 32);
      for (int lane = 0; lane < kLanes; ++lane) {
        // The same operand in all lanes, then one each, also beyond the width.
        words.push_back(step < 36 ? same : static_cast<std::uint32_t>(random.between(0, 63)));
      }
    }
    return words;
  };
  return one;
}

Case vote_case() {
  constexpr int kSteps = 48;
  Case one = warp_case("vote", "vote", kLanes, kSteps * 6 * kLanes);
  one.args[0] = kSteps;
  one.inputs = [](Random& random) {
    constexpr std::uint32_t kEdges[] = {0, 0xffffffff, 1, 0x80000000, 0xffff0000, 0x55555555};
    Words words;
    for (int step = 0; step < kSteps; ++step) {
      const std::uint32_t mask = step % 6 == 0 ? random.bits() : kEdges[step % 6];
      words.push_back(step < 12 ? kEdges[step % 6] : step < 24 ? mask : random.bits());
      words.push_back(mask);
    }
    return words;
  };
  return one;
}

Case elect_case() {
  constexpr int kMasks = 24;
  Case one = warp_case("elect", "elect", kLanes, kMasks * kLanes);
  one.needs = Needs::kSm90;
  one.args[0] = kMasks;
  one.inputs = [](Random& random) {
    Words words = {0xffffffff, 1,          0x80000000, 0xffff0000,
                   0xaaaaaaaa, 0x00010000, 0x7ffffffe, 0xc0000000};
    while (words.size() < kMasks) words.push_back(random.bits());
    return words;
  };
  return one;
}

Case named_barrier_case() {
  constexpr int kRounds = 24;
  Case one = warp_case("named_barrier", "named_barrier", 128, kRounds * 128);
  one.launch.smem_bytes = 1024;
  one.args[0] = kRounds;
  one.inputs = [](Random& random) {
    Words words(kRounds * 64);
    for (std::uint32_t& word : words) word = random.bits() >> 16;
    return words;
  };
  return one;
}

Case setmaxnreg_case() {
  Case one = warp_case("setmaxnreg", "setmaxnreg", 384, 384);
  one.needs = Needs::kSm90a;
  one.inputs = [](Random&) {
    Words words(384);
    for (std::uint32_t i = 0; i < 384; ++i) words[i] = 2 * i;
    return words;
  };
  return one;
}

Case atomic_sequence_case(bool in_shared) {
  constexpr int kOperands = 96;
  Case one = warp_case(in_shared ? "atomic_sequence_shared" : "atomic_sequence_global",
                       "atomic_sequence", kLanes, kOperands * 16 + 16);
  one.launch.smem_bytes = 1024;
  one.args = {kOperands, in_shared ? 1 : 0};
  one.before = 0x01234567;
  one.inputs = [](Random& random) {
    Words words = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 2, 0x80000001, 0xfffffffe};
    while (words.size() < kOperands) words.push_back(random.bits());
    return words;
  };
  return one;
}

// Subnormal operands and sums too: on global memory they are flushed, in shared memory not.
Case atomic_float_case(bool subnormal) {
  constexpr int kOperands = 160;
  Case one = warp_case(subnormal ? "atomic_float_subnormal" : "atomic_float", "atomic_float",
                       kLanes, kOperands * 2 + 2);
  one.launch.smem_bytes = 1024;
  one.args[0] = kOperands;
  one.judge = Judge::kNan;
  one.inputs = [subnormal](Random& random) {
    Words words;
    if (subnormal) {
      for (int i = 0; i < kOperands; ++i) {
        words.push_back(std::bit_cast<std::uint32_t>(random.wide(-140, i < 80 ? -127 : -122)));
      }
      return words;
    }
    words.push_back(0x80000000);
    while (words.size() < kOperands - 4) {
      words.push_back(std::bit_cast<std::uint32_t>(random.wide(-12, 12)));
    }
    words.insert(words.end(), {0x7f7fffff, 0x7f800000, 0xff800000, 0x3f800000});
    return words;
  };
  return one;
}

Case atomic_contention_case() {
  constexpr int kThreads = 128;
  constexpr int kCtas = 8;
  Case one = warp_case("atomic_contention", "atomic_contention", kThreads, kThreads * kCtas + 8);
  one.launch.grid.x = kCtas;
  one.before = 0;
  one.inputs = [](Random& random) {
    Words words(kThreads * kCtas);
    for (std::uint32_t& word : words) word = random.bits();
    return words;
  };
  return one;
}

}  // namespace

Group warp_group() {
  return {"warp",
          {shuffle_case(), vote_case(), elect_case(), named_barrier_case(), setmaxnreg_case(),
           atomic_sequence_case(false), atomic_sequence_case(true), atomic_float_case(false),
           atomic_float_case(true), atomic_contention_case()}};
}

}  // namespace attune::conformance
