// What a device is, as a value; no CUDA types in it.
#pragma once

#include <compare>
#include <cstddef>
#include <string>

namespace attune {

struct DeviceInfo {
  // Identity: these fields together key the tuning cache.
  std::string name;  // "NVIDIA H200"
  std::string arch;  // what kernels are compiled for: "sm_90a"
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  std::size_t memory_bytes = 0;
  bool mig = false;

  // Limits and facts that follow from the identity.
  int max_smem_per_block_bytes = 0;  // with opt-in
  int smem_per_sm_bytes = 0;
  int registers_per_sm = 0;
  int max_threads_per_block = 0;
  std::size_t l2_bytes = 0;

  // About this occasion, not part of the identity.
  std::string uuid;
  std::string driver_version;  // "13.0"; empty when no driver is loaded

  // One line that keys the cache: "NVIDIA H200|sm_90a|9.0|132|150323855360|0". Memory is rounded
  // down to whole GiB: drivers differ in what they reserve.
  std::string identity() const;

  int compute_capability() const { return compute_major * 10 + compute_minor; }
  friend bool operator==(const DeviceInfo&, const DeviceInfo&) = default;
};

// The published limits of an architecture, for compiling and pruning without a device ("sm_80",
// "sm_89", "sm_90a", "sm_100a", "sm_120"), or those of the host device ("host", "host+checks").
// Throws InvalidArgument that lists the known ones.
DeviceInfo architecture_limits(const std::string& arch);

}  // namespace attune
