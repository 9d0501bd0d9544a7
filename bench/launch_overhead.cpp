// What a served launch costs the host beyond the bare driver calls it makes, in nanoseconds.
// Exit code: 0 measured, 1 an error, 3 no GPU or NVRTC.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "jit/compiler.h"
#include "jit/cuda_device.h"
#include "jit/driver.h"
#include "jit/source.h"
#include "runtime/arguments.h"
#include "runtime/attune.h"
#include "runtime/attune_c.h"
#include "runtime/c_handles.h"

namespace attune {
namespace {

constexpr const char* kProblem = "decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16";
constexpr int kLaunchesPerSample = 200;  // fewer than what the driver queues before it blocks
constexpr int kRounds = 200;

// Buffers of one decode step over a single cached token: the shortest kernels there are.
struct Buffers {
  DeviceMem q, k, v, out, kv_len, workspace;
  AttentionArgs args;

  Buffers(Device& device, const Problem& problem, std::size_t workspace_bytes) {
    constexpr int kCapacity = 64;
    const auto zeros = [&](std::size_t bytes) {
      DeviceMem memory = device.allocate(bytes);
      device.fill_bytes(memory.ptr(), 0, bytes, nullptr);
      return memory;
    };
    const std::size_t q_bytes = std::size_t{2} * problem.num_q_heads * problem.head_dim;
    const std::size_t kv_bytes =
        std::size_t{2} * kCapacity * problem.num_kv_heads * problem.head_dim;
    q = zeros(q_bytes);
    out = zeros(q_bytes);
    k = zeros(kv_bytes);
    v = zeros(kv_bytes);
    workspace = zeros(workspace_bytes);
    kv_len = device.allocate(sizeof(int));
    const int one = 1;
    device.copy_to_device(kv_len.ptr(), std::as_bytes(std::span(&one, 1)), nullptr);
    device.synchronize(nullptr);
    args = {.q = q.ptr(),
            .k = k.ptr(),
            .v = v.ptr(),
            .out = out.ptr(),
            .kv_len = kv_len.ptr(),
            .workspace = workspace.ptr(),
            .capacity = kCapacity};
  }
};

// The driver calls of one launch and nothing else.
class BareLaunch {
 public:
  BareLaunch(Device& device, const Attention& attention, const AttentionArgs& args)
      : driver_(load_driver()),
        problem_(Problem::parse(attention.problem_text())),
        candidate_(Candidate::parse(attention.candidate_text())),
        plan_(plan_launch(problem_, candidate_)),
        params_(with_tensor_maps(device, plan_, attention_params(problem_, plan_, args))) {
    const Variant variant = candidate_.variant(problem_);
    const std::string& arch = device.info().arch;
    const auto compiler =
        open_compiler({.nvrtc = {Options::from_environment().nvrtc_path, {}}}, arch);
    const Binary binary = compiler->compile(attention_source(variant), arch);
    kernels_ = load_attention(device, binary, variant, plan_);
  }

  void operator()(StreamHandle stream) {
    launch(kernels_.split, plan_.split, stream);
    if (plan_.needs_combine) launch(kernels_.combine, plan_.combine, stream);
  }
  int num_kernels() const { return plan_.needs_combine ? 2 : 1; }

 private:
  void launch(const Kernel& kernel, const KernelLaunch& shape, StreamHandle stream) {
    void* arguments[] = {&params_};
    std::array<CuLaunchAttribute, 2> attributes{};
    unsigned num_attributes = 0;
    if (shape.programmatic) {
      attributes[num_attributes++] = {kLaunchProgrammaticSerialization, {.number = 1}};
    }
    if (shape.cluster != Dim3{}) {
      attributes[num_attributes++] = {
          kLaunchClusterDimension,
          {.cluster = {shape.cluster.x, shape.cluster.y, shape.cluster.z}}};
    }
    const CuLaunchConfig config{shape.grid.x,
                                shape.grid.y,
                                shape.grid.z,
                                shape.block.x,
                                shape.block.y,
                                shape.block.z,
                                static_cast<unsigned>(shape.smem_bytes),
                                stream,
                                attributes.data(),
                                num_attributes};
    if (const CuResult status =
            driver_->launch_kernel_ex(&config, kernel.function, arguments, nullptr)) {
      throw driver_->error("cannot launch the kernel", status);
    }
  }

  std::shared_ptr<const Driver> driver_;
  Problem problem_;
  Candidate candidate_;
  LaunchPlan plan_;
  AttentionParams params_;
  AttentionKernels kernels_;
};

double sample_ns(Device& device, StreamHandle stream, const std::function<void()>& launch) {
  device.synchronize(stream);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunchesPerSample; ++i) launch();
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count() / kLaunchesPerSample;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Every launch in turn, forwards and backwards, so that a drift of the clock hits all alike.
std::vector<double> medians_ns(Device& device, StreamHandle stream,
                               const std::vector<std::function<void()>>& launches) {
  std::vector<std::vector<double>> samples(launches.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < launches.size(); ++i) {
      const std::size_t which = round % 2 == 0 ? i : launches.size() - 1 - i;
      samples[which].push_back(sample_ns(device, stream, launches[which]));
    }
  }
  std::vector<double> medians;
  for (const auto& values : samples) medians.push_back(median(values));
  return medians;
}

void run() {
  Options options = Options::from_environment();
  options.cache_path.clear();
  Engine engine(options);
  const Attention attention = engine.prepare(kProblem);
  engine.seal();
  Device& device = engine.device();
  const Buffers buffers(device, Problem::parse(kProblem), attention.workspace_bytes());
  BareLaunch bare(device, attention, buffers.args);
  const Stream stream = device.create_stream();

  const attune_attention c_attention{attention};
  attune_args c_args{};
  c_args.struct_size = sizeof(c_args);
  c_args.q = buffers.args.q;
  c_args.k = buffers.args.k;
  c_args.v = buffers.args.v;
  c_args.out = buffers.args.out;
  c_args.kv_len = buffers.args.kv_len;
  c_args.workspace = buffers.args.workspace;
  c_args.capacity = buffers.args.capacity;
  c_args.sm_scale = buffers.args.sm_scale;

  // The context is current, as on a serving thread.
  const auto driver = load_driver();
  CuHandle context = nullptr;
  driver->primary_ctx_retain(&context, options.device_ordinal);
  driver->ctx_push_current(context);
  const auto ns = medians_ns(
      device, stream.get(),
      {[&] { bare(stream.get()); }, [&] { attention.launch(buffers.args, stream.get()); },
       [&] { attune_attention_launch(&c_attention, &c_args, stream.get()); }});
  device.synchronize(stream.get());
  driver->ctx_pop_current(&context);
  driver->primary_ctx_release(options.device_ordinal);

  std::cout << fmt::format("{} {} ({} kernels a launch), driver {}\n", device.info().name, kProblem,
                           bare.num_kernels(), device.info().driver_version);
  std::cout << fmt::format("bare driver calls        {:7.0f} ns\n", ns[0]);
  std::cout << fmt::format("Attention::launch        {:7.0f} ns  {:+.0f}\n", ns[1], ns[1] - ns[0]);
  std::cout << fmt::format("attune_attention_launch  {:7.0f} ns  {:+.0f}\n", ns[2], ns[2] - ns[0]);
}

}  // namespace
}  // namespace attune

int main() {
  try {
    attune::run();
    return 0;
  } catch (const attune::DeviceUnavailable& error) {
    std::cerr << error.what() << '\n';
    return 3;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
