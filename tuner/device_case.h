// A case of the verifier in a device's memory: every stride padded, pages scattered, what no query
// may see poisoned.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "jit/device.h"
#include "tuner/verify.h"

namespace attune {

// Memory with guard bytes before and after it.
class GuardedMem {
 public:
  GuardedMem() = default;
  GuardedMem(Device& device, std::size_t bytes);

  DevicePtr ptr() const;
  void poison(Device& device, StreamHandle stream) const;
  // Waits for the stream.
  std::vector<std::byte> read(Device& device, StreamHandle stream) const;
  // Index of the first overwritten guard byte, counted from the start of the payload.
  std::optional<std::int64_t> broken_guard(Device& device, StreamHandle stream) const;

 private:
  DeviceMem mem_;
  std::size_t bytes_ = 0;
};

// One case with the parameters of its launch, less what the launch plan and the workspace decide.
// The queries attend to sequences that lie in another order than the batch, behind one that is all
// NaN, and kv_len counts the tokens before the queries.
struct DeviceCase {
  // Waits for the copies. `host` has to outlive it.
  DeviceCase(Device& device, const VerifyCase& host, StreamHandle stream);

  const VerifyCase* host;
  DeviceMem q, k, v, kv_len, sequence, block_table;
  GuardedMem out, lse;
  AttentionParams params{};
};

}  // namespace attune
