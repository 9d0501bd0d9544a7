// (problem, candidate) to grid, block, shared memory and workspace: pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "templates/family.h"
#include "templates/params.h"
#include "templates/problem.h"

namespace attune {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  friend bool operator==(const Dim3&, const Dim3&) = default;
};

struct KernelLaunch {
  Dim3 grid;
  Dim3 block;
  int smem_bytes = 0;  // dynamic
  // The kernel waits for the one in front by itself (griddepcontrol.wait) and may start before its
  // end.
  bool programmatic = false;
  Dim3 cluster = {};  // in CTAs; divides the grid
};

struct LaunchPlan {
  KernelLaunch split;
  KernelLaunch combine;  // not launched when needs_combine is false
  bool needs_combine = false;
  bool merges_in_cluster = false;
  int num_row_blocks = 1;
  int num_slots = 1;   // AttentionParams
  int split_cap = 1;   // AttentionParams
  TensorBox kv_box;    // of the tensor maps; rows 0: none are needed
  int kv_columns = 0;  // of a K/V row
  int page_size = 0;   // of paged layouts, else 0
  bool unified = false;
  std::size_t o_partial_bytes = 0;    // at the start of the workspace
  std::size_t lse_partial_bytes = 0;  // right behind it, with the plans of shared slots
  std::size_t workspace_bytes() const { return o_partial_bytes + lse_partial_bytes; }
};

// Rows that a ring needs at least: a verify step writes its seqlen_q keys before it reads, and none
// of the oldest query's window may be lost (design.md 6); and a tile must not wrap twice.
int min_ring_capacity(const Problem& problem);

// Chunks that a row of an invariant problem comes in at most (split_plan.h), over the problem's kv
// range: with a window any range, without one no longer context can be served.
int invariant_split_cap(const Problem& problem);

// Whether the splits of a row block form a cluster that merges them itself: where one row block is
// all. A property of the candidate, so that what is verified is what is served, whatever the batch.
bool merges_in_cluster(const Family& family, int num_row_blocks, int split_cap);

// Whether the sequences of a batch share the slots, as their lengths demand (split_plan.h): where the
// candidate's split_cap is above the batch. It is the number of slots then, else of each sequence's.
// Known when a kernel is compiled: the code for it costs the others 3% [h200].
bool shares_slots(const Problem& problem, const Candidate& candidate);

// Why no grid has the CTAs that a candidate makes of a problem, if so.
std::optional<Unsupported> launch_limits(const Problem& problem, const Candidate& candidate);

// Throws InvalidArgument where launch_limits refuses. The workspace has to be 256-byte aligned and needs no initialization. How many CTAs a linear layer
// has depends on the device: plan_linear (model_plan.h) says it, and the grid is 1 here.
LaunchPlan plan_launch(const Problem& problem, const Candidate& candidate);
// The same for kernels that were compiled for another batch.
LaunchPlan plan_launch(const Problem& problem, const Candidate& candidate, bool shares);

// Fills the fields of AttentionParams that the problem and the plan decide, the partial pointers
// included. Pointers, strides, sm_scale, softcap, kv_len_add, the capacities and overlap are the
// caller's, the tensor maps those of launch_attention.
void set_plan_params(const Problem& problem, const LaunchPlan& plan, std::uint64_t workspace,
                     AttentionParams* params);

}  // namespace attune
