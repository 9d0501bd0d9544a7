// Operations of a warp: votes, shuffles, matrix loads and stores, mma.sync; and the scalar
// arithmetic beside them.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "jit/host/checks.h"
#include "jit/host/operations.h"
#include "jit/host/scalar_math.h"
#include "jit/host/tensor_core.h"

namespace attune::host {
namespace {

constexpr std::uint32_t kMatrixRowBytes = 16;

struct VoteArgs {
  int predicate;
  std::uint32_t result;
};

std::uint32_t vote(std::uint32_t mask, Vote kind, int predicate) {
  static constexpr const char* kNames[] = {"vote.all", "vote.any", "vote.ballot"};
  VoteArgs args{predicate, 0};
  Runner::enter(__builtin_return_address(0))
      .meet_warp(mask, kNames[static_cast<int>(kind)], &args,
                 [&](const auto& lanes, std::uint32_t all) {
                   std::uint32_t ballot = 0;
                   for (int lane = 0; lane < kLanes; ++lane) {
                     if (lanes[lane] != nullptr && lanes[lane]->predicate != 0)
                       ballot |= 1u << lane;
                   }
                   const std::uint32_t result = kind == Vote::kBallot ? ballot
                                                : kind == Vote::kAll  ? ballot == all
                                                                      : ballot != 0;
                   for (VoteArgs* one : lanes) {
                     if (one != nullptr) one->result = result;
                   }
                 });
  return args.result;
}

int elect(std::uint32_t mask) {
  VoteArgs args{0, 0};
  Runner::enter(__builtin_return_address(0))
      .meet_warp(mask, "elect.sync", &args, [](const auto& lanes, std::uint32_t all) {
        lanes[__builtin_ctz(all)]->result = 1;
      });
  return static_cast<int>(args.result);
}

struct ShuffleArgs {
  uint64 value;
  int operand;
  int width;
  uint64 result;
};

// The lane that `lane` reads; its own where the source is outside of its segment. Of the operand
// five bits count.
int source_lane(Shuffle kind, int lane, int operand, int width) {
  operand &= kLanes - 1;
  const int segment = lane / width * width;
  const int within = lane % width;
  switch (kind) {
    case Shuffle::kIndex:
      return segment + (operand & (width - 1));
    case Shuffle::kUp:
      return within - operand >= 0 ? lane - operand : lane;
    case Shuffle::kDown:
      return within + operand < width ? lane + operand : lane;
    case Shuffle::kXor:
      break;
  }
  const int source = lane ^ operand;
  return source / width * width <= segment ? source : lane;
}

uint64 shuffle(std::uint32_t mask, Shuffle kind, uint64 value, int operand, int width) {
  static constexpr const char* kNames[] = {"shfl.idx", "shfl.up", "shfl.down", "shfl.bfly"};
  ShuffleArgs args{value, operand, width, value};
  Runner& runner = Runner::enter(__builtin_return_address(0));
  if (width < 1 || width > kLanes || (width & (width - 1)) != 0) {
    runner.fail(FaultKind::kDivergence,
                fmt::format("a shuffle of width {}: a power of two up to 32", width));
  }
  runner.meet_warp(
      mask, kNames[static_cast<int>(kind)], &args, [kind](const auto& lanes, std::uint32_t all) {
        for (int lane = 0; lane < kLanes; ++lane) {
          if (lanes[lane] == nullptr) continue;
          const int source = source_lane(kind, lane, lanes[lane]->operand, lanes[lane]->width);
          // What a lane outside of the mask would give is undefined: the reader's own value.
          lanes[lane]->result =
              (all >> source & 1) != 0 ? lanes[source]->value : lanes[lane]->value;
        }
      });
  return args.result;
}

// mma and the matrix operations have no mask: without all lanes they are undefined.
void require_warp(Runner& runner, std::uint32_t present, const char* what) {
  if (present == kAllLanes) return;
  runner.fail(FaultKind::kDivergence,
              fmt::format("{} of warp {} by the lanes {:#010x} only, the others have ended", what,
                          runner.thread().place.warp, present));
}

struct MatrixArgs {
  std::uint32_t* fragment;
  std::uint32_t smem;
};

// Row r of matrix i is where lane 8 i + r says.
unsigned char* matrix_row(Runner& runner, const std::array<MatrixArgs*, kLanes>& lanes, int lane,
                          Operation operation, const char* what) {
  const std::uint32_t address = lanes[static_cast<std::size_t>(lane)]->smem;
  if (address % kMatrixRowBytes != 0) {
    runner.fail(FaultKind::kMisaligned,
                fmt::format("{} of a row at shared memory offset {}, not a multiple of {}", what,
                            runner.dynamic_offset(address), kMatrixRowBytes));
  }
  unsigned char* const row = runner.shared(address, kMatrixRowBytes, what);
  if (runner.checks() != nullptr) {
    Thread& thread =
        runner.cta().threads[runner.thread().place.warp * kLanes + static_cast<std::size_t>(lane)];
    runner.checks()->shared_access(thread, address, kMatrixRowBytes,
                                   operation == Operation::kStmatrix, operation);
  }
  return row;
}

void ldmatrix(std::uint32_t* fragment, int count, int trans, std::uint32_t smem) {
  MatrixArgs args{fragment, smem};
  Runner& runner = Runner::enter(__builtin_return_address(0));
  const char* const what = trans != 0 ? "ldmatrix.trans" : "ldmatrix";
  runner.meet_warp(kAllLanes, what, &args, [&](const auto& lanes, std::uint32_t present) {
    require_warp(runner, present, what);
    for (int matrix = 0; matrix < count; ++matrix) {
      std::uint16_t values[8][8];
      for (int row = 0; row < 8; ++row) {
        std::memcpy(values[row],
                    matrix_row(runner, lanes, matrix * 8 + row, Operation::kLdmatrix, what),
                    kMatrixRowBytes);
      }
      for (int lane = 0; lane < kLanes; ++lane) {
        const int row = lane / 4;
        const int column = lane % 4 * 2;
        const std::uint32_t low = trans != 0 ? values[column][row] : values[row][column];
        const std::uint32_t high = trans != 0 ? values[column + 1][row] : values[row][column + 1];
        lanes[static_cast<std::size_t>(lane)]->fragment[matrix] = low | high << 16;
      }
    }
  });
}

void stmatrix(const std::uint32_t* fragment, int count, int trans, std::uint32_t smem) {
  MatrixArgs args{const_cast<std::uint32_t*>(fragment), smem};  // only read
  Runner& runner = Runner::enter(__builtin_return_address(0));
  const char* const what = trans != 0 ? "stmatrix.trans" : "stmatrix";
  runner.meet_warp(kAllLanes, what, &args, [&](const auto& lanes, std::uint32_t present) {
    require_warp(runner, present, what);
    for (int matrix = 0; matrix < count; ++matrix) {
      std::uint16_t values[8][8];
      for (int lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t pair = lanes[static_cast<std::size_t>(lane)]->fragment[matrix];
        for (int half = 0; half < 2; ++half) {
          const auto value = static_cast<std::uint16_t>(pair >> (16 * half));
          const int row = lane / 4;
          const int column = lane % 4 * 2 + half;
          (trans != 0 ? values[column][row] : values[row][column]) = value;
        }
      }
      for (int row = 0; row < 8; ++row) {
        std::memcpy(matrix_row(runner, lanes, matrix * 8 + row, Operation::kStmatrix, what),
                    values[row], kMatrixRowBytes);
      }
    }
  });
}

struct MoveArgs {
  std::uint32_t value, result;
};

std::uint32_t movmatrix_trans(std::uint32_t fragment) {
  MoveArgs args{fragment, 0};
  Runner& runner = Runner::enter(__builtin_return_address(0));
  runner.meet_warp(kAllLanes, "movmatrix", &args, [&](const auto& lanes, std::uint32_t present) {
    require_warp(runner, present, "movmatrix");
    const auto element = [&](int row, int column) {
      return lanes[static_cast<std::size_t>(row * 4 + column / 2)]->value >> (16 * (column % 2)) &
             0xffffu;
    };
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4;
      const int column = lane % 4 * 2;
      lanes[static_cast<std::size_t>(lane)]->result =
          element(column, row) | element(column + 1, row) << 16;
    }
  });
  return args.result;
}

void mma_m16n8k16(float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1) {
  MmaLane args{d, a, b0, b1};
  constexpr const char* kWhat = "mma.sync.m16n8k16";
  Runner& runner = Runner::enter(__builtin_return_address(0));
  runner.meet_warp(kAllLanes, kWhat, &args, [&](const auto& lanes, std::uint32_t present) {
    require_warp(runner, present, kWhat);
    MmaLane all[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) all[lane] = *lanes[static_cast<std::size_t>(lane)];
    mma_m16n8k16_bf16(all, kTensorCoreSm90);
  });
}

}  // namespace

void add_warp_operations(Abi* abi) {
  abi->vote = vote;
  abi->elect = elect;
  abi->shuffle = shuffle;
  abi->ldmatrix = ldmatrix;
  abi->stmatrix = stmatrix;
  abi->movmatrix_trans = movmatrix_trans;
  abi->mma_m16n8k16_bf16 = mma_m16n8k16;
  abi->ex2 = ex2;
  abi->lg2 = lg2;
  abi->rcp = rcp;
  abi->tanh = tanh;
  abi->cvt_bf16x2 = cvt_bf16x2;
}

}  // namespace attune::host
