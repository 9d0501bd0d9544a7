// Runs one logical sequence through kernels of invariant problems, decode and verify, in any
// layout, and compares the bits of every row that two launches computed.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "jit/device.h"
#include "templates/launch_plan.h"
#include "tests/support/logical_sequence.h"

namespace attune {

// The rows seen so far by the position of their query: the first launch that computes a row says
// what its bits are, and every later one is held against it.
class RowBook {
 public:
  // `out` and `lse` of all heads of one query; `launch` is how it was computed.
  void add(int position, std::span<const std::byte> out, std::span<const float> lse,
           const std::string& launch) {
    const auto [found, is_first] = rows_.try_emplace(position);
    Row& row = found->second;
    if (is_first) {
      row = {{out.begin(), out.end()}, {lse.begin(), lse.end()}, launch};
      return;
    }
    num_compared_ += static_cast<std::int64_t>(lse.size());
    const auto lse_bytes = std::as_bytes(lse);
    if (std::equal(out.begin(), out.end(), row.out.begin()) &&
        std::memcmp(lse.data(), row.lse.data(), lse_bytes.size()) == 0) {
      return;
    }
    num_differing_bits_ +=
        differing_bits(out, row.out) + differing_bits(lse_bytes, std::as_bytes(std::span(row.lse)));
    if (first_difference_.empty()) {
      first_difference_ =
          fmt::format("position {}: {} is not {}", position, launch, row.first_launch);
    }
  }
  void forget_rows() { rows_.clear(); }

  std::int64_t num_compared() const { return num_compared_; }  // rows of a head
  std::int64_t num_differing_bits() const { return num_differing_bits_; }
  const std::string& first_difference() const { return first_difference_; }

 private:
  struct Row {
    std::vector<std::byte> out;
    std::vector<float> lse;
    std::string first_launch;
  };
  static std::int64_t differing_bits(std::span<const std::byte> a, std::span<const std::byte> b) {
    std::int64_t bits = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      bits += std::popcount(std::to_integer<unsigned>(a[i] ^ b[i]));
    }
    return bits;
  }

  std::map<int, Row> rows_;
  std::int64_t num_compared_ = 0;
  std::int64_t num_differing_bits_ = 0;
  std::string first_difference_;
};

using BinaryOf = std::function<Binary(const Variant& variant)>;

// `problem` with this many query tokens, for a batch of this many sequences.
inline Problem with_tokens(Problem problem, int seqlen_q, int batch = 1) {
  problem.op = seqlen_q == 1 ? Op::kDecode : Op::kVerify;
  problem.seqlen_q = seqlen_q;
  problem.batch = batch;
  return problem;
}

// Rows of a ring that serves every seqlen_q of a problem with some to spare: it may hold a few
// tokens after the last that a launch sees.
constexpr int kTokensAfter = 5;
inline int ring_rows(const Problem& problem) {
  return min_ring_capacity(with_tokens(problem, kMaxVerifyTokens)) + 4 * kTokensAfter + 9;
}

// Launches over one sequence.
class InvarianceRun {
 public:
  // `sequence` has to outlive it. `binary_of` compiles, or knows what was compiled.
  InvarianceRun(Device& device, const LogicalSequence& sequence, BinaryOf binary_of)
      : device_(device),
        sequence_(sequence),
        binary_of_(std::move(binary_of)),
        stream_(device.create_stream()) {}

