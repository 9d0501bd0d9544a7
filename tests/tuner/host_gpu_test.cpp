// The same binary problem on the GPU and on the host device: how far apart the results are.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tests/support/require_gpu.h"
#include "tuner/space.h"
#include "tuner/verify.h"

namespace attune {
namespace {

// What differs is 2^x, log2 x and 1/x, which the GPU approximates within 2 ulp and the host rounds
// correctly, and sums that NVRTC contracts to fma; both are far below a step of bf16, so a result
// moves by one step where it stood near the middle between two.
constexpr double kMaxRelativeL2 = 5e-4;

template <typename T>
DeviceMem upload(Device& device, const std::vector<T>& data) {
  DeviceMem mem = device.allocate(data.size() * sizeof(T));
  device.copy_to_device(mem.ptr(), std::as_bytes(std::span(data)), nullptr);
  return mem;
}

// The output of one case as bf16.
std::vector<std::uint16_t> output_of(Device& device, const Compiler& compiler,
                                     const VerifyCase& one, const Candidate& candidate) {
  const AttentionInputs& in = one.inputs;
  const Problem& problem = in.problem;
  const Variant variant = candidate.variant(problem);
  const LaunchPlan plan = plan_launch(problem, candidate);
  const AttentionKernels kernels = load_attention(
      device, compiler.compile(attention_source(variant), device.info().arch), variant, plan);
  const DeviceMem q = upload(device, in.q), k = upload(device, in.k), v = upload(device, in.v);
  const DeviceMem kv_len = upload(device, in.kv_len);
  const DeviceMem out = device.allocate(in.q.size() * kBytesPerElement);
  const DeviceMem workspace = device.allocate(plan.workspace_bytes());
  AttentionParams params{};
  params.q = reinterpret_cast<const void*>(q.ptr());
  params.k = reinterpret_cast<const void*>(k.ptr());
  params.v = reinterpret_cast<const void*>(v.ptr());
  params.out = reinterpret_cast<void*>(out.ptr());
  params.kv_len = reinterpret_cast<const int*>(kv_len.ptr());
  params.q_head_stride = params.k_head_stride = params.v_head_stride = params.out_head_stride =
      problem.head_dim;
  params.q_token_stride = params.out_token_stride =
      std::int64_t{1} * problem.num_q_heads * problem.head_dim;
  params.q_batch_stride = params.out_batch_stride = problem.seqlen_q * params.q_token_stride;
  params.k_token_stride = params.v_token_stride =
      std::int64_t{1} * problem.num_kv_heads * problem.head_dim;
  params.k_batch_stride = params.v_batch_stride = in.capacity * params.k_token_stride;
  params.kv_capacity = in.capacity;
  params.ring_capacity = problem.kv_layout == KvLayout::kRing ? in.capacity : 0;
  params.sm_scale = in.sm_scale;
  params.softcap = in.softcap;
  set_plan_params(problem, plan, workspace.ptr(), &params);
  launch_attention(device, kernels, plan, params, nullptr);
  std::vector<std::uint16_t> result(in.q.size());
  device.copy_to_host(std::as_writable_bytes(std::span(result)), out.ptr(), nullptr);
  return result;
}

struct Difference {
  std::size_t num_values = 0, num_different = 0;
  double max_abs = 0, relative_l2 = 0;
};

Difference difference_of(const std::vector<std::uint16_t>& gpu,
                         const std::vector<std::uint16_t>& host) {
  Difference found;
  std::vector<double> a, b;
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    a.push_back(bf16_to_float(host[i]));
    b.push_back(bf16_to_float(gpu[i]));
    found.num_different += gpu[i] != host[i] ? 1 : 0;
    found.max_abs = std::max(found.max_abs, std::abs(a.back() - b.back()));
  }
  found.num_values = gpu.size();
  found.relative_l2 = relative_l2(a, b);
  return found;
}

class HostAndGpu : public GpuTest, public testing::WithParamInterface<const char*> {};

TEST_P(HostAndGpu, AgreeUpToApproximatedFunctions) {
  const HostBench host;
  const Problem problem = Problem::parse(GetParam());
  Candidate candidate = default_candidate(problem, device().info());
  candidate.split_cap = 3;
  for (const VerifyCase& one : verify_cases(problem, 1)) {
    const auto on_gpu = output_of(device(), compiler(), one, candidate);
    const auto on_host = output_of(*host.device, *host.compiler, one, candidate);
    const Difference found = difference_of(on_gpu, on_host);
    EXPECT_LE(found.relative_l2, kMaxRelativeL2) << one.name;
    std::printf("%s %s case=%s values=%zu different=%zu largest=%.3e relative_l2=%.3e\n",
                GetParam(), candidate.text().c_str(), one.name.c_str(), found.num_values,
                found.num_different, found.max_abs, found.relative_l2);
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, HostAndGpu,
                         testing::Values("decode/b1/q1/kv1-8192/h8x1/d512/contiguous/bf16",
                                         "verify/b1/q8/kv1-8192/h8x1/d512/contiguous/bf16",
                                         "verify/b1/q5/kv1-8192/h4x2/d256/w300/ring/bf16",
                                         "verify/b2/q5/kv1-8192/h3x1/d128/softcap/contiguous/bf16",
                                         "decode/b1/q1/kv1-8192/h2x2/d64/w17/ring/bf16"));

}  // namespace
}  // namespace attune
