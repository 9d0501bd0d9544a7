// The functions that PTX calls approximate, rounded correctly instead: hardware is within its
// documented bounds of these (PTX ISA 9.0: ex2 2 ulp, lg2 2^-22, rcp 1 ulp, tanh 2^-11 relative).
// Specials are exact. Every NaN result is 0x7fffffff, as on hardware.
#pragma once

#include "templates/int_types.h"

namespace attune::host {

// ex2.approx.ftz.f32: 2^x. Subnormal inputs count as zero, subnormal results become zero.
float ex2(float x);

// lg2.approx.ftz.f32: log2(x), -inf for zeros and subnormals, NaN below.
float lg2(float x);

// rcp.approx.ftz.f32: 1 / x. Subnormals count as zeros and become zeros, with their sign.
float rcp(float x);

// tanh.approx.f32, which keeps subnormals.
float tanh(float x);

// cvt.rn.bf16x2.f32: rounds to nearest even, `low` in the lower half. NaN becomes 0x7fff.
uint32 cvt_bf16x2(float low, float high);

}  // namespace attune::host
