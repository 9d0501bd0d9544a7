// A Device whose streams overlap in every way that they may: what they are given waits until
// somebody waits for a stream; then the heads of all streams are run in a random order. For the
// host device, which itself runs everything at once. What still waits in the end is dropped.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/forwarding_device.h"

namespace attune {

class InterleavingDevice : public ForwardingDevice {
 public:
  InterleavingDevice(std::unique_ptr<Device> device, unsigned seed)
      : ForwardingDevice(std::move(device)), random_(seed) {}

  // How often the next operation was one of another stream than the last.
  int num_turns() const { return num_turns_; }

  void copy_to_device(DevicePtr to, std::span<const std::byte> from, StreamHandle stream) override {
    put(stream, [this, to, stream, bytes = std::vector(from.begin(), from.end())] {
      ForwardingDevice::copy_to_device(to, bytes, stream);
    });
  }
  void copy_to_host(std::span<std::byte> to, DevicePtr from, StreamHandle stream) override {
    finish(stream);
    ForwardingDevice::copy_to_host(to, from, stream);
  }
  void fill_bytes(DevicePtr to, unsigned char value, std::size_t bytes,
                  StreamHandle stream) override {
    put(stream, [=, this] { ForwardingDevice::fill_bytes(to, value, bytes, stream); });
  }
  void synchronize(StreamHandle stream) override { finish(stream); }
  void record(const Event& event, StreamHandle stream) override {
    finish(stream);
    ForwardingDevice::record(event, stream);
  }
  // `graph` stays where it is until the stream has finished.
  void launch(const Graph& graph, StreamHandle stream) override {
    put(stream, [this, of = &graph, stream] { ForwardingDevice::launch(*of, stream); });
  }
  void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
              StreamHandle stream) override {
    const auto launch_now = [&](StreamHandle on) {
      ForwardingDevice::launch(kernel, shape, params, on);
    };
    if (is_capturing(stream)) return launch_now(stream);
    // A graph of one launch has a copy of its parameters.
    if (!recording_) recording_ = ForwardingDevice::create_stream();
    auto one = std::make_shared<const Graph>(
        ForwardingDevice::capture(recording_.get(), [&] { launch_now(recording_.get()); }));
    put(stream, [this, one, stream] { ForwardingDevice::launch(*one, stream); });
  }

 private:
  using Operation = std::function<void()>;

  struct Queue {
    StreamHandle stream;
    std::deque<Operation> waiting;
  };

  // The default stream waits for all others, and they for it.
  void put(StreamHandle stream, Operation operation) {
    if (stream == nullptr) finish(nullptr);
    if (stream == nullptr || is_capturing(stream)) return operation();
    const auto same = [&](const Queue& queue) { return queue.stream == stream; };
    auto found = std::find_if(queues_.begin(), queues_.end(), same);
    if (found == queues_.end()) found = queues_.insert(found, Queue{stream, {}});
    found->waiting.push_back(std::move(operation));
  }
  // Runs what other streams have to do too, as it comes.
  void finish(StreamHandle stream) {
    const auto is_awaited = [&](const Queue& queue) {
      return (stream == nullptr || queue.stream == stream) && !queue.waiting.empty();
    };
    while (std::any_of(queues_.begin(), queues_.end(), is_awaited)) {
      std::uniform_int_distribution<std::size_t> any(0, queues_.size() - 1);
      Queue& next = queues_[any(random_)];
      if (next.waiting.empty()) continue;
      if (next.stream != last_) ++num_turns_;
      last_ = next.stream;
      const Operation operation = std::move(next.waiting.front());
      next.waiting.pop_front();
      operation();
    }
  }

  std::vector<Queue> queues_;  // in the order in which the streams were first used
  std::mt19937 random_;
  Stream recording_;
  StreamHandle last_ = nullptr;
  int num_turns_ = 0;
};

}  // namespace attune
