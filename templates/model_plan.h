// Launches of a model's kernels beside its attention: pure arithmetic.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "templates/family.h"
#include "templates/launch_plan.h"
#include "templates/linear_shape.h"
#include "templates/model_config.h"
#include "templates/model_params.h"
#include "templates/per_layer_params.h"

namespace attune {

// Of W as it lies in memory; of experts that of all.
std::size_t linear_weight_bytes(const LinearShape& shape);

// What the template's static_asserts and a launch of this shape refuse, if anything.
std::optional<Unsupported> linear_limits(const LinearShape& shape, const KernelConfig& config);

struct LinearPlan {
  KernelLaunch launch;
  int num_passes = 1;        // of a CTA; of experts the tiles of one expert
  int outputs_per_pass = 1;  // most of a pass: rows of a box
};

// The config of a layer of so many tokens without any measurement: the most rows of a slot, so that a CTA
// needs few passes (one for the 41 rows that an H200's CTA has of 5376), with which two slots of every
// warp find room: one is multiplied while the other is filled. Packed rows may take more or fewer, where
// those suit what a CTA has. The bits do not depend on it. Empty where nothing finds room.
std::optional<KernelConfig> default_linear_config(const LinearShape& shape, int tokens,
                                                  int max_smem_bytes, int num_sms);

// Dynamic shared memory of a layer's CTA.
int linear_smem_bytes(const LinearShape& shape, const KernelConfig& config);

// One CTA an SM. The tiles of experts are of a size with which those of one token keep all SMs busy. Throws
// InvalidArgument where linear_limits refuses.
LinearPlan plan_linear(const LinearShape& shape, const KernelConfig& config, int num_sms);

// Threads of residual.cuh's CTA, a row's. Throws InvalidArgument where `hidden` is outside of what it
// admits.
int residual_threads(int hidden);
KernelLaunch plan_residual(int hidden, int num_tokens);
KernelLaunch plan_argmax(int num_rows);
// `width` is a multiple of 8.
KernelLaunch plan_gate(int num_tokens, int width);
// Of up to so many rows, whose blocks are on the grid's y. Throws InvalidArgument for more.
constexpr int kMostDequantizedRows = 65535 * kDequantizeRows;
KernelLaunch plan_dequantize(int num_rows, int in_features);

// Chunks of a row that a lane of per_layer.cuh holds. Throws InvalidArgument where `width` is outside of
// what it admits.
int per_layer_chunks(int width);
KernelLaunch plan_per_layer_inputs(int num_layers, int num_tokens);
KernelLaunch plan_per_layer_gate(int num_tokens);

}  // namespace attune
