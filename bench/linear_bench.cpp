// Times linear layers of few tokens in each config, cold and back to back as in a model, against the
// read bandwidth of the same run. Prints CSV.
//   attune-linear-bench [--device N] [OUTxIN[:geglu|:logits] ...]    default: Gemma 4 31B
// Exit code: 0 measured, 1 an error, 2 usage, 3 no GPU or NVRTC.
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/compiler.h"
#include "jit/cuda_device.h"
#include "jit/linear.h"
#include "jit/model_source.h"
#include "runtime/attune.h"
#include "tuner/timer.h"

namespace attune {
namespace {

// Sets of weights that launches take in turn: more than any L2 holds.
constexpr std::size_t kColdBytes = std::size_t{1} << 30;
constexpr int kLeastLaunches = 12;
constexpr int kSamples = 15;

LinearShape parse_shape(const std::string& text) {
  LinearShape shape;
  char kind[16] = {};
  if (std::sscanf(text.c_str(), "%dx%d:%15s", &shape.out_features, &shape.in_features, kind) < 2) {
    throw InvalidArgument("no shape", fmt::format("text='{}'", text),
                          "write OUTxIN[:geglu|:logits]");
  }
  const std::string epilogue = kind;
  if (epilogue == "geglu") shape.epilogue = LinearEpilogue::kGeglu;
  if (epilogue == "logits") shape.epilogue = LinearEpilogue::kLogits;
  return shape;
}

std::vector<KernelConfig> configs(const DeviceInfo& device) {
  std::vector<KernelConfig> all;
  for (const int block_m : {8, 16}) {
    for (const int block_n : {16, 32, 48, 64}) {
      for (const int num_stages : {2, 3, 4, 5, 6, 8}) {
        const KernelConfig config{block_m, block_n, num_stages, kLinearWarps};
        const int smem = linear_smem_bytes(config, LinearWeights::kBf16);
        if (smem <= device.max_smem_per_block_bytes && 2 * smem > device.smem_per_sm_bytes / 2) {
          all.push_back(config);
        }
      }
    }
  }
  return all;
}

class LinearBench {
 public:
  LinearBench(Device& device, const Compiler& compiler)
      : device_(device),
        compiler_(compiler),
        probes_(
            device.load(compiler.compile(probe_source(device.info().arch), device.info().arch))),
        fill_(device.kernel(probes_, "fill_noise", 0)),
        ceilings_(measure_ceilings(device, compiler)),
        stream_(device.create_stream()) {}

  void run(const LinearShape& shape) {
    const std::size_t bytes =
        std::size_t{2} * shape.weight_rows() * static_cast<std::size_t>(shape.in_features);
    const int num_sets = static_cast<int>(kColdBytes / bytes) + 2;
    const DeviceMem weights = noise(bytes * static_cast<std::size_t>(num_sets));
    const DeviceMem input = noise(std::size_t{2} * kMaxLinearTokens * shape.in_features);
    const DeviceMem out = device_.allocate(std::size_t{4} * kMaxLinearTokens * shape.out_features);
    const double floor_us = 1e6 * static_cast<double>(bytes) / ceilings_.read_bytes_per_s;
    for (const KernelConfig& config : configs(device_.info())) {
      const LinearKernel linear{load(config, shape.epilogue), config, shape,
                                plan_linear(shape, config, device_.info().num_sms)};
      for (const int num_tokens : {1, 8, 16}) {
        if (num_tokens > config.block_m || (num_tokens <= 8 && config.block_m == 16)) continue;
        const int launches = std::max(kLeastLaunches, num_sets);
        const Graph graph = device_.capture(stream_.get(), [&] {
          for (int i = 0; i < launches; ++i) {
            launch_linear(
                device_, linear,
                {.weights = weights.ptr() + bytes * static_cast<std::size_t>(i % num_sets),
                 .input = input.ptr(),
                 .out = out.ptr(),
                 .num_tokens = num_tokens},
                stream_.get());
          }
        });
        const std::vector<double> times = samples(graph, launches);
        const double median = times[times.size() / 2];
        fmt::print("{}x{}{},{},{},{:.2f},{:.2f},{:.2f},{:.1f}\n", shape.out_features,
                   shape.in_features, shape.epilogue == LinearEpilogue::kGeglu ? ":geglu" : "",
                   text_of(config), num_tokens, median,
                   times[times.size() * 3 / 4] - times[times.size() / 4], floor_us,
                   100 * floor_us / median);
        std::fflush(stdout);
      }
    }
  }

