#include "runtime/state_buffer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/error.h"
#include "templates/prologue_plan.h"

namespace attune {

StateBuffer::StateBuffer(Device& device, std::shared_ptr<const StateWriter> writer,
                         std::size_t count)
    : device_(device),
      writer_(std::move(writer)),
      mem_(device.allocate(std::max<std::size_t>(count, 1) * sizeof(int))),
      wanted_(count, -1),
      written_(count, -1) {
  device_.fill_bytes(mem_.ptr(), 0xff, mem_.bytes(), nullptr);
  device_.synchronize(nullptr);
}

void StateBuffer::set(std::size_t at, int value) {
  if (wanted_[at] == value) return;
  if (wanted_[at] == written_[at]) {
    changed_.push_back(at);
    ++num_changed_;
  }
  // A place whose value is taken back stays listed; flush skips it.
  if (value == written_[at]) --num_changed_;
  wanted_[at] = value;
}

void StateBuffer::forget(std::size_t at) noexcept {
  if (wanted_[at] != written_[at]) set(at, written_[at]);  // allocates nothing: it is listed
}

// Launches the changes from changed_[begin] on that fit into one launch; where the next ones begin.
std::size_t StateBuffer::launch_from(std::size_t begin, StreamHandle stream) {
  StateParams params{};
  params.state = reinterpret_cast<int*>(mem_.ptr());
  std::array<int, kMaxStateWrites> before{};
  std::size_t end = begin;
  for (; end < changed_.size() && params.count < kMaxStateWrites; ++end) {
    const std::size_t at = changed_[end];
    if (wanted_[at] == written_[at]) continue;
    before[static_cast<std::size_t>(params.count)] = std::exchange(written_[at], wanted_[at]);
    params.writes[params.count++] = {static_cast<int>(at), wanted_[at]};
  }
  if (params.count == 0) return end;
  try {
    device_.launch(writer_->kernel, plan_state(), &params, stream);
  } catch (...) {
    for (int i = 0; i < params.count; ++i) {
      written_[static_cast<std::size_t>(params.writes[i].at)] = before[static_cast<std::size_t>(i)];
    }
    throw;
  }
  num_changed_ -= static_cast<std::size_t>(params.count);
  return end;
}

void StateBuffer::flush(StreamHandle stream) {
  if (is_current()) {
    changed_.clear();
    return;
  }
  if (device_.is_capturing(stream)) {
    throw InvalidArgument("cannot change the lengths or pages of sequences inside a capture", {},
                          "assign, reserve and commit before the capture begins or after it ends");
  }
  for (std::size_t next = 0; next < changed_.size();) next = launch_from(next, stream);
  changed_.clear();
}

}  // namespace attune
