#include "runtime/gemma4_experts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/model_source.h"
#include "runtime/device_pointer.h"
#include "templates/expert_plan.h"

namespace attune {
namespace {

LinearShape gate_up_of(const ModelConfig& config) {
  return {.out_features = config.expert_intermediate_size,
          .in_features = config.hidden_size(),
          .epilogue = LinearEpilogue::kGeglu,
          .num_experts = config.num_experts,
          .top_k = config.top_k_experts};
}
LinearShape down_of(const ModelConfig& config) {
  return {.out_features = config.hidden_size(),
          .in_features = config.expert_intermediate_size,
          .num_experts = config.num_experts,
          .top_k = config.top_k_experts};
}

}  // namespace

Gemma4Experts::Gemma4Experts(Engine& engine, const LinearLayers::Load& load,
                             const ModelConfig& config, LinearWeights weights, int longest_step)
    : device_(engine.device()),
      config_(config),
      router_(engine, std::array{LinearShape{config.num_experts, config.hidden_size(),
                                             LinearEpilogue::kLogits}}),
      experts_(engine, std::array{gate_up_of(config), down_of(config)}, weights) {
  const Source route = route_source(config.num_experts, config.top_k_experts);
  route_module_ = load(route);
  route_ = device_.kernel(route_module_->module, route.symbols.front(), 0);
  const Source steps = expert_steps_source(config.hidden_size());
  steps_module_ = load(steps);
  enter_ = device_.kernel(steps_module_->module, steps.symbols[0], 0);
  mix_ = device_.kernel(steps_module_->module, steps.symbols[1], 0);

  const auto tokens = static_cast<std::size_t>(longest_step);
  const auto hidden = static_cast<std::size_t>(config.hidden_size());
  const auto num_experts = static_cast<std::size_t>(config.num_experts);
  const auto top_k = static_cast<std::size_t>(config.top_k_experts);
  router_input_ = device_.allocate(tokens * hidden * kBytesPerElement);
  expert_input_ = device_.allocate(tokens * hidden * kBytesPerElement);
  scores_ = device_.allocate(tokens * num_experts * sizeof(float));
  route_weights_ = device_.allocate(tokens * top_k * sizeof(float));
  entries_ = device_.allocate(tokens * top_k * sizeof(int));
  const auto groups = static_cast<std::size_t>(num_expert_groups(longest_step));
  chosen_ = device_.allocate(groups * (1 + num_experts) * sizeof(int));
  const auto rows = static_cast<std::size_t>(
      most_expert_entries(longest_step, config.num_experts, config.top_k_experts) *
      std::min(longest_step, kMaxLinearTokens));
  activated_ = device_.allocate(rows * static_cast<std::size_t>(config.expert_intermediate_size) *
                                kBytesPerElement);
  expert_rows_ = device_.allocate(rows * hidden * kBytesPerElement);
}

DevicePtr Gemma4Experts::chosen_of(int first) const {
  const auto group = static_cast<DevicePtr>(first / kMaxLinearTokens);
  return chosen_.ptr() + group * static_cast<DevicePtr>(1 + config_.num_experts) * sizeof(int);
}

void Gemma4Experts::enter(const ResidualParams& step, const Gemma4LayerWeights& weights,
                          int num_tokens, StreamHandle stream) const {
  EnterExpertsParams p{};
  p.residual = step;
  p.router_weight = pointer<const uint16>(weights.router_scale);
  p.expert_weight = pointer<const uint16>(weights.expert_pre_feedforward_norm);
  p.router_out = pointer<uint16>(router_input_.ptr());
  p.expert_out = pointer<uint16>(expert_input_.ptr());
  device_.launch(enter_, plan_residual(step.hidden, num_tokens), &p, stream);
  router_.run({config_.num_experts, config_.hidden_size(), LinearEpilogue::kLogits},
              {.weights = weights.router_proj,
               .input = router_input_.ptr(),
               .out = scores_.ptr(),
               .num_tokens = num_tokens},
              stream);
  RouteParams r{};
  r.scores = pointer<const float>(scores_.ptr());
  r.expert_scale = pointer<const uint16>(weights.router_per_expert_scale);
  r.score_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.hidden_size())));
  r.num_tokens = num_tokens;
  r.num_experts = config_.num_experts;
  r.top_k = config_.top_k_experts;
  r.chosen = pointer<int>(chosen_.ptr());
  r.entries = pointer<int>(entries_.ptr());
  r.weights = pointer<float>(route_weights_.ptr());
  device_.launch(route_, plan_route(num_tokens), &r, stream);
}

void Gemma4Experts::run_group(const Gemma4LayerWeights& weights, int first, int num_tokens,
                              StreamHandle stream) const {
  LinearArgs args;
  args.weights = weights.expert_gate_up;
  args.input = expert_input_.ptr() +
               static_cast<DevicePtr>(first) * config_.hidden_size() * kBytesPerElement;
  args.out = activated_.ptr();
  args.chosen = chosen_of(first);
  args.num_tokens = num_tokens;
  args.most_entries = most_expert_entries(num_tokens, config_.num_experts, config_.top_k_experts);
  experts_.run(gate_up_of(config_), args, stream);
  args.weights = weights.expert_down;
  args.input = activated_.ptr();
  args.out = expert_rows_.ptr();
  experts_.run(down_of(config_), args, stream);
}

void Gemma4Experts::leave(const ResidualParams& step, const Gemma4LayerWeights& weights,
                          int num_tokens, StreamHandle stream) const {
  MixExpertsParams p{};
  p.dense_weight = pointer<const uint16>(weights.dense_post_feedforward_norm);
  p.expert_weight = pointer<const uint16>(weights.expert_post_feedforward_norm);
  p.rows = pointer<const uint16>(expert_rows_.ptr());
  p.top_k = config_.top_k_experts;
  for (int first = 0; first < num_tokens; first += kMaxLinearTokens) {
    p.num_tokens = std::min(num_tokens - first, kMaxLinearTokens);
    run_group(weights, first, p.num_tokens, stream);
    p.residual = step;
    p.residual.branch += static_cast<int64>(first) * step.hidden;
    p.residual.from += first * step.from_stride;
    p.residual.stream += static_cast<int64>(first) * step.hidden;
    if (step.out != nullptr) p.residual.out += first * step.out_stride;
    if (step.tap != nullptr) p.residual.tap += first * step.tap_stride;
    p.entries = pointer<const int>(entries_.ptr()) + first * p.top_k;
    p.weights = pointer<const float>(route_weights_.ptr()) + first * p.top_k;
    device_.launch(mix_, plan_residual(step.hidden, p.num_tokens), &p, stream);
  }
}

std::size_t Gemma4Experts::bytes() const {
  std::size_t sum = 0;
  for (const DeviceMem* one : {&router_input_, &expert_input_, &scores_, &route_weights_, &chosen_,
                               &entries_, &activated_, &expert_rows_}) {
    sum += one->bytes();
  }
  return sum;
}

}  // namespace attune
