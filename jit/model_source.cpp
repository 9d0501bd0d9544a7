#include "jit/model_source.h"

#include <string_view>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/expert_plan.h"
#include "templates/model_plan.h"

namespace attune {
namespace {

constexpr std::string_view kLinearText =
    R"(#include "templates/{family}.cuh"

constexpr attune::KernelConfig kConfig{{
    .block_m = {block_m}, .block_n = {block_n}, .num_stages = {num_stages}, .num_warps = {num_warps}}};
static_assert(sizeof(attune::{params}) == {params_bytes}, "host and device disagree on {params}");
static_assert(attune::{family}_smem_bytes(kConfig, attune::LinearWeights::{weights}) == {smem_bytes}, "host and device disagree on smem");

extern "C" __global__ void __launch_bounds__({threads}, 1)
{symbol}(const __grid_constant__ attune::{params} p) {{
  attune::{family}<kConfig, attune::LinearEpilogue::{epilogue}, attune::LinearWeights::{weights}>(p);
}}
)";

constexpr std::string_view kResidualText =
    R"(#include "templates/residual.cuh"

static_assert(sizeof(attune::ResidualParams) == {params_bytes}, "host and device disagree on ResidualParams");

extern "C" __global__ void __launch_bounds__({threads}, 1)
residual_t{threads}(const __grid_constant__ attune::ResidualParams p) {{
  attune::residual<{threads}, false>(p);
}}

extern "C" __global__ void __launch_bounds__({threads}, 1)
embed_t{threads}(const __grid_constant__ attune::ResidualParams p) {{
  attune::residual<{threads}, true>(p);
}}
)";

constexpr std::string_view kArgmaxText =
    R"(#include "templates/argmax.cuh"

static_assert(sizeof(attune::ArgmaxParams) == {params_bytes}, "host and device disagree on ArgmaxParams");

extern "C" __global__ void __launch_bounds__(attune::kArgmaxThreads)
argmax(const __grid_constant__ attune::ArgmaxParams p) {{
  attune::argmax(p);
}}
)";

constexpr std::string_view kQuantizeText =
    R"(#include "templates/quantize.cuh"

static_assert(sizeof(attune::QuantizeParams) == {params_bytes}, "host and device disagree on QuantizeParams");

extern "C" __global__ void __launch_bounds__(attune::kWarpSize)
quantize_int4(const __grid_constant__ attune::QuantizeParams p) {{
  attune::quantize_int4(p);
}}
)";

constexpr std::string_view kDequantizeText =
    R"(#include "templates/dequantize.cuh"

static_assert(sizeof(attune::DequantizeParams) == {params_bytes}, "host and device disagree on DequantizeParams");

extern "C" __global__ void __launch_bounds__(attune::kDequantizeWarps * attune::kWarpSize)
dequantize_int4(const __grid_constant__ attune::DequantizeParams p) {{
  attune::dequantize_int4(p);
}}
)";

constexpr std::string_view kGateText =
    R"(#include "templates/gate.cuh"

static_assert(sizeof(attune::GateParams) == {params_bytes}, "host and device disagree on GateParams");

extern "C" __global__ void __launch_bounds__(attune::kGateThreads)
{symbol}(const __grid_constant__ attune::GateParams p) {{
  attune::gate<attune::LinearEpilogue::{epilogue}>(p);
}}
)";

constexpr std::string_view kPerLayerText =
    R"(#include "templates/per_layer.cuh"

static_assert(sizeof(attune::PerLayerParams) == {params_bytes}, "host and device disagree on PerLayerParams");
static_assert(sizeof(attune::PerLayerGateParams) == {gate_bytes}, "host and device disagree on PerLayerGateParams");

extern "C" __global__ void __launch_bounds__(attune::kPerLayerWarps * attune::kWarpSize)
per_layer_inputs_c{chunks}(const __grid_constant__ attune::PerLayerParams p) {{
  attune::per_layer_inputs<{chunks}>(p);
}}

extern "C" __global__ void __launch_bounds__(attune::kWarpSize)
per_layer_gate(const __grid_constant__ attune::PerLayerGateParams p) {{
  attune::per_layer_gate(p);
}}
)";

constexpr std::string_view kRouteText =
    R"(#include "templates/route.cuh"

static_assert(sizeof(attune::RouteParams) == {params_bytes}, "host and device disagree on RouteParams");

extern "C" __global__ void __launch_bounds__(attune::kRouteThreads)
route_c{chunks}(const __grid_constant__ attune::RouteParams p) {{
  attune::route<{chunks}>(p);
}}
)";

constexpr std::string_view kExpertStepsText =
    R"(#include "templates/expert_steps.cuh"

static_assert(sizeof(attune::EnterExpertsParams) == {enter_bytes}, "host and device disagree on EnterExpertsParams");
static_assert(sizeof(attune::MixExpertsParams) == {mix_bytes}, "host and device disagree on MixExpertsParams");

extern "C" __global__ void __launch_bounds__({threads}, 1)
enter_experts_t{threads}(const __grid_constant__ attune::EnterExpertsParams p) {{
  attune::enter_experts<{threads}>(p);
}}

extern "C" __global__ void __launch_bounds__({threads}, 1)
mix_experts_t{threads}(const __grid_constant__ attune::MixExpertsParams p) {{
  attune::mix_experts<{threads}>(p);
}}
)";

