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
  using Base::next;

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
  __device__ __forceinline__ bool is_there(const Place& place) const {
    return tile_of(place.pass) < num_tiles && place.panel < this->num_panels;
  }

  __device__ __forceinline__ void copy_weights(const Place& place) {
    this->first_output =
        experts[entry_of(place.pass)] * params.linear.out_features * Base::kRowsPerOutput;
    Base::copy_weights({part_of(place.pass), place.panel, place.step});
  }
  __device__ __forceinline__ void copy_input(const Place& place) const {
    const uint32 slot = smem_address(this->smem) + this->slot_offset(place.step);
    const int row = entry_of(place.pass) * params.input_rows;
#pragma unroll
    for (int i = 0; i < Base::kColumns / kLinearColumns; ++i) {
      const int at[2] = {place.panel * Base::kColumns + i * kLinearColumns, row};
      cp_async_bulk_tensor_load<2>(slot + i * Base::BLOCK_M * kLinearRowBytes,
                                   &params.linear.input_map, at,
                                   this->barrier(place.step % Base::kStages));
    }
  }

  __device__ __forceinline__ void start() {
    Place place = next;
    if (this->lane == 0) {
      for (; place.step < Base::kStages && is_there(place); this->advance(place)) {
        copy_weights(place);
      }
    }
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    for (; next.step < Base::kStages && is_there(next); this->advance(next)) {
      if (this->lane == 0) copy_input(next);
    }
  }

  // The slot that was read is filled again.
  __device__ __forceinline__ void refill() {
    __syncwarp();
    if (!is_there(next)) return;
    if (this->lane == 0) {
      fence_proxy_async();  // the copies write what the warp has read, in another proxy
      copy_weights(next);
      copy_input(next);
    }
    this->advance(next);
  }

  __device__ __forceinline__ void finish(int pass) {
    this->first_output = entry_of(pass) * this->p.num_tokens * params.linear.out_features;
    Base::finish(part_of(pass));
  }
};

template <KernelConfig kConfig, LinearEpilogue kEpilogue, LinearWeights kWeights>
__device__ __forceinline__ void experts(const ExpertParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  int* const chosen = reinterpret_cast<int*>(smem + linear_smem_bytes(kConfig, kWeights));
  const int num_entries = p.chosen[0];
  for (int i = threadIdx.x; i <= num_entries; i += kLinearWarps * kWarpSize) {
    chosen[i] = p.chosen[i];
  }
  __syncthreads();
  Experts<kConfig, kEpilogue, kWeights> cta(p, smem, chosen);
  cta.start();
  int step = 0;
  for (int pass = 0; cta.tile_of(pass) < cta.num_tiles; ++pass) {
    cta.clear();
    for (int panel = cta.warp; panel < cta.num_panels; panel += kLinearWarps) {
      cta.multiply(step++);
      cta.refill();
    }
    cta.finish(pass);
  }
}

}  // namespace attune
