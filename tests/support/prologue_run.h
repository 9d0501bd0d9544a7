// Runs a prologue problem on a device and compares every element of its outputs.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "jit/device.h"
#include "templates/prologue_config.h"
#include "tests/support/prologue_cases.h"

namespace attune {

// How the rows of a problem are divided among launches and CTAs: their bits must not depend on it.
enum class RowDivision {
  kPlanned,
  kFullBlocks,   // kPrologueMaxThreads
  kTokenByToken  // a launch for each token of each batch entry
};

struct PrologueOutputs {
  GuardedImage q_out, k_cache, v_cache;
};

class PrologueRunner {
 public:
  PrologueRunner(Device& device, const Kernel& kernel) : device_(device), kernel_(kernel) {}

  // Also expects that nothing was written to the inputs.
  PrologueOutputs run(const PrologueProblem& problem, RowDivision division) {
    memory_.clear();
    PrologueParams params = problem.params;
    const std::vector<int> identity = {0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<int> sequence = problem.sequence.empty() ? identity : problem.sequence;
    std::vector<int> kv_len;  // of every token, for kTokenByToken
    for (const int length : problem.kv_len) {
      for (int token = 0; token < params.seqlen_q; ++token) kv_len.push_back(length + token);
    }
    const DevicePtr kv_lens = upload(problem.kv_len);
    const DevicePtr token_kv_lens = upload(kv_len);
    const DevicePtr sequences = upload(sequence);
    const DevicePtr q = upload_image(problem.q);
    const DevicePtr k = upload_image(problem.k);
    const DevicePtr v = upload_image(problem.v);
    const DevicePtr q_out = upload_image(problem.q_out);
    const DevicePtr k_cache = upload_image(problem.k_cache);
    const DevicePtr v_cache = upload_image(problem.v_cache);
    params.q = pointer(q, problem.q);
    params.k = pointer(k, problem.k);
    params.v = problem.test.shares_k ? params.k : pointer(v, problem.v);
    if (is_unified(problem.layout)) params.v = nullptr;
    params.q_weight = reinterpret_cast<const float*>(upload(problem.q_weight));
    params.k_weight = reinterpret_cast<const float*>(upload(problem.k_weight));
    params.inv_freq = reinterpret_cast<const float*>(upload(problem.inv_freq));
    params.q_out = pointer(q_out, problem.q_out);
    params.k_cache = pointer(k_cache, problem.k_cache);
    params.v_cache = is_unified(problem.layout) ? nullptr : pointer(v_cache, problem.v_cache);
    params.kv_len = reinterpret_cast<const int*>(kv_lens);
    params.sequence = problem.sequence.empty() ? nullptr : reinterpret_cast<const int*>(sequences);
    params.block_table = reinterpret_cast<const int*>(upload(problem.block_table));

    if (division != RowDivision::kTokenByToken) {
      launch(problem, params, division);
    } else {
      launch_tokens(problem, params, reinterpret_cast<const int*>(token_kv_lens),
                    reinterpret_cast<const int*>(sequences));
    }
    for (const auto& [input, image] :
         {std::pair(q, &problem.q), std::pair(k, &problem.k), std::pair(v, &problem.v)}) {
      EXPECT_TRUE(download(input, *image).bits == image->bits) << "an input has changed";
    }
    return {download(q_out, problem.q_out), download(k_cache, problem.k_cache),
            download(v_cache, problem.v_cache)};
  }

 private:
  static std::byte* bytes_at(DevicePtr ptr) { return reinterpret_cast<std::byte*>(ptr); }
  // Of element 0, which may be in front of the memory.
  static void* pointer(DevicePtr memory, const GuardedImage& image) {
    return reinterpret_cast<void*>(memory + static_cast<DevicePtr>(2 * image.origin));
  }

  template <typename T>
  DevicePtr upload(const std::vector<T>& values) {
    if (values.empty()) return 0;
    const DevicePtr ptr = memory_.emplace_back(device_.allocate(values.size() * sizeof(T))).ptr();
    device_.copy_to_device(ptr, std::as_bytes(std::span(values)), nullptr);
    return ptr;
  }
  DevicePtr upload_image(const GuardedImage& image) { return upload(image.bits); }
  GuardedImage download(DevicePtr ptr, GuardedImage image) {
    device_.copy_to_host(std::as_writable_bytes(std::span(image.bits)), ptr, nullptr);
    return image;
  }

  void launch(const PrologueProblem& problem, const PrologueParams& params, RowDivision division) {
    KernelLaunch shape = plan_prologue(problem.head_dim, problem.layout, params);
    if (division == RowDivision::kFullBlocks) {
      const int warps = kPrologueMaxThreads / kWarpSize;
      shape.grid.y = (params.num_q_heads + params.num_kv_heads + warps - 1) / warps;
      shape.block.x = kPrologueMaxThreads;
    }
    device_.launch(kernel_, shape, &params, nullptr);
  }
  void launch_tokens(const PrologueProblem& problem, const PrologueParams& all, const int* kv_len,
                     const int* sequence) {
    const auto moved = [](const void* from, int64 elements) {
      return reinterpret_cast<void*>(reinterpret_cast<DevicePtr>(from) +
                                     static_cast<DevicePtr>(2 * elements));
    };
    for (int b = 0; b < all.batch; ++b) {
      for (int t = 0; t < all.seqlen_q; ++t) {
        PrologueParams one = all;
        one.batch = 1;
        one.seqlen_q = 1;
        one.q = moved(all.q, b * all.q_batch_stride + t * all.q_token_stride);
        one.k = moved(all.k, b * all.k_batch_stride + t * all.k_token_stride);
        one.v = moved(all.v, b * all.v_batch_stride + t * all.v_token_stride);
        one.q_out = moved(all.q_out, b * all.q_out_batch_stride + t * all.q_out_token_stride);
        one.kv_len = kv_len + b * all.seqlen_q + t;
        one.sequence = sequence + b;
        launch(problem, one, RowDivision::kPlanned);
      }
    }
  }

  Device& device_;
  Kernel kernel_;
  std::vector<DeviceMem> memory_;
};

// Elements that were compared, and those of them that are not the reference rounded to bf16.
struct RoundingCount {
  int compared = 0;
  int other_neighbour = 0;
};

// fp32 arithmetic may move a value over the middle between two bf16 values, where two products
// cancel also further; by no more than this share of the row's largest value.
inline constexpr double kProloguePrecision = 1e-6;

inline void compare_prologue(const std::string& what, const GuardedImage& image,
                             const ExpectedImage& expected, RoundingCount* count) {
  for (std::size_t i = 0; i < image.bits.size(); ++i) {
    const std::uint16_t bits = image.bits[i];
    const double value = expected.values[i];
    if (std::isnan(value)) {
      ASSERT_EQ(bits, kProloguePoison) << what << " was written at " << i;
      continue;
    }
    ++count->compared;
    if (bits == bf16_of(value)) continue;
    ++count->other_neighbour;
    const double error = std::abs(value_of_bf16(bits) - value);
    const double bound = half_ulp_of_bf16(value) + kProloguePrecision * expected.magnitudes[i];
    ASSERT_LE(error, bound) << what << " at " << i << ": " << value_of_bf16(bits) << " and not "
                            << value;
  }
}

inline void compare_prologue(const PrologueOutputs& outputs, const PrologueProblem& problem,
                             RoundingCount* count) {
  compare_prologue("q_out", outputs.q_out, problem.q_expected, count);
  compare_prologue("k_cache", outputs.k_cache, problem.k_expected, count);
  compare_prologue("v_cache", outputs.v_cache, problem.v_expected, count);
}

inline bool same_bits(const PrologueOutputs& a, const PrologueOutputs& b) {
  return a.q_out.bits == b.q_out.bits && a.k_cache.bits == b.k_cache.bits &&
         a.v_cache.bits == b.v_cache.bits;
}

// What a prologue's test is about: one kernel.
struct PrologueKernelName {
  int head_dim;
  KvLayout layout;
};
inline void PrintTo(const PrologueKernelName& name, std::ostream* out) {
  *out << "d" << name.head_dim << " " << name_of(name.layout);
}
inline std::vector<PrologueKernelName> prologue_kernels() {
  std::vector<PrologueKernelName> all;
  for (const KvLayout layout : kKvLayouts) {
    for (const int head_dim : {64, 128, 256, 512}) {
      if (!prologue_limits(head_dim, layout)) all.push_back({head_dim, layout});
    }
  }
  return all;
}
inline std::string symbol_name_of(const PrologueKernelName& name) {
  std::string text = "d" + std::to_string(name.head_dim) + "_" + std::string(name_of(name.layout));
  for (char& letter : text) {
    if (letter == '-') letter = '_';
  }
  return text;
}

// Every case on one device, in every division of its rows.
inline void expect_right_prologues(Device& device, const Kernel& kernel,
                                   const PrologueKernelName& name, RoundingCount* count) {
  PrologueRunner runner(device, kernel);
  for (const PrologueCase& c : prologue_cases()) {
    SCOPED_TRACE(c.name);
    const PrologueProblem problem(name.layout, name.head_dim, c);
    const PrologueOutputs outputs = runner.run(problem, RowDivision::kPlanned);
    ASSERT_NO_FATAL_FAILURE(compare_prologue(outputs, problem, count));
    for (const RowDivision division : {RowDivision::kFullBlocks, RowDivision::kTokenByToken}) {
      EXPECT_TRUE(same_bits(runner.run(problem, division), outputs))
          << "rows have other bits in division " << static_cast<int>(division);
    }
  }
}

}  // namespace attune