std::string_view enumerator_of(LinearEpilogue epilogue) {
  switch (epilogue) {
    case LinearEpilogue::kStore:
      return "kStore";
    case LinearEpilogue::kGeglu:
      return "kGeglu";
    case LinearEpilogue::kSwiglu:
      return "kSwiglu";
    case LinearEpilogue::kLogits:
      return "kLogits";
  }
  throw InvalidArgument("unknown epilogue", fmt::format("value={}", static_cast<int>(epilogue)));
}

Source source_of(std::string text, std::vector<std::string> symbols) {
  Source source;
  source.text = std::move(text);
  source.split_symbol = symbols.front();
  source.symbols = std::move(symbols);
  source.headers = embedded_headers(source.text);
  return source;
}

// Of a linear layer, or of experts.
Source layer_source(const Variant& variant) {
  const KernelConfig& config = variant.config;
  const LinearShape any{.out_features = 1,
                        .in_features = 8,
                        .epilogue = variant.epilogue,
                        .weights = variant.weights,
                        .num_experts = variant.family == kExpertsFamily ? 1 : 0};
  if (const auto limit = linear_limits(any, config)) {
    throw InvalidArgument(fmt::format("no kernel of {}", variant.family), limit->detail);
  }
  const bool int4 = variant.weights == LinearWeights::kInt4;
  const std::string symbol = attention_symbols(variant).split;
  return source_of(
      fmt::format(
          kLinearText, fmt::arg("family", variant.family),
          fmt::arg("params", any.is_experts() ? "ExpertParams" : "LinearParams"),
          fmt::arg("params_bytes", any.is_experts() ? sizeof(ExpertParams) : sizeof(LinearParams)),
          fmt::arg("block_m", config.block_m), fmt::arg("block_n", config.block_n),
          fmt::arg("num_stages", config.num_stages), fmt::arg("num_warps", config.num_warps),
          fmt::arg("smem_bytes", linear_smem_bytes(any, config)),
          fmt::arg("threads", config.num_warps * kWarpSize), fmt::arg("symbol", symbol),
          fmt::arg("epilogue", enumerator_of(variant.epilogue)),
          fmt::arg("weights", int4 ? "kInt4" : "kBf16")),
      {symbol});
}

}  // namespace

Source linear_source(const KernelConfig& config, LinearEpilogue epilogue, LinearWeights weights) {
  return variant_source({.family = std::string(kLinearFamily),
                         .config = config,
                         .epilogue = epilogue,
                         .weights = weights});
}

Source experts_source(const KernelConfig& config, LinearEpilogue epilogue, LinearWeights weights) {
  return variant_source({.family = std::string(kExpertsFamily),
                         .config = config,
                         .epilogue = epilogue,
                         .weights = weights});
}

Source variant_source(const Variant& variant) {
  return variant.is_linear() ? layer_source(variant) : attention_source(variant);
}

Source quantize_source() {
  return source_of(fmt::format(kQuantizeText, fmt::arg("params_bytes", sizeof(QuantizeParams))),
                   {"quantize_int4"});
}

Source dequantize_source() {
  return source_of(fmt::format(kDequantizeText, fmt::arg("params_bytes", sizeof(DequantizeParams))),
                   {"dequantize_int4"});
}

Source gate_source(LinearEpilogue epilogue) {
  if (linear_rows_per_output(epilogue) != 2) {
    throw InvalidArgument("no kernel of gated outputs",
                          fmt::format("epilogue={}", static_cast<int>(epilogue)));
  }
  const std::string symbol = fmt::format("gate_{}", name_of(epilogue));
  return source_of(
      fmt::format(kGateText, fmt::arg("params_bytes", sizeof(GateParams)),
                  fmt::arg("symbol", symbol), fmt::arg("epilogue", enumerator_of(epilogue))),
      {symbol});
}

Source residual_source(int hidden) {
  const int threads = residual_threads(hidden);
  return source_of(fmt::format(kResidualText, fmt::arg("params_bytes", sizeof(ResidualParams)),
                               fmt::arg("threads", threads)),
                   {fmt::format("residual_t{}", threads), fmt::format("embed_t{}", threads)});
}

Source per_layer_source(int width) {
  const int chunks = per_layer_chunks(width);
  return source_of(
      fmt::format(kPerLayerText, fmt::arg("params_bytes", sizeof(PerLayerParams)),
                  fmt::arg("gate_bytes", sizeof(PerLayerGateParams)), fmt::arg("chunks", chunks)),
      {fmt::format("per_layer_inputs_c{}", chunks), "per_layer_gate"});
}

Source route_source(int num_experts, int top_k) {
  const int chunks = route_chunks(num_experts, top_k);
  return source_of(fmt::format(kRouteText, fmt::arg("params_bytes", sizeof(RouteParams)),
                               fmt::arg("chunks", chunks)),
                   {fmt::format("route_c{}", chunks)});
}

Source expert_steps_source(int hidden) {
  const int threads = residual_threads(hidden);
  return source_of(
      fmt::format(kExpertStepsText, fmt::arg("enter_bytes", sizeof(EnterExpertsParams)),
                  fmt::arg("mix_bytes", sizeof(MixExpertsParams)), fmt::arg("threads", threads)),
      {fmt::format("enter_experts_t{}", threads), fmt::format("mix_experts_t{}", threads)});
}

Source argmax_source() {
  return source_of(fmt::format(kArgmaxText, fmt::arg("params_bytes", sizeof(ArgmaxParams))),
                   {"argmax"});
}

}  // namespace attune
