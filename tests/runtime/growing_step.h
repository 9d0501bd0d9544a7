// One attention step whose KV cache grows, on a device and on the host side by side.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "jit/device.h"
#include "runtime/attune.h"
#include "tuner/reference.h"
#include "tuner/verify.h"

namespace attune {

// So many keys average the rounding out, and the narrow limit holds.
constexpr int kLongKvLen = 4500;

class GrowingStep {
 public:
  // Everything in the KV buffers is NaN until it is appended; workspace is poisoned.
  GrowingStep(Device& device, const Attention& attention, int capacity);

  // Appends tokens until `kv_len`, draws new queries and poisons the outputs. The second and later
  // sequences of the batch hold fewer tokens, about half and so on.
  void grow_to(int kv_len, StreamHandle stream);
  AttentionArgs args() const;
  // Relative L2 error of the output that is on the device now. Waits for the stream.
  double output_error(StreamHandle stream) const;
  // The bytes of output and lse that are on the device now. Waits for the stream.
  std::vector<std::byte> result(StreamHandle stream) const;
  // Relative L2 error of the output, and compares lse row by row.
  double error(StreamHandle stream) const;

 private:
  static std::uint16_t noise(std::uint64_t seed, std::uint64_t idx);
  template <typename T>
  void upload(const DeviceMem& to, const std::vector<T>& from, StreamHandle stream) const {
    device_.copy_to_device(to.ptr(), std::as_bytes(std::span(from)), stream);
  }
  template <typename T>
  std::vector<T> download(const DeviceMem& from, std::size_t count, StreamHandle stream) const {
    std::vector<T> values(count);
    device_.copy_to_host(std::as_writable_bytes(std::span(values)), from.ptr(), stream);
    return values;
  }

  Device& device_;
  AttentionInputs inputs_;
  DeviceMem q_, k_, v_, out_, lse_, kv_len_, workspace_;
};

inline GrowingStep::GrowingStep(Device& device, const Attention& attention, int capacity)
    : device_(device) {
  inputs_.problem = Problem::parse(attention.problem_text());
  const Problem& p = inputs_.problem;
  inputs_.capacity = capacity;
  inputs_.kv_len.assign(p.batch, 0);
  inputs_.sm_scale = 1.0f / std::sqrt(static_cast<float>(p.head_dim));
  inputs_.softcap = p.softcap ? 20.0f : 0.0f;
  const std::size_t num_rows = std::size_t{1} * p.batch * p.seqlen_q * p.num_q_heads;
  const std::size_t num_kv = std::size_t{1} * p.batch * capacity * p.num_kv_heads * p.head_dim;
  constexpr std::uint16_t kNan = 0x7fc0;
  inputs_.q.resize(num_rows * p.head_dim);
  inputs_.k.assign(num_kv, kNan);
  inputs_.v.assign(num_kv, kNan);
  q_ = device.allocate(inputs_.q.size() * 2);
  out_ = device.allocate(inputs_.q.size() * 2);
  k_ = device.allocate(num_kv * 2);
  v_ = device.allocate(num_kv * 2);
  lse_ = device.allocate(num_rows * sizeof(float));
  kv_len_ = device.allocate(p.batch * sizeof(int));
  workspace_ = device.allocate(attention.workspace_bytes());
  device.fill_bytes(workspace_.ptr(), 0xff, workspace_.bytes(), nullptr);
  device.synchronize(nullptr);
}

// Uniform in [-1, 1) (splitmix64: Steele, Lea, Flood, 2014).
inline std::uint16_t GrowingStep::noise(std::uint64_t seed, std::uint64_t idx) {
  std::uint64_t z = (seed << 40) + idx * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return float_to_bf16(static_cast<float>((z ^ (z >> 31)) >> 40) / 8388608.0f - 1.0f);
}

inline void GrowingStep::grow_to(int kv_len, StreamHandle stream) {
  const Problem& p = inputs_.problem;
  const std::uint64_t row = static_cast<std::uint64_t>(p.num_kv_heads) * p.head_dim;
  for (int b = 0; b < p.batch; ++b) {
    const int length = kv_len / (b + 1);
    for (int position = inputs_.kv_len[b]; position < length; ++position) {
      const std::uint64_t slot =
          static_cast<std::uint64_t>(b) * inputs_.capacity + position % inputs_.capacity;
      const std::uint64_t first = (static_cast<std::uint64_t>(position) * p.batch + b) * row;
      for (std::uint64_t i = 0; i < row; ++i) {
        inputs_.k[slot * row + i] = noise(1, first + i);
        inputs_.v[slot * row + i] = noise(2, first + i);
      }
    }
    inputs_.kv_len[b] = length;
  }
  for (std::size_t i = 0; i < inputs_.q.size(); ++i) {
    inputs_.q[i] = noise(3 + static_cast<std::uint64_t>(kv_len), i);
  }
  upload(q_, inputs_.q, stream);
  upload(k_, inputs_.k, stream);
  upload(v_, inputs_.v, stream);
  upload(kv_len_, inputs_.kv_len, stream);
  device_.fill_bytes(out_.ptr(), 0xff, out_.bytes(), stream);
  device_.fill_bytes(lse_.ptr(), 0xff, lse_.bytes(), stream);
}

inline AttentionArgs GrowingStep::args() const {
  AttentionArgs args;
  args.q = q_.ptr();
  args.k = k_.ptr();
  args.v = v_.ptr();
  args.out = out_.ptr();
  args.lse = lse_.ptr();
  args.kv_len = kv_len_.ptr();
  args.workspace = workspace_.ptr();
  args.capacity = inputs_.capacity;
  args.sm_scale = inputs_.sm_scale;
  args.softcap = inputs_.softcap;
  return args;
}

inline double GrowingStep::output_error(StreamHandle stream) const {
  std::vector<double> out;
  for (const std::uint16_t value : download<std::uint16_t>(out_, inputs_.q.size(), stream)) {
    out.push_back(bf16_to_float(value));
  }
  return relative_l2(out, reference_attention(inputs_).out);
}

inline std::vector<std::byte> GrowingStep::result(StreamHandle stream) const {
  std::vector<std::byte> bytes = download<std::byte>(out_, out_.bytes(), stream);
  const auto lse = download<std::byte>(lse_, lse_.bytes(), stream);
  bytes.insert(bytes.end(), lse.begin(), lse.end());
  return bytes;
}

inline double GrowingStep::error(StreamHandle stream) const {
  const auto lse = download<float>(lse_, lse_.bytes() / sizeof(float), stream);
  const std::vector<double> expected = reference_attention(inputs_).lse;
  constexpr double kLseTolerance = 5e-3;  // fp32 sums; the hardware's tanh under a softcap
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(static_cast<double>(lse[i]), expected[i]) << "row " << i;
    } else {
      EXPECT_NEAR(lse[i], expected[i], kLseTolerance) << "row " << i;
    }
  }
  return output_error(stream);
}

