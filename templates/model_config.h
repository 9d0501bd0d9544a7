// Constants of residual.cuh and argmax.cuh that their launch arithmetic shares. Compiled by the host
// compiler and by NVRTC.
#pragma once

namespace attune {

constexpr int kResidualThreads = 256;
constexpr int kResidualColumns = kResidualThreads * 8;  // of one chunk of every thread
constexpr int kMaxResidualChunks = 4;
constexpr int kArgmaxThreads = 1024;

}  // namespace attune