  // The last seqlen_q queries of the first kv_lens[i] tokens of the sequence, one batch entry each,
  // all of which read the one cache. Rows go into `book`.
  void run(const Problem& problem, const KernelConfig& config, const SequenceCache& cache,
           const std::vector<int>& kv_lens, RowBook& book) {
    const Candidate candidate{"splitkv", config, 1};
    const Variant variant = candidate.variant(problem);
    const LaunchPlan plan = plan_launch(problem, candidate);
    const int batch = static_cast<int>(kv_lens.size());
    const std::size_t row_size = std::size_t{1} * problem.num_q_heads * problem.head_dim;
    const std::size_t num_rows = kv_lens.size() * static_cast<std::size_t>(problem.seqlen_q);
    q_.clear();
    for (const int kv_len : kv_lens) {
      for (int token = 0; token < problem.seqlen_q; ++token) {
        const auto row = sequence_.query(kv_len - problem.seqlen_q + token);
        q_.insert(q_.end(), row.begin(), row.end());
      }
    }
    out_.resize(num_rows * row_size);
    lse_.resize(num_rows * static_cast<std::size_t>(problem.num_q_heads));

    AttentionParams params{};
    cache.set_params(params);
    set_plan_params(problem, plan, workspace_.at_least(device_, plan.workspace_bytes()), &params);
    params.q = reinterpret_cast<const void*>(upload(q_mem_, std::as_bytes(std::span(q_))));
    params.kv_len =
        reinterpret_cast<const int*>(upload(kv_len_mem_, std::as_bytes(std::span(kv_lens))));
    const std::vector<int> all_the_first(kv_lens.size(), 0);
    params.sequence = reinterpret_cast<const int*>(
        upload(sequence_mem_, std::as_bytes(std::span(all_the_first))));
    const DevicePtr out = out_mem_.at_least(device_, out_.size() * sizeof(out_[0]));
    const DevicePtr lse = lse_mem_.at_least(device_, lse_.size() * sizeof(lse_[0]));
    params.out = reinterpret_cast<void*>(out);
    params.lse = reinterpret_cast<float*>(lse);
    params.q_head_stride = params.out_head_stride = problem.head_dim;
    params.q_token_stride = params.out_token_stride = static_cast<int64>(row_size);
    params.q_batch_stride = params.out_batch_stride =
        static_cast<int64>(row_size) * problem.seqlen_q;
    params.sm_scale = sequence_.sm_scale();
    params.softcap = problem.softcap ? LogicalSequence::kSoftcap : 0.0f;
    ASSERT_EQ(problem.batch, batch);

    // What a kernel does not write is NaN.
    device_.fill_bytes(out, 0xff, out_.size() * sizeof(out_[0]), stream_.get());
    device_.fill_bytes(lse, 0xff, lse_.size() * sizeof(lse_[0]), stream_.get());
    launch_attention(device_, kernels_of(variant, plan), plan, params, stream_.get());
    device_.copy_to_host(std::as_writable_bytes(std::span(out_)), out, stream_.get());
    device_.copy_to_host(std::as_writable_bytes(std::span(lse_)), lse, stream_.get());
    ++num_launches_;
    read_rows(problem, text_of(config), kv_lens, book);
  }

  std::int64_t num_launches() const { return num_launches_; }

 private:
  // Device memory that grows.
  struct Memory {
    DeviceMem mem;
    DevicePtr at_least(Device& device, std::size_t bytes) {
      if (mem.bytes() < bytes) {
        mem = DeviceMem();
        mem = device.allocate(bytes);
      }
      return mem.ptr();
    }
  };

  DevicePtr upload(Memory& memory, std::span<const std::byte> bytes) {
    const DevicePtr ptr = memory.at_least(device_, bytes.size());
    device_.copy_to_device(ptr, bytes, stream_.get());
    return ptr;
  }

  const AttentionKernels& kernels_of(const Variant& variant, const LaunchPlan& plan) {
    const auto found = kernels_.find(variant);
    if (found != kernels_.end()) return found->second;
    return kernels_.emplace(variant, load_attention(device_, binary_of_(variant), variant, plan))
        .first->second;
  }

  void read_rows(const Problem& problem, const std::string& config, const std::vector<int>& kv_lens,
                 RowBook& book) {
    const std::size_t heads = static_cast<std::size_t>(problem.num_q_heads);
    const std::size_t row_size = heads * static_cast<std::size_t>(problem.head_dim);
    for (std::size_t i = 0; i < kv_lens.size(); ++i) {
      const std::string launch = fmt::format("{} {} kv_len={}", problem.text(), config, kv_lens[i]);
      for (int token = 0; token < problem.seqlen_q; ++token) {
        const std::size_t row = i * static_cast<std::size_t>(problem.seqlen_q) + token;
        const int position = kv_lens[i] - problem.seqlen_q + token;
        const std::span out(&out_[row * row_size], row_size);
        const std::span lse(&lse_[row * heads], heads);
        if (position >= 0) {
          book.add(position, std::as_bytes(out), lse, launch);
        } else {
          // Before the sequence: nothing is seen.
          EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](auto bits) { return bits == 0; }))
              << launch << " token " << token;
          const float nothing = -std::numeric_limits<float>::infinity();
          EXPECT_EQ(std::count(lse.begin(), lse.end(), nothing), problem.num_q_heads)
              << launch << " token " << token;
        }
      }
    }
  }

  Device& device_;
  const LogicalSequence& sequence_;
  BinaryOf binary_of_;
  Stream stream_;
  std::map<Variant, AttentionKernels> kernels_;
  Memory q_mem_, kv_len_mem_, sequence_mem_, out_mem_, lse_mem_, workspace_;
  std::vector<std::uint16_t> q_, out_;
  std::vector<float> lse_;
  std::int64_t num_launches_ = 0;
};

}  // namespace attune
