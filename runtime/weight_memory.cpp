#include "runtime/weight_memory.h"

#include <span>

#include "jit/linear.h"
#include "templates/params.h"
#include "tuner/reference.h"

namespace attune {

namespace {

// bf16 rows as the format has them; the rows themselves are given back where they are packed.
DeviceMem formatted(Device& device, const MatrixFormat& format, DeviceMem rows, int num_rows,
                    int columns) {
  if (format.weights == LinearWeights::kBf16) return rows;
  DeviceMem packed = device.allocate(static_cast<std::size_t>(int4_bytes(num_rows, columns)));
  quantize_int4(device, format.quantize, rows.ptr(), num_rows, columns, packed.ptr(), nullptr);
  device.synchronize(nullptr);
  return packed;
}

}  // namespace

DeviceMem WeightUploader::copy(std::initializer_list<const TensorView*> tensors) {
  std::size_t bytes = 0;
  for (const TensorView* tensor : tensors) bytes += tensor->bytes.size();
  DeviceMem memory = device_.allocate(bytes);
  DevicePtr at = memory.ptr();
  for (const TensorView* tensor : tensors) {
    if (!tensor->bytes.empty()) device_.copy_to_device(at, tensor->bytes, nullptr);
    at += tensor->bytes.size();
  }
  return memory;
}

DevicePtr WeightUploader::plain(const TensorView& tensor) {
  return memory_.emplace_back(copy({&tensor})).ptr();
}

DevicePtr WeightUploader::matrix(std::initializer_list<const TensorView*> tensors) {
  std::int64_t rows = 0, columns = 0;
  for (const TensorView* tensor : tensors) {
    if (tensor->bytes.empty()) continue;
    columns = tensor->shape.back();
    rows += num_elements(tensor->shape) / columns;
  }
  return memory_
      .emplace_back(formatted(device_, format_, copy(tensors), static_cast<int>(rows),
                              static_cast<int>(columns)))
      .ptr();
}

DeviceMem WeightInventor::make(std::int64_t rows, std::int64_t columns) {
  const auto bytes = static_cast<std::size_t>(rows * columns) * kBytesPerElement;
  DeviceMem memory = device_.allocate(bytes);
  const FillParams params{reinterpret_cast<void*>(memory.ptr()), bytes, ++seed_};
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(8 * device_.info().num_sms), 1, 1};
  launch.block = {256, 1, 1};
  device_.launch(fill_, launch, &params, nullptr);
  return memory;
}

DevicePtr WeightInventor::plain(std::int64_t rows, std::int64_t columns) {
  return memory_.emplace_back(make(rows, columns)).ptr();
}

DevicePtr WeightInventor::matrix(std::int64_t rows, std::int64_t columns) {
  return memory_
      .emplace_back(formatted(device_, format_, make(rows, columns), static_cast<int>(rows),
                              static_cast<int>(columns)))
      .ptr();
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
