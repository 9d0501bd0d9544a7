// A Device that knows its kernels by name: which were launched, also into a capture, and which are
// loaded.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tests/support/forwarding_device.h"

namespace attune {

class NamingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  // The symbols of the launches, but for those of graphs, while `body` runs.
  template <typename Body>
  std::set<std::string> launched_by(const Body& body) {
    launched_.clear();
    body();
    return std::exchange(launched_, {});
  }
  // The symbols that were asked for of modules that are loaded now.
  std::set<std::string> loaded() const {
    std::set<std::string> symbols;
    for (const auto& [module, of] : *modules_) symbols.insert(of.begin(), of.end());
    return symbols;
  }

  Module load(const Binary& binary) override {
    auto inner = std::make_shared<Module>(ForwardingDevice::load(binary));
    (*modules_)[inner->get()];
    return {inner->get(), [inner, modules = modules_](void* handle) {
              modules->erase(handle);
              *inner = Module();
            }};
  }
  Kernel kernel(const Module& module, const std::string& symbol, int smem_bytes) override {
    const Kernel made = ForwardingDevice::kernel(module, symbol, smem_bytes);
    modules_->at(module.get()).insert(symbol);
    names_[made.function] = symbol;
    return made;
  }
  void launch(const Graph& graph, StreamHandle stream) override {
    ForwardingDevice::launch(graph, stream);
  }
  void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
              StreamHandle stream) override {
    launched_.insert(names_.at(kernel.function));
    ForwardingDevice::launch(kernel, shape, params, stream);
  }

 private:
  // Shared with modules, which may outlive the device.
  const std::shared_ptr<std::map<void*, std::set<std::string>>> modules_ =
      std::make_shared<std::map<void*, std::set<std::string>>>();
  std::map<void*, std::string> names_;
  std::set<std::string> launched_;
};

}  // namespace attune
