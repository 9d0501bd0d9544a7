#include <algorithm>

#include <fmt/format.h>

#include "tests/conformance/case.h"

namespace attune::conformance {
namespace {

Case async_case(std::string name, std::string kernel, unsigned threads, int smem_bytes,
                std::size_t num_outputs, Needs needs) {
  Case one;
  one.name = std::move(name);
  one.kernel = std::move(kernel);
  one.needs = needs;
  one.launch.block.x = threads;
  one.launch.smem_bytes = smem_bytes;
  one.num_outputs = num_outputs;
  return one;
}

// Every word its own index: what arrives says where it came from.
void append_indices(std::uint32_t count, Words* words) {
  for (std::uint32_t i = 0; i < count; ++i) words->push_back(0x00010001U * i);
}

Case cp_async_case() {
  constexpr int kChunks = 128;
  Case one = async_case("cp_async", "cp_async", kChunks, 2048, 4 * kChunks, Needs::kAnything);
  one.inputs = [](Random& random) {
    Words words;
    append_indices(4 * kChunks, &words);
    const std::vector<int> targets = random.permutation(kChunks);
    for (int i = 0; i < kChunks; ++i) {
      words.push_back(static_cast<std::uint32_t>(random.between(0, kChunks - 1)));
      words.push_back(static_cast<std::uint32_t>(targets[static_cast<std::size_t>(i)]));
      words.push_back(random.between(0, 2) == 0 ? 0 : 16);
    }
    return words;
  };
  return one;
}

Case copied_case(std::string name, std::string kernel, unsigned threads, int smem_bytes,
                 std::uint32_t count, Needs needs) {
  Case one = async_case(std::move(name), std::move(kernel), threads, smem_bytes, count, needs);
  one.inputs = [count](Random&) {
    Words words;
    append_indices(count, &words);
    return words;
  };
  return one;
}

// As in kernels/async.cuh.
enum class Step : std::uint32_t {
  kInit,
  kArrive,
  kExpectTx,
  kArriveExpectTx,
  kCopy,
  kWait,
  kTryWait,
  kInval
};

// Writes a random script for one barrier, with a model of it so that every step is legal and
// nothing that is recorded depends on when a copy arrives.
class ScriptWriter {
 public:
  explicit ScriptWriter(Random& random) : random_(random) {}

  Words write(int num_steps) {
    constexpr int kToFinish = 12;
    init();
    while (num_written() < num_steps - kToFinish) step();
    finish();
    while (num_written() < num_steps) append(Step::kTryWait, parity_ ^ 1, true);
    return words_;
  }

 private:
  int num_written() const { return static_cast<int>(words_.size() / 3); }

  void append(Step step, std::uint32_t operand, bool record) {
    words_.insert(words_.end(), {static_cast<std::uint32_t>(step), operand, record ? 1U : 0U});
  }

  void init() {
    count_ = random_.between(1, 6);
    pending_ = count_;
    bytes_ = 0;
    parity_ = 0;
    num_phases_ = 0;
    append(Step::kInit, static_cast<std::uint32_t>(count_), true);
  }

  // Behind a step. A phase that a copy had a part in is complete once it was waited for.
  void settle(Step step, std::uint32_t operand) {
    const bool complete = pending_ == 0 && bytes_ == 0;
    append(step, operand, step != Step::kCopy && !(complete && copied_));
    if (!complete) return;
    if (copied_) append(Step::kWait, parity_, true);
    append(Step::kTryWait, parity_, true);
    pending_ = count_;
    parity_ ^= 1;
    copied_ = false;
    ++num_phases_;
  }

  void step() {
    const int choice = random_.between(0, 9);
    if (bytes_ > 0 && (choice < 4 || pending_ == 0)) {
      copy(16 * random_.between(1, std::min(bytes_, kMaxCopyBytes) / 16));
    } else if (choice < 6) {
      const int arrivals = random_.between(1, pending_);
      pending_ -= arrivals;
      settle(Step::kArrive, static_cast<std::uint32_t>(arrivals));
    } else if (choice == 6 && bytes_ < kMaxCopyBytes) {
      const int announced = 16 * random_.between(1, 20);
      bytes_ += announced;
      settle(Step::kExpectTx, static_cast<std::uint32_t>(announced));
    } else if (choice < 9 && bytes_ < kMaxCopyBytes) {
      const int announced = 16 * random_.between(1, 20);
      bytes_ += announced;
      --pending_;
      settle(Step::kArriveExpectTx, static_cast<std::uint32_t>(announced));
    } else if (num_phases_ > 0 && pending_ == count_ && bytes_ == 0 && !copied_) {
      append(Step::kInval, 0, false);
      init();
    }
  }

