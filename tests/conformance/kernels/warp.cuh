// Shuffles, votes, elect, named barriers, setmaxnreg, atomics.
namespace attune {

// One warp; args[0] steps. in [32 values | steps, width | 32 operands], out [steps, 4 kinds, 32].
__device__ __forceinline__ void shuffle(const ConformanceParams& p) {
  const uint32 lane = threadIdx.x;
  const uint32 value = p.in[lane];
  for (int step = 0; step < p.args[0]; ++step) {
    const uint32* const in = p.in + 32 + step * 33;
    const int width = static_cast<int>(in[0]);
    const int operand = static_cast<int>(in[1 + lane]);
    uint32* const out = p.out + step * 128 + lane;
    out[0] = __shfl_sync(0xffffffffu, value, operand, width);
    out[32] = __shfl_up_sync(0xffffffffu, value, static_cast<unsigned>(operand & 31), width);
    out[64] = __shfl_down_sync(0xffffffffu, value, static_cast<unsigned>(operand & 31), width);
    out[96] =
        __float_as_uint(__shfl_xor_sync(0xffffffffu, __uint_as_float(value), operand & 31, width));
  }
}

// One warp; args[0] steps. in [steps, predicates | mask], out [steps, 6, 32]: any, all and ballot
// of the warp, then of the lanes in the mask.
__device__ __forceinline__ void vote(const ConformanceParams& p) {
  const uint32 lane = threadIdx.x;
  for (int step = 0; step < p.args[0]; ++step) {
    const int predicate = static_cast<int>(p.in[2 * step] & (1u << lane));
    const uint32 mask = p.in[2 * step + 1];
    uint32* const out = p.out + step * 192 + lane;
    out[0] = __any_sync(0xffffffffu, predicate) != 0 ? 1u : 0u;
    out[32] = __all_sync(0xffffffffu, predicate) != 0 ? 1u : 0u;
    out[64] = __ballot_sync(0xffffffffu, predicate);
    if ((mask >> lane & 1) != 0) {
      out[96] = __any_sync(mask, predicate) != 0 ? 1u : 0u;
      out[128] = __all_sync(mask, predicate) != 0 ? 1u : 0u;
      out[160] = __ballot_sync(mask, predicate);
    }
    __syncwarp();
  }
}

// 128 threads; args[0] rounds. Warps 2 and 3 publish through barrier 1 and wait at barrier 2 until
// warps 0 and 1 have read; barriers 3 and 4 are of one pair of warps each.
// in [rounds, 64], out [rounds, 128].
__device__ __forceinline__ void named_barrier(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  volatile uint32* const words = reinterpret_cast<uint32*>(smem);  // 64 published | 64 | 64
  const uint32 thread = threadIdx.x;
  const uint32 other = thread % 64;
  for (int round = 0; round < p.args[0]; ++round) {
    if (thread >= 64) {
      words[other] = p.in[round * 64 + other];
      bar_arrive(1, 128);
      words[64 + other] = p.in[round * 64 + other] ^ 0x55u;
      bar_sync(4, 64);
      p.out[round * 128 + thread] = words[64 + (other * 5 + 33) % 64];
      bar_sync(2, 128);
    } else {
      bar_sync(1, 128);
      const uint32 value = words[(other * 7 + round) % 64];
      words[128 + other] = value;
      bar_sync(3, 64);
      p.out[round * 128 + thread] = value + words[128 + (other + 32) % 64];
      bar_arrive(2, 128);
    }
  }
}

// One thread applies in turn every operation to a cell of its own; what each gave, then the cells.
// in [args[0] operands], out [operands, 16 | 16 cells].
__device__ __forceinline__ void atomic_steps(const ConformanceParams& p, uint32* cells) {
  int* const ints = reinterpret_cast<int*>(cells);
  for (int i = 0; i < p.args[0]; ++i) {
    const uint32 operand = p.in[i];
    const int number = static_cast<int>(operand);
    uint32* const out = p.out + i * 16;
    out[0] = static_cast<uint32>(atomicAdd(ints, number));
    out[1] = static_cast<uint32>(atomicMin(ints + 1, number));
    out[2] = static_cast<uint32>(atomicMax(ints + 2, number));
    out[3] = static_cast<uint32>(atomicExch(ints + 3, number));
    const int expected = atomicAdd(ints + 4, 0) ^ (i % 2 == 0 ? 0 : 1);  // every other one fails
    out[4] = static_cast<uint32>(atomicCAS(ints + 4, expected, number));
    out[5] = atomicAdd(cells + 5, operand);
    out[6] = atomicMin(cells + 6, operand);
    out[7] = atomicMax(cells + 7, operand);
    out[8] = atomicAnd(cells + 8, operand | 0xff00ff00u);
    out[9] = atomicOr(cells + 9, operand & 0x01010101u << (i % 8));
    out[10] = atomicXor(cells + 10, operand);
    uint64* const wide = reinterpret_cast<uint64*>(cells + 12);
    const uint64 before = atomicAdd(wide, static_cast<uint64>(operand) << 16);
    out[11] = static_cast<uint32>(before);
    out[12] = static_cast<uint32>(before >> 32);
  }
}

__device__ __forceinline__ void atomic_sequence(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  uint32* const shared_cells = reinterpret_cast<uint32*>(smem);
  uint32* const cells = p.out + p.args[0] * 16;
  fill_smem(shared_cells, 16, 0x01234567u);
  __syncthreads();
  if (threadIdx.x == 0) {
    if (p.args[1] != 0) {
      atomic_steps(p, shared_cells);
    } else {
      atomic_steps(p, cells);
    }
  }
  __syncthreads();
  if (p.args[1] != 0) copy_words(cells, shared_cells, 16);
}

// One thread; in [args[0] operands], out [operands, shared | global | 2 cells].
__device__ __forceinline__ void atomic_float(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  float* const shared_cell = reinterpret_cast<float*>(smem);
  float* const cell = reinterpret_cast<float*>(p.out + p.args[0] * 2);
  if (threadIdx.x != 0) return;
  *shared_cell = 0.0f;
  *cell = 0.0f;
  for (int i = 0; i < p.args[0]; ++i) {
    const float operand = __uint_as_float(p.in[i]);
    p.out[2 * i] = __float_as_uint(atomicAdd(shared_cell, operand));
    p.out[2 * i + 1] = __float_as_uint(atomicAdd(cell, operand));
  }
  cell[1] = *shared_cell;
}

// All threads of the grid on the same cells. in [threads], out [8 cells | a mark for each ticket].
__device__ __forceinline__ void atomic_contention(const ConformanceParams& p) {
  const uint32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32 operand = p.in[thread];
  atomicAdd(p.out, operand);
  atomicMin(p.out + 1, operand);
  atomicMax(p.out + 2, operand);
  atomicXor(p.out + 3, operand);
  atomicOr(p.out + 4, operand & 0x10101010u);
  atomicAnd(p.out + 5, operand | 0x0ff00ff0u);
  const uint32 ticket = atomicAdd(p.out + 6, 1u);
  p.out[8 + ticket] = 1;
}

#ifdef ATTUNE_CONFORMANCE_SM90
// One warp; in [args[0] masks], out [masks, 32].
__device__ __forceinline__ void elect(const ConformanceParams& p) {
  const uint32 lane = threadIdx.x;
  for (int i = 0; i < p.args[0]; ++i) {
    const uint32 mask = p.in[i];
    if ((mask >> lane & 1) != 0) p.out[i * 32 + lane] = elect_sync(mask) ? 1u : 0u;
    __syncwarp();
  }
}
#endif

#ifdef ATTUNE_ARCH_SM90A
// Three warpgroups; the first gives registers up, the others take them. in and out [384].
__device__ __forceinline__ void setmaxnreg(const ConformanceParams& p) {
  if (threadIdx.x < 128) {
    setmaxnreg_dec<24>();
    p.out[threadIdx.x] = p.in[threadIdx.x] + 1;
  } else {
    setmaxnreg_inc<240>();
    p.out[threadIdx.x] = p.in[threadIdx.x] ^ 1;
  }
}
#endif

}  // namespace attune

ATTUNE_CONFORMANCE_KERNEL(shuffle, 32)
ATTUNE_CONFORMANCE_KERNEL(vote, 32)
ATTUNE_CONFORMANCE_KERNEL(named_barrier, 128)
ATTUNE_CONFORMANCE_KERNEL(atomic_sequence, 32)
ATTUNE_CONFORMANCE_KERNEL(atomic_float, 32)
ATTUNE_CONFORMANCE_KERNEL(atomic_contention, 128)
#ifdef ATTUNE_CONFORMANCE_SM90
ATTUNE_CONFORMANCE_KERNEL(elect, 32)
#endif
#ifdef ATTUNE_ARCH_SM90A
extern "C" __global__ void __launch_bounds__(384, 1)
    conformance_setmaxnreg(const __grid_constant__ attune::ConformanceParams p) {
  attune::setmaxnreg(p);
}
#endif
