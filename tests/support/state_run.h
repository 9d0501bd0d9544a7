// Runs write_state on a device: the named integers change and no others.
#pragma once

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "jit/device.h"
#include "templates/prologue_plan.h"

namespace attune {

inline void expect_right_state(Device& device, const Kernel& kernel) {
  for (const int count : {0, 1, 33, kMaxStateWrites}) {
    std::vector<int> state(3 * kMaxStateWrites + 5, -7);
    const DeviceMem memory = device.allocate(state.size() * sizeof(int));
    device.copy_to_device(memory.ptr(), std::as_bytes(std::span(state)), nullptr);
    StateParams params{};
    params.state = reinterpret_cast<int*>(memory.ptr());
    params.count = count;
    for (int i = 0; i < kMaxStateWrites; ++i) params.writes[i] = {3 * i + 1, 1000 + i};
    device.launch(kernel, plan_state(), &params, nullptr);
    for (int i = 0; i < count; ++i) state[3 * i + 1] = 1000 + i;
    std::vector<int> written(state.size());
    device.copy_to_host(std::as_writable_bytes(std::span(written)), memory.ptr(), nullptr);
    EXPECT_EQ(written, state) << count;
  }
}

}  // namespace attune
