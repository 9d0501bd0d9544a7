// A Device that hands every call on to another one after telling the test its name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "jit/gemm.h"

namespace attune {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  std::function<void(std::string_view call)> on_call;

  const DeviceInfo& info() const override { return device_->info(); }
  std::size_t free_memory_bytes() const override { return device_->free_memory_bytes(); }
  DeviceMem allocate(std::size_t bytes) override { return called("allocate").allocate(bytes); }
  void copy_to_device(DevicePtr to, std::span<const std::byte> from, StreamHandle stream) override {
    called("copy_to_device").copy_to_device(to, from, stream);
  }
  void copy_to_host(std::span<std::byte> to, DevicePtr from, StreamHandle stream) override {
    called("copy_to_host").copy_to_host(to, from, stream);
  }
  void fill_bytes(DevicePtr to, unsigned char value, std::size_t bytes,
                  StreamHandle stream) override {
    called("fill_bytes").fill_bytes(to, value, bytes, stream);
  }
  TensorMap tensor_map(const TensorMapSpec& spec) override {
    return called("tensor_map").tensor_map(spec);
  }
  Stream create_stream() override { return called("create_stream").create_stream(); }
  void synchronize(StreamHandle stream) override { called("synchronize").synchronize(stream); }
  bool is_capturing(StreamHandle stream) const override {
    return called("is_capturing").is_capturing(stream);
  }
  Event create_event() override { return called("create_event").create_event(); }
  void record(const Event& event, StreamHandle stream) override {
    called("record").record(event, stream);
  }
  double elapsed_us(const Event& begin, const Event& end) override {
    return called("elapsed_us").elapsed_us(begin, end);
  }
  Graph capture(StreamHandle stream, const std::function<void()>& work) override {
    return called("capture").capture(stream, work);
  }
  void launch(const Graph& graph, StreamHandle stream) override {
    called("launch_graph").launch(graph, stream);
  }
  Module load(const Binary& binary) override { return called("load").load(binary); }
  Kernel kernel(const Module& module, const std::string& symbol, int smem_bytes) override {
    return called("kernel").kernel(module, symbol, smem_bytes);
  }
  void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
              StreamHandle stream) override {
    called("launch").launch(kernel, shape, params, stream);
  }
  int resident_blocks(const Kernel& kernel, const KernelLaunch& shape) override {
    return called("resident_blocks").resident_blocks(kernel, shape);
  }
  std::unique_ptr<Gemm> open_gemm(const GemmSearch& search) override {
    return called("open_gemm").open_gemm(search);
  }

 private:
  Device& called(std::string_view call) const {
    if (on_call) on_call(call);
    return *device_;
  }
  std::unique_ptr<Device> device_;
};

}  // namespace attune
