// A kernel module on the host device: the shared object of a Binary, loaded.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "jit/binary.h"
#include "templates/host/abi.h"

namespace attune::host {

struct EntryPoint {
  void (*call)(const void* params) = nullptr;
  std::size_t params_bytes = 0;
};

// Bytes of memory.
struct Region {
  const unsigned char* begin = nullptr;
  std::size_t bytes = 0;
  bool contains(const void* pointer, std::size_t size) const {
    const auto* at = static_cast<const unsigned char*>(pointer);
    return at >= begin && size <= bytes && static_cast<std::size_t>(at - begin) <= bytes - size;
  }
};

class HostModule {
 public:
  // Throws CudaError when it is no module of this library. `keep_file`: debuggers find it on disk.
  HostModule(const Binary& binary, const Abi& abi, bool keep_file);
  HostModule(const HostModule&) = delete;
  HostModule& operator=(const HostModule&) = delete;
  ~HostModule();

  // Throws CudaError when there is no such kernel.
  EntryPoint entry(const std::string& symbol) const;

  // Of the calling OS thread: its dynamic shared memory, and all thread-local memory of the module.
  unsigned char* smem() const { return smem_(); }
  Region thread_local_block() const;
  // Code and constants.
  const std::vector<Region>& image() const { return image_; }

 private:
  void* symbol(const std::string& name) const;

  int file_ = -1;
  std::string path_;
  bool remove_file_ = false;
  void* library_ = nullptr;
  unsigned char* (*smem_)() = nullptr;
  std::vector<Region> image_;
};

}  // namespace attune::host
