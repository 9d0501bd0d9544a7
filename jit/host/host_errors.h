// Failures of the host device in the words of the driver: the codes and names that the layers above
// know.
#pragma once

#include <string_view>

#include "common/error.h"

namespace attune::host {

// Codes of the CUDA driver API for the same failures.
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidImage = 200;
constexpr int kNotFound = 500;
constexpr int kIllegalAddress = 700;
constexpr int kAssert = 710;
constexpr int kMisalignedAddress = 716;
constexpr int kLaunchFailed = 719;
constexpr int kCaptureUnsupported = 900;

constexpr std::string_view host_error_name(int code) {
  switch (code) {
    case kInvalidValue:
      return "CUDA_ERROR_INVALID_VALUE";
    case kOutOfMemory:
      return "CUDA_ERROR_OUT_OF_MEMORY";
    case kInvalidImage:
      return "CUDA_ERROR_INVALID_IMAGE";
    case kNotFound:
      return "CUDA_ERROR_NOT_FOUND";
    case kIllegalAddress:
      return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case kAssert:
      return "CUDA_ERROR_ASSERT";
    case kMisalignedAddress:
      return "CUDA_ERROR_MISALIGNED_ADDRESS";
    case kCaptureUnsupported:
      return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    default:
      return "CUDA_ERROR_LAUNCH_FAILED";
  }
}

inline CudaError host_error(int code, std::string_view what_failed, std::string_view values = {},
                            std::string_view what_to_do = {}) {
  return {what_failed, code, host_error_name(code), values, what_to_do};
}

}  // namespace attune::host
