#include "runtime/weight_memory.h"

#include <span>

#include "templates/params.h"
#include "tuner/reference.h"

namespace attune {

DevicePtr WeightUploader::together(std::initializer_list<const TensorView*> tensors) {
  std::size_t bytes = 0;
  for (const TensorView* tensor : tensors) bytes += tensor->bytes.size();
  const DevicePtr begin = memory_.emplace_back(device_.allocate(bytes)).ptr();
  DevicePtr at = begin;
  for (const TensorView* tensor : tensors) {
    if (!tensor->bytes.empty()) device_.copy_to_device(at, tensor->bytes, nullptr);
    at += tensor->bytes.size();
  }
  return begin;
}

DevicePtr WeightInventor::matrix(std::int64_t rows, std::int64_t columns) {
  const auto bytes = static_cast<std::size_t>(rows * columns) * kBytesPerElement;
  const DeviceMem& made = memory_.emplace_back(device_.allocate(bytes));
  const FillParams params{reinterpret_cast<void*>(made.ptr()), bytes, ++seed_};
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(8 * device_.info().num_sms), 1, 1};
  launch.block = {256, 1, 1};
  device_.launch(fill_, launch, &params, nullptr);
  return made.ptr();
}

DevicePtr WeightInventor::vector(int size, double mean, double deviation) {
  const std::vector<std::uint16_t> made = values(size, mean, deviation);
  const auto bytes = std::as_bytes(std::span(made));
  const DevicePtr to = memory_.emplace_back(device_.allocate(bytes.size())).ptr();
  device_.copy_to_device(to, bytes, nullptr);
  device_.synchronize(nullptr);
  return to;
}

std::vector<std::uint16_t> WeightInventor::values(int size, double mean, double deviation) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<std::uint16_t> made;
  for (int i = 0; i < size; ++i) {
    made.push_back(float_to_bf16(static_cast<float>(normal(random_))));
  }
  return made;
}

}  // namespace attune
