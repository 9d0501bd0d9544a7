// wgmma of a warpgroup. With late copies a product is computed when it is waited for, from what
// shared memory holds then; so a slot that is overwritten too early, or a sum that is read too
// early, gives a wrong result.
#include <algorithm>

#include <fmt/format.h>

#include "jit/host/checks.h"
#include "jit/host/operations.h"
#include "jit/host/tensor_core.h"
#include "jit/host/wgmma_operand.h"

namespace attune::host {
namespace {

constexpr int kMaxColumns = 256;

bool same_operation(const Wgmma& a, const Wgmma& b) {
  return a.n == b.n && (a.a == nullptr) == (b.a == nullptr) && a.a_descriptor == b.a_descriptor &&
         a.b_descriptor == b.b_descriptor && a.scale_d == b.scale_d && a.scale_a == b.scale_a &&
         a.scale_b == b.scale_b && a.trans_a == b.trans_a && a.trans_b == b.trans_b;
}

OperandMajor major_of(int trans) { return trans != 0 ? OperandMajor::kMn : OperandMajor::kK; }

void negate(std::uint16_t (*operand)[kMmaDepth], int rows) {
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < kMmaDepth; ++k) operand[row][k] ^= 0x8000;
  }
}

void compute(Runner& runner, const WarpgroupProduct& product) {
  const Wgmma& operation = product.operation;
  const int n = operation.n;
  const unsigned char* const window =
      runner.window_of(runner.cluster_address(0, runner.cta().cluster_rank));
  std::uint16_t a[kWgmmaRows][kMmaDepth];
  std::uint16_t b[kMaxColumns][kMmaDepth];
  std::vector<float> d(static_cast<std::size_t>(kWgmmaRows) * n);
  if (operation.a == nullptr) {
    read_operand(decode_operand_descriptor(operation.a_descriptor), major_of(operation.trans_a),
                 kWgmmaRows, window, a);
  } else {
    for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
      for (int reg = 0; reg < 4; ++reg) {
        for (int half = 0; half < 2; ++half) {
          const TileElement at = wgmma_a_element(thread, reg, half);
          a[at.row][at.column] = static_cast<std::uint16_t>(
              product.a[static_cast<std::size_t>(thread)][static_cast<std::size_t>(reg)] >>
              (16 * half));
        }
      }
    }
  }
  read_operand(decode_operand_descriptor(operation.b_descriptor), major_of(operation.trans_b), n,
               window, b);
  if (operation.scale_a < 0) negate(a, kWgmmaRows);
  if (operation.scale_b < 0) negate(b, n);
  const auto each_sum = [&](const auto& visit) {
    for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
      for (int reg = 0; reg < n / 2; ++reg) {
        const TileElement at = wgmma_sum_element(thread, reg);
        visit(d[static_cast<std::size_t>(at.row) * n + at.column],
              product.d[static_cast<std::size_t>(thread)][reg]);
      }
    }
  };
  if (operation.scale_d != 0) each_sum([](float& sum, const float& of_thread) { sum = of_thread; });
  multiply_tile(kWgmmaRows, n, a, b, d.data(), kTensorCoreSm90);
  each_sum([](const float& sum, float& of_thread) { of_thread = sum; });
}

// The shared memory that a product reads, as few ranges as it takes.
std::vector<std::pair<std::uint32_t, std::uint32_t>> operand_ranges(const Wgmma& operation) {
  std::vector<std::uint32_t> chunks;
  const auto add = [&](std::uint32_t address, std::uint32_t) { chunks.push_back(address); };
  if (operation.a == nullptr) {
    visit_operand_chunks(decode_operand_descriptor(operation.a_descriptor),
                         major_of(operation.trans_a), kWgmmaRows, add);
  }
  visit_operand_chunks(decode_operand_descriptor(operation.b_descriptor),
                       major_of(operation.trans_b), operation.n, add);
  std::sort(chunks.begin(), chunks.end());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
  for (const std::uint32_t chunk : chunks) {
    if (!ranges.empty() && chunk <= ranges.back().first + ranges.back().second) {
      ranges.back().second = chunk + 16 - ranges.back().first;
    } else {
      ranges.emplace_back(chunk, 16);
    }
  }
  return ranges;
}

