// How long a worker process may take for a request before it is ended: pure arithmetic on what the
// work should take. A hang is the one thing that these limits are for, so they lie far above every
// candidate that is worth having; a slow one is ended by TimerOptions::abandon_above_us.
#pragma once

#include "jit/device_info.h"
#include "templates/problem.h"
#include "tuner/timer.h"

namespace attune {

// A driver that has to wake up many GPUs takes tens of seconds for a first context.
constexpr double kStartDeadline_s = 120;
// Inputs, the reference in double precision, buffers.
constexpr double kPrepareDeadline_s = 300;
constexpr double kCloseDeadline_s = 20;

// What a request takes beside the work of its kernels: modules load, results are compared.
constexpr double kGpuBase_s = 10, kHostBase_s = 60;
// Rates far below any candidate's: a hundredth of a small GPU's; of the host device with every
// check on one busy core.
constexpr double kSlowestGpuFlops = 1e11, kSlowestGpuBytes = 1e10;
constexpr double kSlowestHostFlops = 1e6, kSlowestHostBytes = 1e6;
// Launches of each case of a verification, those in few splits among them.
constexpr int kVerifyLaunches = 6;

// `case_flops`: of one launch of every case.
double verify_deadline_s(const DeviceInfo& device, double case_flops);
double time_deadline_s(const DeviceInfo& device, const Problem& problem, int kv_len,
                       const TimerOptions& options);

}  // namespace attune
