// Weights into device memory: copied from a checkpoint, or made up.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "jit/device.h"
#include "runtime/safetensors.h"
#include "templates/linear_config.h"

namespace attune {

// What matrices of linear layers become.
struct MatrixFormat {
  LinearWeights weights = LinearWeights::kBf16;
  Kernel quantize = {};  // "quantize_int4" (jit/model_source.h), where they are packed
};

// Every call enqueues on the default stream and adds one allocation to `memory`.
class WeightUploader {
 public:
  WeightUploader(Device& device, const MatrixFormat& format, std::vector<DeviceMem>* memory)
      : device_(device), format_(format), memory_(*memory) {}

  // As the tensor has it.
  DevicePtr plain(const TensorView& tensor);
  // The tensors' rows, one tensor behind another, in the format; those without bytes are left out. A
  // tensor of more dimensions than two is a stack of matrices.
  // Waits where that is packed.
  DevicePtr matrix(std::initializer_list<const TensorView*> tensors);

 private:
  DeviceMem copy(std::initializer_list<const TensorView*> tensors);

  Device& device_;
  MatrixFormat format_;
  std::vector<DeviceMem>& memory_;
};

// The same numbers for a seed on every device.
class WeightInventor {
 public:
  // `fill` is the kernel "fill_noise" (jit/source.h).
  WeightInventor(Device& device, const Kernel& fill, const MatrixFormat& format, std::uint64_t seed,
                 std::vector<DeviceMem>* memory)
      : device_(device),
        fill_(fill),
        format_(format),
        seed_(seed),
        random_(seed),
        memory_(*memory) {}

  // bf16 [rows, columns], normal with deviation 1, made on the device.
  DevicePtr plain(std::int64_t rows, std::int64_t columns);
  // The same in the format. Waits where that is packed.
  DevicePtr matrix(std::int64_t rows, std::int64_t columns);
  // bf16 [size] of a normal distribution. Waits.
  DevicePtr vector(int size, double mean, double deviation);
  // The same on the host.
  std::vector<std::uint16_t> values(int size, double mean, double deviation);

 private:
  DeviceMem make(std::int64_t rows, std::int64_t columns);

  Device& device_;
  Kernel fill_;
  MatrixFormat format_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<DeviceMem>& memory_;
};

}  // namespace attune
