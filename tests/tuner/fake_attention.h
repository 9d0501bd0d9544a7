// Attention as a kernel of the fake device: computes with the CPU reference on the "device" memory
// that the launch's parameters describe, and takes a time of the test's choice.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "common/text.h"
#include "templates/family.h"
#include "templates/params.h"
#include "tests/support/fake_device.h"
#include "tuner/compile_stage.h"
#include "tuner/reference.h"

namespace attune {

// The variant that a split kernel's symbol spells.
inline Variant variant_of_symbol(std::string symbol) {
  std::replace(symbol.begin(), symbol.end(), '_', '/');
  return Variant::parse(symbol);
}

inline Problem problem_of(const Variant& variant, const AttentionParams& p) {
  Problem problem;
  problem.op = p.seqlen_q == 1 ? Op::kDecode : Op::kVerify;
  problem.batch = p.batch;
  problem.seqlen_q = p.seqlen_q;
  problem.num_kv_heads = p.num_kv_heads;
  problem.num_q_heads = p.num_kv_heads * p.group_size;
  problem.head_dim = variant.head_dim;
  problem.window = p.window;
  problem.causal = p.causal != 0;
  problem.softcap = variant.softcap;
  problem.kv_layout = variant.kv_layout;
  return problem;
}

inline AttentionInputs gather_inputs(const Variant& variant, const AttentionParams& p) {
  AttentionInputs in;
  in.problem = problem_of(variant, p);
  in.kv_len.assign(p.kv_len, p.kv_len + p.batch);
  for (int& length : in.kv_len) length += p.kv_len_add;
  in.capacity = variant.kv_layout == KvLayout::kRing
                    ? p.ring_capacity
                    : std::max(1, *std::max_element(in.kv_len.begin(), in.kv_len.end()));
  in.sm_scale = p.sm_scale;
  in.softcap = p.softcap;
  const auto gather = [&](const void* from, const int* places, int tokens, int heads,
                          int64 batch_stride, int64 token_stride, int64 head_stride) {
    std::vector<std::uint16_t> dense;
    for (int b = 0; b < p.batch; ++b) {
      const int place = places == nullptr ? b : places[b];
      for (int t = 0; t < tokens; ++t) {
        for (int h = 0; h < heads; ++h) {
          const auto* row = static_cast<const std::uint16_t*>(from) + place * batch_stride +
                            t * token_stride + h * head_stride;
          dense.insert(dense.end(), row, row + variant.head_dim);
        }
      }
    }
    return dense;
  };
  in.q = gather(p.q, nullptr, p.seqlen_q, in.problem.num_q_heads, p.q_batch_stride,
                p.q_token_stride, p.q_head_stride);
  in.k = gather(p.k, p.sequence, in.capacity, p.num_kv_heads, p.k_batch_stride, p.k_token_stride,
                p.k_head_stride);
  in.v = gather(p.v, p.sequence, in.capacity, p.num_kv_heads, p.v_batch_stride, p.v_token_stride,
                p.v_head_stride);
  return in;
}

// What the real kernels together do.
inline void compute_attention(const Variant& variant, const AttentionParams& p) {
  const AttentionInputs in = gather_inputs(variant, p);
  const AttentionOutputs answer = reference_attention(in, 1);
  for (int b = 0; b < p.batch; ++b) {
    for (int t = 0; t < p.seqlen_q; ++t) {
      for (int h = 0; h < in.problem.num_q_heads; ++h) {
        const std::size_t row = (std::size_t{1} * b * p.seqlen_q + t) * in.problem.num_q_heads + h;
        auto* out = static_cast<std::uint16_t*>(p.out) + b * p.out_batch_stride +
                    t * p.out_token_stride + h * p.out_head_stride;
        for (int d = 0; d < variant.head_dim; ++d) {
          out[d] = float_to_bf16(static_cast<float>(answer.out[row * variant.head_dim + d]));
        }
        if (p.lse != nullptr) p.lse[row] = static_cast<float>(answer.lse[row]);
      }
    }
  }
}

// Verification launches have padding between the rows; timing ones are dense and need no answer.
inline bool is_verification(const AttentionParams& p) {
  return p.k_token_stride != p.num_kv_heads * p.k_head_stride;
}

// A device of little L2, so that timing buffers stay small.
inline DeviceInfo small_l2_device_info() {
  DeviceInfo info = fake_device_info();
  info.l2_bytes = std::size_t{1} << 20;
  return info;
}

// Makes `device` compute attention. `cost_us` is the time of one split kernel; `tamper`, when set,
// runs after a verification launch and may damage its result.
inline void serve_attention(
    FakeDevice& device, std::function<double(const Variant&, const AttentionParams&)> cost_us,
    std::function<void(const Variant&, const AttentionParams&)> tamper = {}) {
  device.on_launch = [&device, cost_us = std::move(cost_us), tamper = std::move(tamper)](
                         const Kernel& kernel, const KernelLaunch&, const void* params) {
    const std::string& symbol = FakeDevice::symbol_of(kernel);
    const std::string family = symbol.substr(0, symbol.find('_'));
    if (family != "splitkv" && family != "tiled" && family != "slices") {
      device.now_us += 1;
      return;
    }
    const auto& p = *static_cast<const AttentionParams*>(params);
    const Variant variant = variant_of_symbol(symbol);
    device.now_us += cost_us(variant, p);
    if (!is_verification(p)) return;
    compute_attention(variant, p);
    if (tamper) tamper(variant, p);
  };
}

// Compiles to a binary that holds nothing but the source's digest.
class FakeCompiles : public CompileService {
 public:
  std::string compiler_version() const override { return "13.0"; }
  Digest key(const Source& source, const std::string& arch) const override {
    return digest_of(source.text + arch);
  }
  std::size_t run(const NextJob& next, const std::function<void(CompileOutcome)>& done,
                  const std::function<bool()>& stop) override {
    std::size_t count = 0;
    while (!(stop && stop())) {
      const auto job = next();
      if (!job) break;
      ++num_compiled;
      CompileOutcome outcome{job->id, compile(*job), "", ""};
      if (on_compile) on_compile(*job, &outcome);
      done(std::move(outcome));
      ++count;
    }
    return count;
  }

  // May turn an outcome into a failure or give its kernels spills.
  std::function<void(const CompileJob&, CompileOutcome*)> on_compile;
  int num_compiled = 0;

 private:
  Binary compile(const CompileJob& job) const {
    Binary binary;
    binary.key = key(job.source, job.arch);
    for (const char c : binary.key.text()) binary.cubin.push_back(static_cast<std::byte>(c));
    binary.content = digest_of(binary.cubin);
    binary.arch = job.arch;
    binary.compiler_version = compiler_version();
    binary.options = compile_options(job.arch);
    if (job.source.split_symbol.empty()) return binary;  // measuring kernels
    for (const std::string& symbol : {job.source.split_symbol, job.source.combine_symbol}) {
      KernelResources kernel;
      kernel.symbol = symbol;
      kernel.registers = 64;
      binary.kernels.push_back(kernel);
    }
    return binary;
  }
};

}  // namespace attune
