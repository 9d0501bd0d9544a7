#include "jit/linear.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/expert_params.h"

namespace attune {

TensorMap linear_row_map(Device& device, DevicePtr address, int columns, int rows, int box_columns,
                         int box_rows) {
  TensorMapSpec spec;
  spec.rank = 2;
  spec.address = address;
  spec.size = {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows)};
  spec.stride_bytes = {static_cast<std::uint64_t>(columns) * kBytesPerElement};
  spec.box = {static_cast<std::uint32_t>(box_columns), static_cast<std::uint32_t>(box_rows)};
  spec.swizzle = box_columns == kLinearColumns ? TensorMapSwizzle::k128 : TensorMapSwizzle::kNone;
  return device.tensor_map(spec);
}

DeviceMem expert_list(Device& device, std::span<const int> entries, StreamHandle stream) {
  std::vector<int> list = {static_cast<int>(entries.size())};
  list.insert(list.end(), entries.begin(), entries.end());
  DeviceMem memory = device.allocate(list.size() * sizeof(int));
  device.copy_to_device(memory.ptr(), std::as_bytes(std::span(list)), stream);
  device.synchronize(stream);
  return memory;
}

void launch_linear(Device& device, const LinearKernel& linear, const LinearArgs& args,
                   StreamHandle stream) {
  const LinearShape& shape = linear.shape;
  if (args.num_tokens < 1 || args.num_tokens > linear.config.block_m) {
    throw InvalidArgument("cannot launch a linear layer",
                          fmt::format("num_tokens={}", args.num_tokens),
                          fmt::format("its kernel takes 1 to {}", linear.config.block_m));
  }
  const int box = linear.plan.outputs_per_pass;
  const int columns = shape.in_features;
  ExpertParams experts{};
  LinearParams& p = experts.linear;
  p.weight_rows = shape.all_weight_rows();
  if (shape.weights == LinearWeights::kInt4) {
    p.packed = reinterpret_cast<const void*>(args.weights);
  } else {
    const auto rows = [&](int box_rows) {
      return linear_row_map(device, args.weights, columns, p.weight_rows, kLinearColumns, box_rows);
    };
    p.weight_map = rows(box);
    p.short_weight_map = rows(std::max(1, box - 1));
  }
  const int input_columns =
      linear_panel_columns(shape.weights) / linear_input_boxes(linear.config, shape.weights);
  const int num_inputs = shape.has_input_per_expert() ? args.most_entries : 1;
  p.input_map = linear_row_map(device, args.input, columns, num_inputs * args.num_tokens,
                               input_columns, args.num_tokens);
  p.out = reinterpret_cast<void*>(args.out);
  p.out_stride = shape.out_features;
  p.num_tokens = args.num_tokens;
  p.in_features = shape.in_features;
  p.out_features = shape.out_features;
  p.num_passes = linear.plan.num_passes;
  p.outputs_per_pass = box;
  p.softcap = args.softcap;
  experts.chosen = reinterpret_cast<const int*>(args.chosen);
  experts.input_rows = shape.has_input_per_expert() ? args.num_tokens : 0;
  // A kernel takes as many bytes as its own params have.
  const void* const params = shape.is_experts() ? static_cast<const void*>(&experts) : &p;
  device.launch(linear.kernel, linear.plan.launch, params, stream);
}

void quantize_int4(Device& device, const Kernel& kernel, DevicePtr rows, int num_rows,
                   int in_features, DevicePtr packed, StreamHandle stream) {
  constexpr int kMostRows = 65535;
  QuantizeParams p{reinterpret_cast<const uint16*>(rows), reinterpret_cast<void*>(packed), num_rows,
                   in_features, 0};
  KernelLaunch launch;
  launch.block = {kWarpSize, 1, 1};
  for (; p.first_row < num_rows; p.first_row += kMostRows) {
    launch.grid = {static_cast<unsigned>(linear_panels(LinearWeights::kInt4, in_features)),
                   static_cast<unsigned>(std::min(kMostRows, num_rows - p.first_row)), 1};
    device.launch(kernel, launch, &p, stream);
  }
}

}  // namespace attune
