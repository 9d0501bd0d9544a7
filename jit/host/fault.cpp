#include "jit/host/fault.h"

#include <fmt/format.h>

namespace attune::host {
namespace {

std::string index_text(const Index3& index) {
  return fmt::format("({},{},{})", index.x, index.y, index.z);
}

}  // namespace

const char* to_text(FaultKind kind) {
  switch (kind) {
    case FaultKind::kOutOfRange:
      return "access out of range";
    case FaultKind::kMisaligned:
      return "misaligned access";
    case FaultKind::kReadOnly:
      return "write to read-only memory";
    case FaultKind::kRace:
      return "race on shared memory";
    case FaultKind::kMissingFence:
      return "missing fence.proxy.async";
    case FaultKind::kBarrier:
      return "wrong use of a barrier";
    case FaultKind::kDivergence:
      return "divergent threads";
    case FaultKind::kInvalidOperand:
      return "invalid operand";
    case FaultKind::kDeadlock:
      return "deadlock";
    case FaultKind::kTrap:
      return "trap";
  }
  return "?";
}

std::string to_text(const Fault& fault) {
  std::string text =
      fmt::format("{}: kernel={} block={} thread={} {}", to_text(fault.kind), fault.kernel,
                  index_text(fault.block_idx), index_text(fault.thread_idx), fault.details);
  if (fault.code == nullptr) return text;
  const std::string location = to_text(symbolize(fault.code));
  if (!location.empty()) text += fmt::format(" at {}", location);
  return text;
}

}  // namespace attune::host