  void copy(int bytes) {
    bytes_ -= bytes;
    copied_ = true;
    settle(Step::kCopy, static_cast<std::uint32_t>(bytes));
  }

  // Completes the phase: the CTA must not end before its copies have.
  void finish() {
    const int phase = num_phases_;
    while (bytes_ > 0) copy(std::min(bytes_, kMaxCopyBytes));
    if (num_phases_ != phase) return;
    const int arrivals = pending_;
    pending_ = 0;
    settle(Step::kArrive, static_cast<std::uint32_t>(arrivals));
  }

  static constexpr int kMaxCopyBytes = 1024;  // the script itself is what is copied

  Random& random_;
  Words words_;
  int count_ = 0;
  int pending_ = 0;  // arrivals that the phase still needs
  int bytes_ = 0;    // announced and not copied
  bool copied_ = false;
  std::uint32_t parity_ = 0;
  int num_phases_ = 0;
};

Case script_case(int which) {
  constexpr int kSteps = 160;
  Case one = async_case(fmt::format("mbarrier_script_{}", which), "mbarrier_script", 32, 8192,
                        kSteps, Needs::kSm90);
  one.args[0] = kSteps;
  one.inputs = [](Random& random) { return ScriptWriter(random).write(kSteps); };
  return one;
}

Case ring_case() {
  constexpr int kRounds = 40;
  Case one = copied_case("mbarrier_ring", "mbarrier_ring", 64, 2048, kRounds * 32, Needs::kSm90);
  one.args[0] = kRounds;
  return one;
}

Case cp_async_mbarrier_case(bool noinc) {
  Case one = copied_case(noinc ? "cp_async_mbarrier_noinc" : "cp_async_mbarrier",
                         "cp_async_mbarrier", 64, 4096, 256, Needs::kSm90);
  one.args[0] = noinc ? 1 : 0;
  return one;
}

// Rows of these bytes, each from a place of its own to a place of its own.
constexpr int kRowBytes[] = {16, 32, 48, 128, 1040, 16, 2048, 256};
constexpr int kNumRows = 8;
constexpr int kRowWords = 1024;
constexpr int kTableWords = 4 * kNumRows;

// source | target | bytes of each; sources from `source` on, gaps of 16 bytes or more between the
// targets.
void append_rows(Random& random, int source, Words* words) {
  int target = 4;
  for (const int bytes : kRowBytes) {
    const int from = source + 4 * random.between(0, (kRowWords - bytes / 4) / 4);
    words->push_back(static_cast<std::uint32_t>(from));
    words->push_back(static_cast<std::uint32_t>(target));
    words->push_back(static_cast<std::uint32_t>(bytes));
    words->push_back(0);
    target += bytes / 4 + 4 * random.between(1, 3);
  }
}

Case bulk_load_case() {
  Case one = async_case("bulk_load", "bulk_load", 64, 8192, 1280, Needs::kSm90);
  one.args = {kNumRows, 1280};
  one.inputs = [](Random& random) {
    Words words;
    append_rows(random, kTableWords, &words);
    append_indices(kRowWords, &words);
    return words;
  };
  return one;
}

Case bulk_store_case() {
  Case one = async_case("bulk_store", "bulk_store", 64, 4096, 1280, Needs::kSm90);
  one.args = {kNumRows, kTableWords, kRowWords};
  one.inputs = [](Random& random) {
    Words words;
    append_rows(random, 0, &words);
    append_indices(kRowWords, &words);
    return words;
  };
  return one;
}

}  // namespace

Group async_group() {
  Group group{"async", {}};
  group.cases = {
      cp_async_case(),
      copied_case("cp_async_groups", "cp_async_groups", 128, 6144, 1536, Needs::kAnything),
      copied_case("ld_global_cg", "load_cg", 128, 0, 512, Needs::kAnything),
      ring_case(),
      cp_async_mbarrier_case(false),
      cp_async_mbarrier_case(true),
      bulk_load_case(),
      bulk_store_case()};
  for (int which = 0; which < 8; ++which) group.cases.push_back(script_case(which));
  return group;
}

}  // namespace attune::conformance
