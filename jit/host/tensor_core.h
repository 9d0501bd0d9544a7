// The bf16 product of the tensor cores with fp32 accumulation, bit for bit.
//
// d = c + a[0] * b[0] + ... + a[15] * b[15] is one sum, not a chain of rounded additions: products
// are exact, every addend is aligned to the largest exponent and truncated there, the sum is exact,
// and the result is truncated to fp32. Sources of the model:
//   Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer
//     Science 7:e330, 2021: exact products, one alignment, truncation, no normalization in between.
//   Xie, Wang, Yang, Yang, "MMA-Sim: bit-accurate reference model of tensor cores and matrix
//     cores", arXiv 2511.10909, 2025 (github.com/microsoft/MMA-Sim): the constants of each
//     architecture, and the exponent that a zero addend counts with. No code is taken from it.
// An H200 agrees in every bit of 837,632 results of mma.sync and wgmma (tests/data/conformance).
// They settle that k = 16 is one sum with 25 fraction bits, that everything truncates, that a zero
// sum is +0 even of negative zeros, that overflow gives an infinity and that NaN is 0x7fffffff.
// They do not reach zero_exponent, nor the sign of a negative sum below the least subnormal number
// (here -0): those are as in MMA-Sim.
#pragma once

#include "templates/int_types.h"

namespace attune::host {

constexpr int kMmaDepth = 16;  // k of one instruction

// What differs between architectures.
struct TensorCoreModel {
  int block_length;   // products of one sum: 16, or 8 for two sums of which the second takes the
                      // first one's result as its c
  int fraction_bits;  // of an addend that are kept below the largest exponent; at most 25
  int zero_exponent;  // of an addend that is zero; matters next to nothing but tiny addends
};

constexpr TensorCoreModel kTensorCoreSm80{8, 24, -132};
constexpr TensorCoreModel kTensorCoreSm90{16, 25, -133};

// c + sum of a[i] * b[i] over kMmaDepth bf16 numbers: one element of a product, without vector
// instructions.
float multiply_add(float c, const uint16* a, const uint16* b, const TensorCoreModel& model);

// What a lane of a warp brings to mma.sync.m16n8k16, fragments as in the PTX ISA.
struct MmaLane {
  float* d;         // four sums, read and written
  const uint32* a;  // four registers
  uint32 b0, b1;
};

// d += A * B of a warp, A [16, 16] and B [16, 8].
void mma_m16n8k16_bf16(const MmaLane (&lanes)[32], const TensorCoreModel& model);

// d [rows, n] += A * B for A [rows, 16] and B given by columns: b[j] is column j of B [16, n].
// `n` is a multiple of 8; rows of d are `n` floats apart. This is wgmma with 64 rows.
void multiply_tile(int rows, int n, const uint16 (*a)[kMmaDepth], const uint16 (*b)[kMmaDepth],
                   float* d, const TensorCoreModel& model);

// The same without vector instructions. Same bits, some 30 times slower: what the tests compare to.
void multiply_tile_scalar(int rows, int n, const uint16 (*a)[kMmaDepth],
                          const uint16 (*b)[kMmaDepth], float* d, const TensorCoreModel& model);

}  // namespace attune::host
