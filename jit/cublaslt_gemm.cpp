#include "jit/cublaslt_gemm.h"

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {
namespace {

// What NVIDIA recommends on Hopper.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr std::uint32_t kAlignment = 16;  // of GemmArgs

// A descriptor of the library.
class Object {
 public:
  using Destroy = CublasStatus (*)(CublasLtObject);
  explicit Object(Destroy destroy) : destroy_(destroy) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() {
    if (object_ != nullptr) destroy_(object_);
  }
  CublasLtObject* address() { return &object_; }
  CublasLtObject get() const { return object_; }

 private:
  CublasLtObject object_ = nullptr;
  Destroy destroy_;
};

class CublasLtGemm final : public Gemm {
 public:
  CublasLtGemm(Device& device, const CublasLtLibrary& library, InContext in_context)
      : library_(library), in_context_(std::move(in_context)), product_(library.desc_destroy) {
    workspace_ = device.allocate(kWorkspaceBytes);
    check("cublasLtMatmulDescCreate",
          library_.desc_create(product_.address(), kCublasCompute32F, kCudaReal32F));
    check("cublasLtMatmulDescSetAttribute",
          library_.desc_set(product_.get(), kCublasLtTransA, &kCublasTranspose,
                            sizeof(kCublasTranspose)));
    in_context_([&] {
      if (const CublasStatus status = library_.create(&handle_)) {
        throw DeviceUnavailable(
            "cuBLASLt does not start",
            fmt::format("library={} gpu={} status={}", library_.path, device.info().name,
                        text_of(status)),
            "name a version that serves this GPU and its driver in ATTUNE_CUBLASLT");
      }
    });
  }
  ~CublasLtGemm() override {
    try {
      in_context_([&] { library_.destroy(handle_); });
    } catch (const std::exception&) {  // the context is gone, and the handle with it
    }
  }

  std::string name() const override {
    return fmt::format("cuBLASLt {} in {}", library_.version, library_.path);
  }
  std::size_t workspace_bytes() const override { return workspace_.bytes(); }

  std::optional<GemmRefusal> prepare(const GemmShape& shape) override {
    return unless_refused([&] { return block_of(layer_of(shape), shape).refusal; });
  }
  std::optional<GemmRefusal> run(const GemmShape& shape, const GemmArgs& args,
                                 StreamHandle stream) override {
    return unless_refused([&] { return multiply(shape, args, stream); });
  }

 private:
  // What the library said of a product: an algorithm, or why it has none.
  struct Chosen {
    CublasLtAlgorithm algorithm{};
    std::optional<GemmRefusal> refusal;
  };
  // The products of one matrix. The library stores columns: W and x are [in, out] and [in, tokens] to it,
  // y is [out, tokens].
  struct Layer {
    Layer(const CublasLtGemm& gemm, const GemmShape& shape)
        : weights(gemm.library_.layout_destroy),
          input(gemm.library_.layout_destroy),
          out(gemm.library_.layout_destroy) {
      const auto make = [&](Object* layout, int rows, int columns) {
        gemm.check("cublasLtMatrixLayoutCreate",
                   gemm.library_.layout_create(layout->address(), kCudaRealBf16,
                                               static_cast<std::uint64_t>(rows),
                                               static_cast<std::uint64_t>(columns), rows));
      };
      make(&weights, shape.in_features, shape.out_features);
      make(&input, shape.in_features, shape.num_tokens);
      make(&out, shape.out_features, shape.num_tokens);
    }
    Object weights, input, out;
    std::map<int, Chosen> blocks;  // by the last number of tokens of a block
    std::map<int, Chosen> alone;   // by number of tokens, where its block's algorithm was refused
  };
  using Layers = std::map<std::pair<int, int>, Layer>;  // by out_features, in_features

  std::string text_of(CublasStatus status) const {
    return fmt::format("{} ({})", status, library_.get_status_name(status));
  }
  Error refused(const char* call, CublasStatus status, const std::string& values = {}) const {
    return Error("cuBLASLt refused a call",
                 fmt::format("call={} status={} library={}{}{}", call, text_of(status),
                             library_.path, values.empty() ? "" : " ", values));
  }
  void check(const char* call, CublasStatus status, const std::string& values = {}) const {
    if (status != 0) throw refused(call, status, values);
  }

  // Runs `work`; a call that the library refused is a refusal too.
  std::optional<GemmRefusal> unless_refused(
      const std::function<std::optional<GemmRefusal>()>& work) {
    std::optional<GemmRefusal> refusal;
    in_context_([&] {
      try {
        refusal = work();
      } catch (const Error& error) {
        refusal = GemmRefusal{error.what()};
      }
    });
    return refusal;
  }

  Layer& layer_of(const GemmShape& shape) {
    const auto key = std::pair(shape.out_features, shape.in_features);
    auto found = layers_.find(key);
    if (found == layers_.end()) {
      found = layers_
                  .emplace(std::piecewise_construct, std::forward_as_tuple(key),
                           std::forward_as_tuple(*this, shape))
                  .first;
    }
    return found->second;
  }
  Chosen& block_of(Layer& layer, GemmShape shape) {
    shape.num_tokens = (shape.num_tokens + kGemmTokenBlock - 1) / kGemmTokenBlock * kGemmTokenBlock;
    return known_or_chosen(&layer.blocks, layer, shape);
  }
  Chosen& known_or_chosen(std::map<int, Chosen>* known, Layer& layer, const GemmShape& shape) {
    const auto found = known->find(shape.num_tokens);
    if (found != known->end()) return found->second;
    Chosen chosen;
    try {
      chosen.algorithm = choose(shape, layer);
    } catch (const Error& error) {
      chosen.refusal = GemmRefusal{error.what()};
    }
    return known->emplace(shape.num_tokens, std::move(chosen)).first->second;
  }

  void set_tokens(const Layer& layer, int num_tokens) const {
    const auto columns = static_cast<std::uint64_t>(num_tokens);
    for (const Object* layout : {&layer.input, &layer.out}) {
      check("cublasLtMatrixLayoutSetAttribute",
            library_.layout_set(layout->get(), kCublasLtColumns, &columns, sizeof(columns)));
    }
  }

  std::optional<GemmRefusal> multiply(const GemmShape& shape, const GemmArgs& args,
                                      StreamHandle stream) {
    Layer& layer = layer_of(shape);
    const auto known = layer.alone.find(shape.num_tokens);
    Chosen* chosen = known == layer.alone.end() ? &block_of(layer, shape) : &known->second;
    if (chosen->refusal) return chosen->refusal;
    CublasStatus status = launch(layer, *chosen, shape, args, stream);
    if (known == layer.alone.end() && is_about_the_algorithm(status)) {
      chosen = &known_or_chosen(&layer.alone, layer, shape);
      if (chosen->refusal) return chosen->refusal;
      status = launch(layer, *chosen, shape, args, stream);
    }
    if (status == 0) return std::nullopt;
    GemmRefusal refusal{refused("cublasLtMatmul", status, text_of(shape)).what()};
    chosen->refusal =
        refusal;  // whatever it was: the next one of this size has to give the same bits
    return refusal;
  }
  static bool is_about_the_algorithm(CublasStatus status) {
    return status == kCublasNotSupported || status == kCublasInvalidValue;
  }

  CublasStatus launch(const Layer& layer, const Chosen& chosen, const GemmShape& shape,
                      const GemmArgs& args, StreamHandle stream) const {
    set_tokens(layer, shape.num_tokens);
    constexpr float kOne = 1.0f, kZero = 0.0f;
    void* const out = reinterpret_cast<void*>(args.out);
    return library_.matmul(handle_, product_.get(), &kOne,
                           reinterpret_cast<const void*>(args.weights), layer.weights.get(),
                           reinterpret_cast<const void*>(args.input), layer.input.get(), &kZero,
                           out, layer.out.get(), out, layer.out.get(), &chosen.algorithm,
                           reinterpret_cast<void*>(workspace_.ptr()), workspace_.bytes(), stream);
  }

  // The library's estimate of the fastest. Sums that several CTAs share are added in fp32 and in a fixed
  // order, or not shared.
  CublasLtAlgorithm choose(const GemmShape& shape, const Layer& layer) const {
    set_tokens(layer, shape.num_tokens);
    Object preference(library_.preference_destroy);
    check("cublasLtMatmulPreferenceCreate", library_.preference_create(preference.address()));
    const auto set = [&](int attribute, const auto& value) {
      check("cublasLtMatmulPreferenceSetAttribute",
            library_.preference_set(preference.get(), attribute, &value, sizeof(value)));
    };
    set(kCublasLtMaxWorkspace, std::uint64_t{kWorkspaceBytes});
    set(kCublasLtReductionMask, kCublasLtReduceInWorkspace);
    for (int operand = 0; operand < 4; ++operand) set(kCublasLtMinAlignmentA + operand, kAlignment);
    CublasLtChoice choice{};
    int count = 0;
    check("cublasLtMatmulAlgoGetHeuristic",
          library_.choose(handle_, product_.get(), layer.weights.get(), layer.input.get(),
                          layer.out.get(), layer.out.get(), preference.get(), 1, &choice, &count),
          text_of(shape));
    if (count > 0) check("cublasLtMatmulAlgoGetHeuristic", choice.status, text_of(shape));
    if (count > 0) return choice.algorithm;
    throw Error("cuBLASLt has no algorithm",
                fmt::format("{} library={}", text_of(shape), library_.path));
  }

  static std::string text_of(const GemmShape& shape) {
    return fmt::format("num_tokens={} out_features={} in_features={}", shape.num_tokens,
                       shape.out_features, shape.in_features);
  }

  const CublasLtLibrary library_;
  const InContext in_context_;
  CublasLtHandle handle_ = nullptr;
  Object product_;
  DeviceMem workspace_;
  Layers layers_;
};

}  // namespace

std::unique_ptr<Gemm> make_cublaslt_gemm(Device& device, const CublasLtLibrary& library,
                                         InContext in_context) {
  return std::make_unique<CublasLtGemm>(device, library, std::move(in_context));
}

}  // namespace attune
