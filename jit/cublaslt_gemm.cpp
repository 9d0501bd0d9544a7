#include "jit/cublaslt_gemm.h"

#include <map>
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

  void run(const GemmShape& shape, const GemmArgs& args, StreamHandle stream) override {
    in_context_([&] { multiply(shape, args, stream); });
  }

 private:
  // The library stores columns: W and x are [in, out] and [in, tokens] to it, y is [out, tokens].
  struct Layouts {
    Layouts(const CublasLtGemm& gemm, const GemmShape& shape)
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
  };

  std::string text_of(CublasStatus status) const {
    return fmt::format("{} ({})", status, library_.get_status_name(status));
  }
  void check(const char* call, CublasStatus status, const std::string& values = {}) const {
    if (status == 0) return;
    throw Error("cuBLASLt refused a call",
                fmt::format("call={} status={} library={}{}{}", call, text_of(status),
                            library_.path, values.empty() ? "" : " ", values),
                "take another version with ATTUNE_CUBLASLT, or ATTUNE_CUBLASLT=off");
  }

  void multiply(const GemmShape& shape, const GemmArgs& args, StreamHandle stream) {
    const Layouts layouts(*this, shape);
    auto known = algorithms_.find(shape);
    if (known == algorithms_.end())
      known = algorithms_.emplace(shape, choose(shape, layouts)).first;
    constexpr float kOne = 1.0f, kZero = 0.0f;
    void* const out = reinterpret_cast<void*>(args.out);
    check("cublasLtMatmul",
          library_.matmul(handle_, product_.get(), &kOne,
                          reinterpret_cast<const void*>(args.weights), layouts.weights.get(),
                          reinterpret_cast<const void*>(args.input), layouts.input.get(), &kZero,
                          out, layouts.out.get(), out, layouts.out.get(), &known->second,
                          reinterpret_cast<void*>(workspace_.ptr()), workspace_.bytes(), stream),
          text_of(shape));
  }

  // The library's estimate of the fastest. Sums that several CTAs share are added in fp32 and in a fixed
  // order, or not shared.
  CublasLtAlgorithm choose(const GemmShape& shape, const Layouts& layouts) const {
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
    check(
        "cublasLtMatmulAlgoGetHeuristic",
        library_.choose(handle_, product_.get(), layouts.weights.get(), layouts.input.get(),
                        layouts.out.get(), layouts.out.get(), preference.get(), 1, &choice, &count),
        text_of(shape));
    if (count > 0) check("cublasLtMatmulAlgoGetHeuristic", choice.status, text_of(shape));
    if (count > 0) return choice.algorithm;
    throw Error("cuBLASLt has no algorithm",
                fmt::format("{} library={}", text_of(shape), library_.path),
                "take another version with ATTUNE_CUBLASLT, or ATTUNE_CUBLASLT=off");
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
  std::map<GemmShape, CublasLtAlgorithm> algorithms_;
};

}  // namespace

std::unique_ptr<Gemm> make_cublaslt_gemm(Device& device, const CublasLtLibrary& library,
                                         InContext in_context) {
  return std::make_unique<CublasLtGemm>(device, library, std::move(in_context));
}

}  // namespace attune
