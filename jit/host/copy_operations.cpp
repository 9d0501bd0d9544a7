// Copies that run on their own: cp.async of a thread and cp.async.bulk of the copy engine.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/checks.h"
#include "jit/host/operations.h"
#include "jit/host/tensor_map.h"

namespace attune::host {
namespace {

constexpr std::uint32_t kBulkAlignment = 16;
constexpr std::uint32_t kBoxAlignment = 128;

void require_aligned(Runner& runner, std::uint64_t address, std::uint32_t alignment,
                     const char* what) {
  if (address % alignment == 0) return;
  runner.fail(FaultKind::kMisaligned,
              fmt::format("{}: the address {:#x} is no multiple of {}", what, address, alignment));
}

// Writes the bytes of one cp.async; nothing when they are there already.
void land(Runner& runner, ThreadCopy* copy) {
  if (copy->is_landed) return;
  copy->is_landed = true;
  unsigned char* const to = runner.shared(copy->smem, copy->bytes, "cp.async");
  if (copy->src_bytes > 0) std::memcpy(to, copy->global, copy->src_bytes);
  std::memset(to + copy->src_bytes, 0, copy->bytes - copy->src_bytes);
}

void cp_async(std::uint32_t smem, const void* global, std::uint32_t bytes,
              std::uint32_t src_bytes) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  require_aligned(runner, smem, bytes, "cp.async to shared memory");
  if (src_bytes > 0)
    require_aligned(runner, reinterpret_cast<std::uintptr_t>(global), bytes,
                    "cp.async from global memory");
  ThreadCopy copy;
  runner.shared(smem, bytes, "cp.async");
  copy.smem = runner.cluster_address(smem);
  copy.number = runner.thread().num_copies++;
  copy.global = global;
  copy.bytes = bytes;
  copy.src_bytes = std::min(src_bytes, bytes);
  if (Checks* checks = runner.checks()) {
    checks->global_access(runner.thread(), global, copy.src_bytes, false);
    copy.check = checks->async_begin(runner.thread(), copy.smem, bytes, true, Operation::kCpAsync);
  }
  if (runner.launch().copies == CopyTiming::kEarly) land(runner, &copy);
  runner.thread().open_copies.push_back(copy);
}

void cp_async_commit_group() {
  Thread& thread = Runner::enter(__builtin_return_address(0)).thread();
  thread.copy_groups.push_back(std::move(thread.open_copies));
  thread.open_copies.clear();
}

void cp_async_wait_group(int pending) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  Thread& thread = runner.thread();
  while (static_cast<int>(thread.copy_groups.size()) > pending) {
    for (ThreadCopy& copy : thread.copy_groups.front()) {
      land(runner, &copy);
      if (runner.checks() != nullptr && !copy.is_ended)
        runner.checks()->async_end(thread, copy.check);
    }
    thread.copy_groups.pop_front();
  }
}

// The thread's copies so far, then an arrival, all later.
void cp_async_mbarrier_arrive(std::uint32_t mbarrier, int noinc) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  Thread* const thread = &runner.thread();
  if (noinc == 0) mbarrier_add_pending(runner, mbarrier);
  const std::uint32_t address = runner.cluster_address(mbarrier);
  const std::uint64_t end = thread->num_copies;
  runner.defer([=, &runner] {
    const auto land_all = [&](CopyGroup* copies) {
      for (ThreadCopy& copy : *copies) {
        if (copy.number >= end) continue;
        land(runner, &copy);
        if (runner.checks() == nullptr || copy.is_ended) continue;
        copy.is_ended = true;
        runner.checks()->async_end_on_mbarrier(copy.check, address,
                                               mbarrier_phase(runner, address));
      }
    };
    for (CopyGroup& group : thread->copy_groups) land_all(&group);
    land_all(&thread->open_copies);
    mbarrier_arrive_on(runner, address, 1);
  });
}

// A bulk load on its way, with everything that its end needs.
struct Load {
  BulkCopy copy;
  std::optional<TensorMapSpec> spec;  // of a box
  std::uint32_t bytes = 0;
  std::vector<std::uint32_t> smem, mbarriers;  // cluster addresses, one per receiving CTA
  std::vector<std::uint64_t> checks;
};

std::span<const int> coordinates_of(const BulkCopy& copy) {
  return {copy.coordinates, static_cast<std::size_t>(copy.rank)};
}

TensorMapSpec spec_of(Runner& runner, const BulkCopy& copy) {
  std::optional<TensorMapSpec> spec;
  std::string refusal;  // fails outside of the handler, which would stay open on this OS thread
  try {
    spec = decode_tensor_map(copy.tensor_map);
  } catch (const Error& error) {
    refusal = error.what();
  }
  if (spec && spec->rank != copy.rank) {
    refusal = fmt::format("cp.async.bulk.tensor of rank {} with a tensor map of rank {}", copy.rank,
                          spec->rank);
  }
  if (!refusal.empty()) runner.fail(FaultKind::kInvalidOperand, std::move(refusal));
  return *spec;
}

