// Weights into device memory: copied from a checkpoint, or made up.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "jit/device.h"
#include "runtime/safetensors.h"

namespace attune {

// Every call enqueues on the default stream and adds one allocation to `memory`.
class WeightUploader {
 public:
  WeightUploader(Device& device, std::vector<DeviceMem>* memory)
      : device_(device), memory_(*memory) {}

  // The tensors' rows, one tensor behind another; those without bytes are left out.
  DevicePtr together(std::initializer_list<const TensorView*> tensors);
  DevicePtr alone(const TensorView& tensor) { return together({&tensor}); }

 private:
  Device& device_;
  std::vector<DeviceMem>& memory_;
};

// The same numbers for a seed on every device.
class WeightInventor {
 public:
  // `fill` is the kernel "fill_noise" (jit/source.h).
  WeightInventor(Device& device, const Kernel& fill, std::uint64_t seed,
                 std::vector<DeviceMem>* memory)
      : device_(device), fill_(fill), seed_(seed), random_(seed), memory_(*memory) {}

  // bf16 [rows, columns], normal with deviation 1, made on the device.
  DevicePtr matrix(std::int64_t rows, std::int64_t columns);
  // bf16 [size] of a normal distribution. Waits.
  DevicePtr vector(int size, double mean, double deviation);
  // The same on the host.
  std::vector<std::uint16_t> values(int size, double mean, double deviation);

 private:
  Device& device_;
  Kernel fill_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<DeviceMem>& memory_;
};

}  // namespace attune