void require_valid(Runner& runner, const Wgmma& operation) {
  if (operation.n < 8 || operation.n > kMaxColumns || operation.n % 8 != 0) {
    runner.fail(FaultKind::kInvalidOperand, fmt::format("wgmma with {} columns", operation.n));
  }
  if (operation.a != nullptr && operation.trans_a != 0) {
    runner.fail(FaultKind::kInvalidOperand, "wgmma with a transposed A in registers");
  }
}

// The first threads of the warps of the running thread's warpgroup.
std::array<Thread*, kWarpgroupThreads / kLanes> leaders_of(Runner& runner) {
  std::array<Thread*, kWarpgroupThreads / kLanes> leaders{};
  const int first = runner.thread().index / kWarpgroupThreads * kWarpgroupThreads;
  for (std::size_t warp = 0; warp < leaders.size(); ++warp) {
    leaders[warp] = &runner.cta().threads[static_cast<std::size_t>(first) + warp * kLanes];
  }
  return leaders;
}

void wgmma(const Wgmma* operation) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  require_valid(runner, *operation);
  Wgmma own = *operation;
  runner.meet_warpgroup("wgmma.mma_async", &own, [&](Warpgroup& group, const auto& args) {
    WarpgroupProduct product;
    product.operation = own;
    for (std::size_t i = 0; i < kWarpgroupThreads; ++i) {
      const Wgmma& other = *static_cast<const Wgmma*>(args[i]);
      if (!same_operation(other, own)) {
        runner.fail(FaultKind::kDivergence,
                    "the threads of a warpgroup give different operands to wgmma");
      }
      product.d[i] = other.d;
      if (other.a != nullptr) std::copy_n(other.a, 4, product.a[i].begin());
    }
    for (const auto& [address, bytes] : operand_ranges(own)) {
      runner.shared(address, bytes, "wgmma operand");
      if (runner.checks() == nullptr) continue;
      // Each warp reads for itself: what orders one of them orders no other.
      for (Thread* const leader : leaders_of(runner)) {
        product.checks.push_back(
            {leader, runner.checks()->async_begin(*leader, runner.cluster_address(address), bytes,
                                                  false, Operation::kWgmma)});
      }
    }
    if (runner.launch().copies == CopyTiming::kEarly) compute(runner, product);
    group.open_products.push_back(std::move(product));
  });
}

void wgmma_fence() {}

void wgmma_commit_group() {
  int nothing = 0;
  Runner::enter(__builtin_return_address(0))
      .meet_warpgroup("wgmma.commit_group", &nothing, [](Warpgroup& group, const auto&) {
        group.product_groups.push_back(std::move(group.open_products));
        group.open_products.clear();
      });
}

void wgmma_wait_group(int pending) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  runner.meet_warpgroup("wgmma.wait_group", &pending, [&](Warpgroup& group, const auto&) {
    while (static_cast<int>(group.product_groups.size()) > pending) {
      for (const WarpgroupProduct& product : group.product_groups.front()) {
        if (runner.launch().copies == CopyTiming::kLate) compute(runner, product);
        for (const auto& [leader, check] : product.checks) {
          runner.checks()->async_end_in_warp(*leader, check);
        }
      }
      group.product_groups.pop_front();
    }
  });
}

}  // namespace

void add_wgmma_operations(Abi* abi) {
  abi->wgmma = wgmma;
  abi->wgmma_fence = wgmma_fence;
  abi->wgmma_commit_group = wgmma_commit_group;
  abi->wgmma_wait_group = wgmma_wait_group;
}

}  // namespace attune::host