// Checks what a bulk copy names; returns its bytes in shared memory.
std::uint32_t require_bulk(Runner& runner, const BulkCopy& copy,
                           const std::optional<TensorMapSpec>& spec, bool is_load) {
  const char* const what = spec ? "cp.async.bulk.tensor" : "cp.async.bulk";
  require_aligned(runner, offset_of(copy.smem), spec ? kBoxAlignment : kBulkAlignment, what);
  Checks* const checks = runner.checks();
  if (!spec) {
    require_aligned(runner, reinterpret_cast<std::uintptr_t>(copy.global), kBulkAlignment, what);
    require_aligned(runner, copy.bytes, kBulkAlignment, what);
    runner.shared(copy.smem, copy.bytes, what);
    if (checks != nullptr)
      checks->global_access(runner.thread(), copy.global, copy.bytes, !is_load);
    return copy.bytes;
  }
  std::string refusal = box_refusal(*spec, coordinates_of(copy), is_load);
  if (!refusal.empty()) {
    refusal.insert(0, fmt::format("{}: ", what));
    runner.fail(FaultKind::kInvalidOperand, std::move(refusal));
  }
  runner.shared(copy.smem, box_span_bytes(*spec), what);
  if (checks != nullptr) {
    visit_global_rows(
        *spec, coordinates_of(copy), is_load, [&](std::uint64_t address, std::uint32_t bytes) {
          checks->global_access(runner.thread(), reinterpret_cast<const void*>(address), bytes,
                                !is_load);
        });
  }
  return box_span_bytes(*spec);
}

void land(Runner& runner, const Load& load) {
  for (std::size_t i = 0; i < load.smem.size(); ++i) {
    if (load.spec) {
      copy_box_to_shared(*load.spec, coordinates_of(load.copy), runner.window_of(load.smem[i]),
                         offset_of(load.smem[i]));
    } else {
      std::memcpy(runner.shared(load.smem[i], load.bytes, "cp.async.bulk"), load.copy.global,
                  load.bytes);
    }
    const std::uint32_t mbarrier = load.mbarriers[i];
    if (runner.checks() != nullptr) {
      runner.checks()->async_end_on_mbarrier(load.checks[i], mbarrier,
                                             mbarrier_phase(runner, mbarrier));
    }
    mbarrier_complete_tx(runner, mbarrier, load.bytes);
  }
}

void bulk_load(const BulkCopy* copy) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  Load load;
  load.copy = *copy;
  load.copy.smem = runner.cluster_address(copy->smem);
  if (copy->tensor_map != nullptr) load.spec = spec_of(runner, *copy);
  const std::uint32_t span = require_bulk(runner, *copy, load.spec, true);
  if (copy->cta_mask >> runner.num_ctas() != 0) {
    runner.fail(FaultKind::kInvalidOperand,
                fmt::format("a multicast to the CTAs {:#x} of a cluster of {}", copy->cta_mask,
                            runner.num_ctas()));
  }
  load.bytes = load.spec ? box_bytes(*load.spec) : copy->bytes;
  for (unsigned rank = 0; rank < runner.num_ctas(); ++rank) {
    const bool receives = copy->cta_mask != 0
                              ? (copy->cta_mask >> rank & 1) != 0
                              : &runner.cta_of_rank(rank) == &runner.cta_of(copy->smem);
    if (!receives) continue;
    load.smem.push_back(runner.cluster_address(copy->smem, rank));
    load.mbarriers.push_back(copy->cta_mask != 0 ? runner.cluster_address(copy->mbarrier, rank)
                                                 : runner.cluster_address(copy->mbarrier));
    if (runner.checks() != nullptr) {
      load.checks.push_back(runner.checks()->async_begin(runner.thread(), load.smem.back(), span,
                                                         true, Operation::kBulkLoad));
    }
  }
  runner.defer([&runner, load = std::move(load)] { land(runner, load); });
}

void land(Runner& runner, const BulkStore& store) {
  const BulkCopy& copy = store.copy;
  if (store.spec) {
    copy_box_to_global(*store.spec, coordinates_of(copy), runner.window_of(copy.smem),
                       offset_of(copy.smem));
  } else {
    std::memcpy(const_cast<void*>(copy.global),
                runner.shared(copy.smem, copy.bytes, "cp.async.bulk"), copy.bytes);
  }
}

void bulk_store(const BulkCopy* copy) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  BulkStore store{*copy, {}};
  if (copy->tensor_map != nullptr) store.spec = spec_of(runner, *copy);
  const std::uint32_t span = require_bulk(runner, *copy, store.spec, false);
  store.copy.smem = runner.cluster_address(copy->smem);
  StoreGroup& open = runner.thread().open_stores;
  if (runner.checks() != nullptr) {
    open.checks.push_back(runner.checks()->async_begin(runner.thread(), store.copy.smem, span,
                                                       false, Operation::kBulkStore));
  }
  open.copies.push_back(store);
  if (runner.launch().copies == CopyTiming::kEarly) {
    land(runner, store);
    open.num_landed = open.copies.size();
  }
}

void bulk_commit_group() {
  Thread& thread = Runner::enter(__builtin_return_address(0)).thread();
  thread.store_groups.push_back(std::move(thread.open_stores));
  thread.open_stores = {};
}

// The writes are visible after a wait for the reads too: here both happen at once.
void bulk_wait_group(int pending, int) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  Thread& thread = runner.thread();
  while (static_cast<int>(thread.store_groups.size()) > pending) {
    const StoreGroup& group = thread.store_groups.front();
    for (std::size_t i = group.num_landed; i < group.copies.size(); ++i)
      land(runner, group.copies[i]);
    for (const std::uint64_t check : group.checks) runner.checks()->async_end(thread, check);
    thread.store_groups.pop_front();
  }
}

}  // namespace

void add_copy_operations(Abi* abi) {
  abi->cp_async = cp_async;
  abi->cp_async_commit_group = cp_async_commit_group;
  abi->cp_async_wait_group = cp_async_wait_group;
  abi->cp_async_mbarrier_arrive = cp_async_mbarrier_arrive;
  abi->bulk_load = bulk_load;
  abi->bulk_store = bulk_store;
  abi->bulk_commit_group = bulk_commit_group;
  abi->bulk_wait_group = bulk_wait_group;
}

}  // namespace attune::host
