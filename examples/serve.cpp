// Serves one decode and one verify step of Gemma 4 31B through the C++ interface and checks the
// results. The device is the argument, else ATTUNE_DEVICE, else GPU 0; "host" needs no GPU.
// Exit code: 0 right, 1 an error or a wrong result, 3 no GPU.
#include <cstdio>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "runtime/attune.h"
#include "step.h"

namespace {

// A step's data, released with the object.
class Step {
 public:
  Step(const step_shape& shape, const cuda_min& cuda, std::size_t workspace_bytes)
      : shape_(shape), cuda_(cuda) {
    if (!step_create(&shape, &cuda, workspace_bytes, &data_)) {
      step_destroy(&cuda_, &data_);
      throw std::bad_alloc();
    }
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() { step_destroy(&cuda_, &data_); }

  attune::AttentionArgs args() const {
    return {.q = data_.device_q,
            .k = data_.device_k,
            .v = data_.device_v,
            .out = data_.device_out,
            .kv_len = data_.device_kv_len,
            .workspace = data_.device_workspace,
            .capacity = shape_.capacity,
            .sm_scale = kSmScale};
  }
  double error() { return step_check(&shape_, &cuda_, &data_); }

 private:
  const step_shape& shape_;
  const cuda_min& cuda_;
  step_data data_{};
};

// Returns whether the result is right.
bool serve(const attune::Attention& attention, const step_shape& shape, const cuda_min& cuda) {
  std::cout << attention.explain();
  Step step(shape, cuda, attention.workspace_bytes());
  attention.launch(step.args(), nullptr);
  const double error = step.error();
  const bool right = error <= kMaxRowError;
  std::printf("result     %s: largest relative error of a row %.2e, limit %.2e\n\n",
              right ? "right" : "WRONG", error, kMaxRowError);
  return right;
}

int run(const char* device) {
  attune::Options options = attune::Options::from_environment();
  if (device != nullptr) options.device = device;
  options.log = [](const std::string& message) { std::cerr << "attune: " << message << '\n'; };
  options.strict = true;
  attune::Engine engine(options);

  std::vector<attune::Attention> attentions;
  for (const step_shape& shape : kSteps) attentions.push_back(engine.prepare(shape.problem));
  engine.seal();

  cuda_min cuda;
  if (const char* problem =
          cuda_min_open_device(&cuda, options.device.empty() ? nullptr : options.device.c_str())) {
    std::cerr << problem << '\n';
    return 3;
  }
  bool right = true;
  for (std::size_t i = 0; i < attentions.size(); ++i) {
    right &= serve(attentions[i], kSteps[i], cuda);
  }
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : nullptr);
  } catch (const attune::DeviceUnavailable& error) {
    std::cerr << error.what() << '\n';
    return 3;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
