#include "runtime/linear_prefill.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "jit/model_source.h"
#include "runtime/device_pointer.h"
#include "templates/model_plan.h"
#include "templates/problem.h"

namespace attune {
namespace {

// A packed weight costs linear.cuh 0.56 bytes for each 16 tokens. Unpacked it costs 4.6 once: read,
// written, and read by the product.
constexpr int kMostTokensPacked = 8 * kMaxLinearTokens;

bool is_gated(const LinearShape& shape) { return linear_rows_per_output(shape.epilogue) == 2; }
bool is_packed(const LinearShape& shape) { return shape.weights != LinearWeights::kBf16; }

}  // namespace

std::size_t LinearPrefill::unpacked_bytes(const LinearShape& shape) {
  if (!is_packed(shape)) return 0;
  return std::size_t{1} * kBytesPerElement * static_cast<std::size_t>(shape.weight_rows()) *
         static_cast<std::size_t>(shape.in_features);
}

std::size_t LinearPrefill::gate_up_bytes(const LinearShape& shape, int num_tokens) {
  if (!is_gated(shape)) return 0;
  return std::size_t{1} * kBytesPerElement * static_cast<std::size_t>(num_tokens) *
         static_cast<std::size_t>(shape.weight_rows());
}

LinearPrefill::LinearPrefill(Device& device, const Load& load, std::unique_ptr<Gemm> gemm,
                             std::span<const LinearShape> shapes, int max_tokens, Warn warn)
    : device_(device), gemm_(std::move(gemm)), warn_(std::move(warn)) {
  const auto loaded = [&](const Source& source) {
    Loaded made{load(source), {}};
    made.kernel = device.kernel(made.module->module, source.symbols.front(), 0);
    return made;
  };
  std::size_t most_unpacked = 0, most_gate_up = 0;
  for (const LinearShape& shape : shapes) {
    if (!takes(shape, max_tokens)) continue;
    if (layers_.insert(shape).second) choose_algorithms(shape, max_tokens);
    most_unpacked = std::max(most_unpacked, unpacked_bytes(shape));
    most_gate_up = std::max(most_gate_up, gate_up_bytes(shape, max_tokens));
    if (is_packed(shape) && !dequantize_.kernel) dequantize_ = loaded(dequantize_source());
    if (is_gated(shape) && !gates_.contains(shape.epilogue)) {
      gates_[shape.epilogue] = loaded(gate_source(shape.epilogue));
    }
  }
  if (most_unpacked > 0) unpacked_ = device.allocate(most_unpacked);
  if (most_gate_up > 0) gate_up_ = device.allocate(most_gate_up);
}

void LinearPrefill::choose_algorithms(const LinearShape& shape, int max_tokens) {
  for (int tokens = 1; tokens <= max_tokens; tokens += kGemmTokenBlock) {
    const int last = std::min(tokens + kGemmTokenBlock - 1, max_tokens);
    if (!takes(shape, last)) continue;
    if (const auto refusal = gemm_->prepare(product_of(shape, last))) note(shape, *refusal);
  }
}

void LinearPrefill::note(const LinearShape& shape, const GemmRefusal& refusal) {
  if (!refused_.insert(shape).second || !warn_) return;
  warn_(
      fmt::format("prefills take {} tokens a pass over a layer's weights: {}; take another library "
                  "with ATTUNE_CUBLASLT, or ATTUNE_CUBLASLT=off",
                  kMaxLinearTokens, refusal.reason));
}

bool LinearPrefill::multiplies(int num_tokens) const {
  return std::any_of(layers_.begin(), layers_.end(), [&](const LinearShape& shape) {
    return serves(shape, num_tokens) && !refused_.contains(shape);
  });
}

std::string LinearPrefill::name() const {
  if (refused_.empty()) return gemm_->name();
  return fmt::format("{}, which refused {} of {} layers", gemm_->name(), refused_.size(),
                     layers_.size());
}

bool LinearPrefill::takes(const LinearShape& shape, int num_tokens) {
  // A step that has to have the bits of others never comes here.
  static_assert(kMaxVerifyTokens <= kMaxLinearTokens);
  const int most_at_once = is_packed(shape) ? kMostTokensPacked : kMaxLinearTokens;
  if (is_packed(shape) && shape.weight_rows() > kMostDequantizedRows) return false;
  return shape.epilogue != LinearEpilogue::kLogits && shape.out_features % 8 == 0 &&
         num_tokens > most_at_once;
}

bool LinearPrefill::serves(const LinearShape& shape, int num_tokens) const {
  return takes(shape, num_tokens) && unpacked_bytes(shape) <= unpacked_.bytes() &&
         gate_up_bytes(shape, num_tokens) <= gate_up_.bytes() &&
         (!is_gated(shape) || gates_.contains(shape.epilogue));
}

bool LinearPrefill::run(const LinearShape& shape, const LinearArgs& args, StreamHandle stream) {
  // Known since the model was made; what it refuses is not unpacked for it.
  if (const auto refusal = gemm_->prepare(product_of(shape, args.num_tokens))) {
    note(shape, *refusal);
    return false;
  }
  GemmArgs product{args.weights, args.input, args.out};
  if (is_packed(shape)) {
    const DequantizeParams p{pointer<const void>(args.weights), pointer<uint16>(unpacked_.ptr()),
                             shape.weight_rows(), shape.in_features};
    device_.launch(dequantize_.kernel, plan_dequantize(p.num_rows, p.in_features), &p, stream);
    product.weights = unpacked_.ptr();
  }
  if (is_gated(shape)) product.out = gate_up_.ptr();
  if (const auto refusal = gemm_->run(product_of(shape, args.num_tokens), product, stream)) {
    note(shape, *refusal);
    return false;
  }
  if (!is_gated(shape)) return true;
  const GateParams p{pointer<const uint16>(gate_up_.ptr()), pointer<uint16>(args.out),
                     shape.out_features};
  device_.launch(gates_.at(shape.epilogue).kernel, plan_gate(args.num_tokens, p.width), &p, stream);
  return true;
}

}  // namespace attune
