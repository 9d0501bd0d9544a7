// Times linear layers of few tokens in each config, of bf16 and of packed weights, cold and back to
// back as in a model, against the read bandwidth of the same run. Prints CSV.
//   attune-linear-bench [--device N] [--weights bf16|int4] [OUTxIN[:geglu|:logits] ...]
// By default the layers of Gemma 4 31B with both.
// Exit code: 0 measured, 1 an error, 2 usage, 3 no GPU or NVRTC.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "common/text.h"
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
constexpr int kMostFeatures = 1 << 20;
constexpr int kMostOrdinal = 1023;

const std::map<std::string_view, LinearEpilogue> kEpilogues = {
    {"", LinearEpilogue::kStore},
    {":geglu", LinearEpilogue::kGeglu},
    {":logits", LinearEpilogue::kLogits}};

LinearShape parse_shape(const std::string& text) {
  const std::string_view sizes = std::string_view(text).substr(0, text.find(':'));
  const std::vector<std::string_view> parts = split(sizes, 'x');
  const auto out = parse_int(parts.front()), in = parse_int(parts.back());
  const auto epilogue = kEpilogues.find(std::string_view(text).substr(sizes.size()));
  const auto fits = [](std::int64_t size) { return size >= 1 && size <= kMostFeatures; };
  if (parts.size() != 2 || !out || !in || !fits(*out) || !fits(*in) ||
      epilogue == kEpilogues.end()) {
    throw InvalidArgument("no shape", fmt::format("text='{}'", text),
                          fmt::format("write OUTxIN[:geglu|:logits], 1 to {} each", kMostFeatures));
  }
  return {static_cast<int>(*out), static_cast<int>(*in), epilogue->second};
}

std::string text_of(const LinearShape& shape) {
  const auto has_epilogue = [&](const auto& known) { return known.second == shape.epilogue; };
  const auto epilogue = std::find_if(kEpilogues.begin(), kEpilogues.end(), has_epilogue);
  return fmt::format("{}x{}{}", shape.out_features, shape.in_features, epilogue->first);
}

std::vector<KernelConfig> configs(const DeviceInfo& device, LinearWeights weights) {
  std::vector<KernelConfig> all;
  for (const int block_m : {1, 8, 16}) {
    if (block_m == 1 && weights == LinearWeights::kBf16) continue;
    for (const int block_n : {16, 32, 48, 64}) {
      for (const int num_stages : {2, 3, 4, 5, 6, 8}) {
        const KernelConfig config{block_m, block_n, num_stages, linear_warps(weights)};
        const int smem = linear_smem_bytes(config, weights);
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
    const std::size_t bytes = linear_weight_bytes(shape);
    const int num_sets = static_cast<int>(kColdBytes / bytes) + 2;
    const DeviceMem weights = noise(bytes * static_cast<std::size_t>(num_sets));
    const DeviceMem input = noise(std::size_t{2} * kMaxLinearTokens * shape.in_features);
    const DeviceMem out = device_.allocate(std::size_t{4} * kMaxLinearTokens * shape.out_features);
    const double floor_us = 1e6 * static_cast<double>(bytes) / ceilings_.read_bytes_per_s;
    for (const KernelConfig& config : configs(device_.info(), shape.weights)) {
      const LinearKernel linear{load(config, shape), config, shape,
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
        fmt::print("{},{},{},{},{:.2f},{:.2f},{:.2f},{:.1f}\n", text_of(shape),
                   name_of(shape.weights), text_of(config), num_tokens, median,
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
  Kernel load(const KernelConfig& config, const LinearShape& shape) {
    const Source source = linear_source(config, shape.epilogue, shape.weights);
    auto found = modules_.find(source.symbols.front());
    if (found == modules_.end()) {
      const std::string& arch = device_.info().arch;
      found =
          modules_.emplace(source.symbols.front(), device_.load(compiler_.compile(source, arch)))
              .first;
    }
    return device_.kernel(found->second, source.symbols.front(),
                          linear_smem_bytes(config, shape.weights));
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

int parse_ordinal(const std::string& text) {
  const auto ordinal = parse_int(text);
  if (!ordinal || *ordinal < 0 || *ordinal > kMostOrdinal) {
    throw InvalidArgument("no GPU", fmt::format("device='{}'", text),
                          "use the number of a GPU, as in --device 0");
  }
  return static_cast<int>(*ordinal);
}

// Takes the value of `flag` out of the arguments; empty: it is not there.
std::string take_flag(std::vector<std::string>& arguments, std::string_view flag) {
  const auto found = std::find(arguments.begin(), arguments.end(), flag);
  if (found == arguments.end()) return "";
  const auto value = found + 1;
  if (value == arguments.end()) {
    throw InvalidArgument("a flag lacks its value", fmt::format("flag={}", flag));
  }
  std::string text = *value;
  arguments.erase(found, value + 1);
  return text;
}

std::vector<LinearWeights> parse_weights(std::string_view text) {
  if (text.empty()) return {LinearWeights::kBf16, LinearWeights::kInt4};
  if (text == "bf16") return {LinearWeights::kBf16};
  if (text == "int4") return {LinearWeights::kInt4};
  throw InvalidArgument("no such weights", fmt::format("weights='{}'", text),
                        "use bf16 or int4, or leave the flag out for both");
}

int run(std::vector<std::string> arguments) {
  const std::string device_text = take_flag(arguments, "--device");
  const int ordinal = device_text.empty() ? 0 : parse_ordinal(device_text);
  const auto all_weights = parse_weights(take_flag(arguments, "--weights"));
  if (arguments.empty()) {
    arguments = {"16384x5376",       "18432x5376", "5376x8192",         "5376x16384",
                 "21504x5376:geglu", "5376x21504", "262144x5376:logits"};
  }
  std::vector<LinearShape> shapes;
  for (const std::string& argument : arguments) shapes.push_back(parse_shape(argument));
  const auto device = open_cuda_device(ordinal);
  const auto compiler =
      open_compiler({.nvrtc = {Options::from_environment().nvrtc_path, {}}}, device->info().arch);
  LinearBench bench(*device, *compiler);
  fmt::print("# {} driver {}, reads {:.3f} TB/s; cold weights, graph, launches back to back\n",
             device->info().name, device->info().driver_version,
             1e-12 * bench.ceilings().read_bytes_per_s);
  fmt::print("shape,weights,config,tokens,median_us,iqr_us,floor_us,percent_of_floor\n");
  for (LinearShape shape : shapes) {
    for (const LinearWeights weights : all_weights) {
      shape.weights = weights;
      bench.run(shape);
    }
  }
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