  const Ceilings& ceilings() const { return ceilings_; }

 private:
  DeviceMem noise(std::size_t bytes) {
    DeviceMem memory = device_.allocate(bytes);
    const FillParams params{reinterpret_cast<void*>(memory.ptr()), bytes, 7};
    KernelLaunch launch;
    launch.grid = {static_cast<unsigned>(8 * device_.info().num_sms), 1, 1};
    launch.block = {256, 1, 1};
    device_.launch(fill_, launch, &params, nullptr);
    device_.synchronize(nullptr);
    return memory;
  }
  Kernel load(const KernelConfig& config, LinearEpilogue epilogue) {
    const Source source = linear_source(config, epilogue);
    auto found = modules_.find(source.symbols.front());
    if (found == modules_.end()) {
      const std::string& arch = device_.info().arch;
      found =
          modules_.emplace(source.symbols.front(), device_.load(compiler_.compile(source, arch)))
              .first;
    }
    return device_.kernel(found->second, source.symbols.front(),
                          linear_smem_bytes(config, LinearWeights::kBf16));
  }
  // Microseconds a launch, ascending.
  std::vector<double> samples(const Graph& graph, int launches) {
    const Event begin = device_.create_event(), end = device_.create_event();
    std::vector<double> times;
    for (int i = 0; i <= kSamples; ++i) {
      device_.record(begin, stream_.get());
      device_.launch(graph, stream_.get());
      device_.record(end, stream_.get());
      const double us = device_.elapsed_us(begin, end) / launches;
      if (i > 0) times.push_back(us);  // the first one warms up
    }
    std::sort(times.begin(), times.end());
    return times;
  }

  Device& device_;
  const Compiler& compiler_;
  Module probes_;
  Kernel fill_;
  Ceilings ceilings_;
  Stream stream_;
  std::map<std::string, Module> modules_;
};

int run(std::vector<std::string> shapes) {
  int ordinal = 0;
  if (shapes.size() >= 2 && shapes[0] == "--device") {
    ordinal = std::stoi(shapes[1]);
    shapes.erase(shapes.begin(), shapes.begin() + 2);
  }
  if (shapes.empty()) {
    shapes = {"16384x5376",       "18432x5376", "5376x8192",         "5376x16384",
              "21504x5376:geglu", "5376x21504", "262144x5376:logits"};
  }
  const auto device = open_cuda_device(ordinal);
  const auto compiler =
      open_compiler({.nvrtc = {Options::from_environment().nvrtc_path, {}}}, device->info().arch);
  LinearBench bench(*device, *compiler);
  fmt::print("# {} driver {}, reads {:.3f} TB/s; cold weights, graph, launches back to back\n",
             device->info().name, device->info().driver_version,
             1e-12 * bench.ceilings().read_bytes_per_s);
  fmt::print("shape,config,tokens,median_us,iqr_us,floor_us,percent_of_floor\n");
  for (const std::string& shape : shapes) bench.run(parse_shape(shape));
  return 0;
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) {
  try {
    return attune::run({argv + 1, argv + argc});
  } catch (const attune::InvalidArgument& error) {
    std::cerr << error.what() << "\n";
    return 2;
  } catch (const attune::DeviceUnavailable& error) {
    std::cerr << error.what() << "\n";
    return 3;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
