// Computes  a linear layer of every expert that a group of tokens chose (ExpertParams), each expert's W
//           read once.
// Grid      CTAs. The outputs of each entry's expert are cut into num_passes tiles; a CTA has every
//           gridDim-th tile of all. Threads and fragments are those of linear.cuh, whose passes are the
//           tiles.
// Smem      that of linear.cuh | the list of experts.
// Tokens    all of the group go through every expert: a matrix of the tensor cores has room for them, and
//           no index depends on who chose what.
// Overlap   the list of experts was written before the kernel in front began, so it and the first slots
//           of W are read before griddepcontrol.wait.
// Bits      of an output depend on its expert's row of W, its token's x, and in_features alone.
#pragma once

#include "templates/expert_params.h"
#include "templates/linear.cuh"

namespace attune {

template <KernelConfig kConfig, LinearEpilogue kEpilogue, LinearWeights kWeights>
struct Experts : Linear<kConfig, kEpilogue, kWeights> {
  using Base = Linear<kConfig, kEpilogue, kWeights>;
  using Place = typename Base::Place;  // its pass is the number of the CTA's tile

  const ExpertParams& params;
  const int* const experts;  // of the entries, in shared memory
  const int num_tiles;

  __device__ __forceinline__ Experts(const ExpertParams& p, unsigned char* shared,
                                     const int* chosen)
      : Base(p.linear, shared),
        params(p),
        experts(chosen + 1),
        num_tiles(chosen[0] * p.linear.num_passes) {
    this->num_outputs = p.linear.out_features;
  }

  __device__ __forceinline__ static int tile_of(int pass) { return blockIdx.x + pass * gridDim.x; }
  __device__ __forceinline__ int entry_of(int pass) const {
    return tile_of(pass) / params.linear.num_passes;
  }
  __device__ __forceinline__ int part_of(int pass) const {
    return tile_of(pass) % params.linear.num_passes;
  }
  __device__ __forceinline__ bool has_pass(int pass) const { return tile_of(pass) < num_tiles; }
  __device__ __forceinline__ bool is_there(const Place& place) const {
    return has_pass(place.pass) && place.panel < this->num_panels;
  }

  __device__ __forceinline__ int first_row(int pass) const {
    return experts[entry_of(pass)] * params.linear.out_features * Base::kRowsPerOutput +
           this->pass_begin(part_of(pass));
  }
  __device__ __forceinline__ int outputs_of(int pass) const {
    return this->pass_outputs(part_of(pass));
  }
  __device__ __forceinline__ void copy_input(const Place& place) const {
    Base::copy_input(place, entry_of(place.pass) * params.input_rows);
  }

  __device__ __forceinline__ void finish(int pass) {
    this->first_output = entry_of(pass) * this->p.num_tokens * params.linear.out_features;
    Base::finish(part_of(pass), pass);
  }
};

template <KernelConfig kConfig, LinearEpilogue kEpilogue, LinearWeights kWeights>
__device__ __forceinline__ void experts(const ExpertParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  int* const chosen = reinterpret_cast<int*>(smem + linear_smem_bytes(kConfig, kWeights));
  const int num_entries = p.chosen[0];
  for (int i = threadIdx.x; i <= num_entries; i += linear_warps(kWeights) * kWarpSize) {
    chosen[i] = p.chosen[i];
  }
  __syncthreads();
  Experts<kConfig, kEpilogue, kWeights> cta(p, smem, chosen);
  cta.run(cta);
}

}  // namespace attune
