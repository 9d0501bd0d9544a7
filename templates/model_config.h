// Constants of a model's kernels beside its linear layers that their launch arithmetic shares. Compiled
// by the host compiler and by NVRTC.
#pragma once

namespace attune {

constexpr int kResidualColumns = 8;  // of a thread
constexpr int kMaxResidualThreads = 1024;
constexpr int kArgmaxThreads = 1024;

constexpr int kGateThreads = 256;
constexpr int kGateColumns = kGateThreads * 8;
constexpr int kDequantizeWarps = 8;
constexpr int kDequantizeRowsPerWarp = 4;
constexpr int kDequantizeRows = kDequantizeWarps * kDequantizeRowsPerWarp;  // of a CTA

}  // namespace attune
