#include "jit/experts.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/linear.h"

namespace attune {

void launch_experts(Device& device, const ExpertsKernel& experts, const ExpertsArgs& args,
                    StreamHandle stream) {
  const LinearShape& shape = experts.shape;
  if (args.num_tokens < 1 || args.num_tokens > experts.config.block_m) {
    throw InvalidArgument("cannot launch experts", fmt::format("num_tokens={}", args.num_tokens),
                          fmt::format("their kernel takes 1 to {}", experts.config.block_m));
  }
  const int box = experts.plan.outputs_per_pass;
  const int rows = experts.num_experts * shape.weight_rows();
  ExpertParams p{};
  LinearParams& linear = p.linear;
  linear.weight_rows = rows;
  if (shape.weights == LinearWeights::kInt4) {
    linear.packed = reinterpret_cast<const void*>(args.weights);
  } else {
    const auto map = [&](int box_rows) {
      return linear_row_map(device, args.weights, shape.in_features, rows, kLinearColumns,
                            box_rows);
    };
    linear.weight_map = map(box);
    linear.short_weight_map = map(std::max(1, box - 1));
  }
  const int num_inputs = args.has_input_per_entry ? args.most_entries : 1;
  const int input_columns =
      linear_panel_columns(shape.weights) / linear_input_boxes(experts.config, shape.weights);
  linear.input_map = linear_row_map(device, args.input, shape.in_features,
                                    num_inputs * args.num_tokens, input_columns, args.num_tokens);
  linear.out = reinterpret_cast<void*>(args.out);
  linear.out_stride = shape.out_features;
  linear.num_tokens = args.num_tokens;
  linear.in_features = shape.in_features;
  linear.out_features = shape.out_features;
  linear.num_passes = experts.plan.num_passes;
  linear.outputs_per_pass = box;
  p.chosen = reinterpret_cast<const int*>(args.chosen);
  p.input_rows = args.has_input_per_entry ? args.num_tokens : 0;
  device.launch(experts.kernel, experts.plan.launch, &p, stream);
}

}  // namespace attune