// How far a sequence grows, and the rows of a ring's buffer: little more than window + M - 1, so
// that it laps often.
struct Growth {
  int longest;
  int ring_capacity;
};

// Lengths around the edges of tiles, splits, the window and the ring, in growing order.
inline std::set<int> growing_lengths(const Attention& attention, const Growth& growth) {
  const Candidate candidate = Candidate::parse(attention.candidate_text());
  const Problem problem = Problem::parse(attention.problem_text());
  const int tile = candidate.config.block_n;
  const int ring = growth.ring_capacity;
  std::set<int> lengths = {growth.longest};
  const auto add = [&](int length) {
    if (length >= 1 && length <= growth.longest) lengths.insert(length);
  };
  for (const int length : {1, 2, 7, 8, 9, 16, 17, 500}) add(length);
  for (const int edge : {tile, 2 * tile, 3 * tile, candidate.split_cap * tile, 1024, problem.window,
                         problem.window + problem.seqlen_q - 1, ring, 2048, 2 * ring, 4096}) {
    for (const int length : {edge - 1, edge, edge + 1}) add(length);
  }
  return lengths;
}

// One captured launch, replayed while the sequences grow, against the reference at every length.
inline void expect_right_while_growing(Device& device, const Attention& attention,
                                       const Growth& growth) {
  const Problem problem = Problem::parse(attention.problem_text());
  const bool ring = problem.kv_layout == KvLayout::kRing;
  GrowingStep step(device, attention, ring ? growth.ring_capacity : growth.longest);
  const Stream stream = device.create_stream();
  const Graph graph =
      device.capture(stream.get(), [&] { attention.launch(step.args(), stream.get()); });
  for (const int kv_len : growing_lengths(attention, growth)) {
    step.grow_to(kv_len, stream.get());
    device.launch(graph, stream.get());
    EXPECT_LE(step.error(stream.get()), kv_len >= kLongKvLen ? kMaxRelativeL2 : kMaxEdgeRelativeL2)
        << "kv_len=" << kv_len << " candidate=" << attention.candidate_text();
  }
}

}  // namespace attune
