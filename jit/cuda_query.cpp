#include "jit/cuda_query.h"

#include <fmt/format.h>

#include "jit/cuda_device.h"

namespace attune {
namespace {

int attribute(const Driver& driver, int which, CuDevice device) {
  int value = 0;
  if (const CuResult status = driver.device_get_attribute(&value, which, device)) {
    throw driver.error("cannot query the device", status, fmt::format("attribute={}", which));
  }
  return value;
}

std::string driver_version(const Driver& driver) {
  int version = 0;
  if (const CuResult status = driver.driver_get_version(&version)) {
    throw driver.error("cannot query the driver version", status);
  }
  return cuda_version_text(version);
}

// "GPU-9ffa4b1e-...", as nvidia-smi prints it.
std::string uuid_text(const CuUuid& uuid, bool mig) {
  std::string text = mig ? "MIG" : "GPU";
  for (int i = 0; i < 16; ++i) {
    const bool starts_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", starts_group ? "-" : "", uuid.bytes[i]);
  }
  return text;
}

}  // namespace

std::string arch_of(int compute_major, int compute_minor) {
  const int capability = compute_major * 10 + compute_minor;
  const bool has_own_instructions = capability == 90 || capability == 100;
  return fmt::format("sm_{}{}", capability, has_own_instructions ? "a" : "");
}

int count_devices(const Driver& driver) {
  int count = 0;
  if (const CuResult status = driver.device_get_count(&count)) {
    throw driver.error("cannot count the devices", status);
  }
  return count;
}

CuDevice find_device(const Driver& driver, int ordinal) {
  const int count = count_devices(driver);
  if (ordinal < 0 || ordinal >= count) {
    throw DeviceUnavailable("no such device", fmt::format("device={} devices={}", ordinal, count),
                            count == 0 ? "check nvidia-smi and CUDA_VISIBLE_DEVICES"
                                       : "choose one of the devices that attune doctor lists");
  }
  CuDevice device = 0;
  if (const CuResult status = driver.device_get(&device, ordinal)) {
    throw driver.error("cannot open the device", status, fmt::format("device={}", ordinal));
  }
  return device;
}

DeviceInfo describe_device(const Driver& driver, CuDevice device) {
  DeviceInfo info;
  char name[256] = {};
  if (const CuResult status = driver.device_get_name(name, sizeof(name) - 1, device)) {
    throw driver.error("cannot query the device name", status);
  }
  info.name = name;
  if (const CuResult status = driver.device_total_mem(&info.memory_bytes, device)) {
    throw driver.error("cannot query the device memory", status);
  }
  CuUuid uuid{};
  if (const CuResult status = driver.device_get_uuid(&uuid, device)) {
    throw driver.error("cannot query the device UUID", status);
  }
  info.mig = info.name.find(" MIG ") != std::string::npos;  // "NVIDIA H200 MIG 1g.18gb"
  info.uuid = uuid_text(uuid, info.mig);
  info.compute_major = attribute(driver, kAttributeComputeMajor, device);
  info.compute_minor = attribute(driver, kAttributeComputeMinor, device);
  info.arch = arch_of(info.compute_major, info.compute_minor);
  info.num_sms = attribute(driver, kAttributeNumSms, device);
  info.max_smem_per_block_bytes = attribute(driver, kAttributeMaxSmemPerBlockOptin, device);
  info.smem_per_sm_bytes = attribute(driver, kAttributeSmemPerSm, device);
  info.registers_per_sm = attribute(driver, kAttributeRegistersPerSm, device);
  info.max_threads_per_block = attribute(driver, kAttributeMaxThreadsPerBlock, device);
  info.l2_bytes = static_cast<std::size_t>(attribute(driver, kAttributeL2Bytes, device));
  info.driver_version = driver_version(driver);
  return info;
}

DriverStatus query_driver() {
  DriverStatus status;
  try {
    const auto driver = load_driver();
    status.loaded = true;
    status.library = driver->library;
    status.version = driver_version(*driver);
    status.num_devices = count_devices(*driver);
    if (status.num_devices == 0) {
      status.problem = "the CUDA driver sees no device; check nvidia-smi and CUDA_VISIBLE_DEVICES";
    }
  } catch (const std::exception& error) {
    status.problem = error.what();
  }
  return status;
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices;
  if (query_driver().num_devices == 0) return devices;
  const auto driver = load_driver();
  for (int ordinal = 0; ordinal < count_devices(*driver); ++ordinal) {
    devices.push_back(describe_device(*driver, find_device(*driver, ordinal)));
  }
  return devices;
}

}  // namespace attune
