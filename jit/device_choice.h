// Which device: a GPU by its number, or the host device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "jit/device.h"
#include "jit/host/host_target.h"

namespace attune {

// Text form: the GPU's number, or the text of a host target ("host", "host+checks", ...).
struct DeviceChoice {
  int ordinal = 0;                      // of a GPU
  std::optional<HostTarget> host = {};  // the host device instead

  std::string text() const;
  static DeviceChoice parse(std::string_view text);  // throws InvalidArgument that lists the forms
  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

// What the device is, without opening it: no context is made. Throws as open_device does.
DeviceInfo describe_device(const DeviceChoice& choice);

// Throws DeviceUnavailable when it is a GPU and there is no driver or no such GPU, or when it is
// the host with sanitizers and this program has none.
std::unique_ptr<Device> open_device(const DeviceChoice& choice);

}  // namespace attune
