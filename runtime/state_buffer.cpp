#include "runtime/state_buffer.h"

#include <algorithm>

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

void StateBuffer::flush(StreamHandle stream) {
  if (is_current()) {
    changed_.clear();
    return;
  }
  if (device_.is_capturing(stream)) {
    throw InvalidArgument("cannot change the lengths or pages of sequences inside a capture", {},
                          "assign, reserve and commit before the capture begins or after it ends");
  }
  StateParams params{};
  params.state = reinterpret_cast<int*>(mem_.ptr());
  const auto launch = [&] {
    if (params.count > 0) device_.launch(writer_->kernel, plan_state(), &params, stream);
    params.count = 0;
  };
  for (const std::size_t at : changed_) {
    if (wanted_[at] == written_[at]) continue;
    params.writes[params.count++] = {static_cast<int>(at), wanted_[at]};
    written_[at] = wanted_[at];
    if (params.count == kMaxStateWrites) launch();
  }
  launch();
  changed_.clear();
  num_changed_ = 0;
}

}  // namespace attune
