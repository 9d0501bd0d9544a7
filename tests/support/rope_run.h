// Runs sin_cos of templates/device/rope.cuh over the angles that models have and compares with the
// double-precision functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <vector>

#include "jit/device.h"
#include "jit/source.h"
#include "templates/prologue_config.h"

namespace attune {

inline constexpr int kRopePositions = kMaxRopePositions;

struct AngleParams {
  const float* angles;
  float* sines;
  float* cosines;
  int count;
};

inline Source rope_angles_source() {
  Source source;
  source.text = R"(#include "templates/device/rope.cuh"
struct AngleParams {
  const float* angles;
  float* sines;
  float* cosines;
  int count;
};
extern "C" __global__ void __launch_bounds__(128)
rope_angles(const __grid_constant__ AngleParams p) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += gridDim.x * blockDim.x) {
    const attune::SinCos turn = attune::sin_cos(p.angles[i]);
    p.sines[i] = turn.sin;
    p.cosines[i] = turn.cos;
  }
}
)";
  source.split_symbol = "rope_angles";
  source.symbols = {source.split_symbol};
  source.headers.assign(embedded_files().begin(), embedded_files().end());
  return source;
}

// The angles of all pair frequencies of both layer kinds over the positions, `step` apart from
// another start for each, and the floats around every multiple of pi/4 up to the last.
inline std::vector<float> rope_angles(int step) {
  std::vector<float> angles;
  const auto add_frequency = [&](double theta, int pair, int head_dim) {
    const auto frequency = static_cast<float>(std::pow(theta, -2.0 * pair / head_dim));
    for (int position = pair % step; position < kRopePositions; position += step) {
      angles.push_back(static_cast<float>(position) * frequency);
    }
    angles.push_back(static_cast<float>(kRopePositions - 1) * frequency);
  };
  for (int pair = 0; pair < 128; ++pair) add_frequency(1e4, pair, 256);
  for (int pair = 0; pair < 64; ++pair) add_frequency(1e6, pair, 512);
  for (int i = 1; i * std::numbers::pi / 4 < kRopePositions; ++i) {
    const auto angle = static_cast<float>(i * std::numbers::pi / 4);
    for (const float target : {0.0f, 1e9f}) angles.push_back(std::nextafter(angle, target));
    angles.push_back(angle);
  }
  return angles;
}

struct RopeError {
  double absolute = 0;
  double ulp = 0;  // of the result
};
struct RopeResults {
  std::vector<float> sines;
  std::vector<float> cosines;
};

inline RopeResults run_rope_angles(Device& device, const Kernel& kernel,
                                   const std::vector<float>& angles) {
  const std::size_t bytes = angles.size() * sizeof(float);
  const DeviceMem input = device.allocate(bytes);
  const DeviceMem sines = device.allocate(bytes);
  const DeviceMem cosines = device.allocate(bytes);
  device.copy_to_device(input.ptr(), std::as_bytes(std::span(angles)), nullptr);
  const AngleParams params{
      reinterpret_cast<const float*>(input.ptr()), reinterpret_cast<float*>(sines.ptr()),
      reinterpret_cast<float*>(cosines.ptr()), static_cast<int>(angles.size())};
  KernelLaunch shape;
  shape.grid.x = 64;
  shape.block.x = 128;
  device.launch(kernel, shape, &params, nullptr);
  RopeResults results{std::vector<float>(angles.size()), std::vector<float>(angles.size())};
  device.copy_to_host(std::as_writable_bytes(std::span(results.sines)), sines.ptr(), nullptr);
  device.copy_to_host(std::as_writable_bytes(std::span(results.cosines)), cosines.ptr(), nullptr);
  return results;
}

inline RopeError rope_error(const std::vector<float>& angles, const RopeResults& results) {
  RopeError worst;
  const auto add = [&](double exact, float value) {
    const double error = std::abs(value - exact);
    worst.absolute = std::max(worst.absolute, error);
    int exponent = 0;
    std::frexp(exact, &exponent);
    if (exact != 0) worst.ulp = std::max(worst.ulp, std::ldexp(error, 24 - exponent));
  };
  for (std::size_t i = 0; i < angles.size(); ++i) {
    add(std::sin(static_cast<double>(angles[i])), results.sines[i]);
    add(std::cos(static_cast<double>(angles[i])), results.cosines[i]);
  }
  return worst;
}

}  // namespace attune
