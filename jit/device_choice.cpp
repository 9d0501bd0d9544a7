#include "jit/device_choice.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include "common/error.h"
#include "common/text.h"
#include "jit/cuda_device.h"
#include "jit/cuda_query.h"
#include "jit/host/host_info.h"
#include "jit/host_device.h"

namespace attune {
namespace {

// Above the number of any GPU; a limit that reads well in a message.
constexpr int kMaxOrdinal = 1023;

// Modules for sanitizers call functions that only a program built with both has.
void require_sanitizers() {
  if (dlsym(RTLD_DEFAULT, "__asan_init") != nullptr &&
      dlsym(RTLD_DEFAULT, "__ubsan_handle_add_overflow_abort") != nullptr) {
    return;
  }
  throw DeviceUnavailable("this program runs without sanitizers", "device=host+sanitizers",
                          "build it with -fsanitize=address,undefined, or use host+checks");
}

}  // namespace

std::string DeviceChoice::text() const { return host ? host->text() : std::to_string(ordinal); }

DeviceChoice DeviceChoice::parse(std::string_view text) {
  if (const auto number = parse_int(text); number && *number >= 0 && *number <= kMaxOrdinal) {
    return {.ordinal = static_cast<int>(*number)};
  }
  if (is_host_arch(text)) {
    try {
      return {.host = HostTarget::parse(text)};
    } catch (const InvalidArgument&) {  // the message below lists the forms
    }
  }
  throw InvalidArgument("unknown device", fmt::format("device='{}'", text),
                        fmt::format("use the number of a GPU, 0 to {}, or host, host+checks or "
                                    "host+sanitizers, each also with +debug",
                                    kMaxOrdinal));
}

DeviceInfo describe_device(const DeviceChoice& choice) {
  if (choice.host) {
    if (choice.host->checks == HostChecks::kSanitizers) require_sanitizers();
    return host_device_info(*choice.host);
  }
  const auto driver = load_driver();
  return describe_device(*driver, find_device(*driver, choice.ordinal));
}

std::unique_ptr<Device> open_device(const DeviceChoice& choice) {
  if (choice.host && choice.host->checks == HostChecks::kSanitizers) require_sanitizers();
  if (choice.host) return open_host_device({.target = *choice.host});
  return open_cuda_device(choice.ordinal);
}

}  // namespace attune
