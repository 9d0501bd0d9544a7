#include "jit/host/host_module.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/host_errors.h"

namespace attune::host {
namespace {

void write_all(int file, const std::vector<std::byte>& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(file, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno != EINTR) {
      throw Error("cannot write a kernel module", std::strerror(errno),
                  "free some memory or disk space");
    }
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
}

// What dl_iterate_phdr says about the module that holds an address.
struct ModuleSearch {
  std::uintptr_t address;
  std::vector<Region> image;
  Region thread_local_block;
};

int visit_module(dl_phdr_info* info, std::size_t, void* data) {
  auto* const search = static_cast<ModuleSearch*>(data);
  std::vector<Region> image;
  std::size_t tls_bytes = 0;
  bool is_it = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type == PT_TLS) tls_bytes = header.p_memsz;
    if (header.p_type != PT_LOAD) continue;
    const Region region{reinterpret_cast<const unsigned char*>(info->dlpi_addr + header.p_vaddr),
                        header.p_memsz};
    is_it |= region.contains(reinterpret_cast<const void*>(search->address), 1);
    image.push_back(region);
  }
  if (!is_it) return 0;
  search->image = std::move(image);
  search->thread_local_block = {static_cast<const unsigned char*>(info->dlpi_tls_data), tls_bytes};
  return 1;
}

ModuleSearch find_module(void* address) {
  ModuleSearch search{reinterpret_cast<std::uintptr_t>(address), {}, {}};
  dl_iterate_phdr(visit_module, &search);
  return search;
}

}  // namespace

HostModule::HostModule(const Binary& binary, const Abi& abi, bool keep_file) {
  if (keep_file) {
    std::error_code error;  // with it the file cannot be created, which is reported below
    const auto folder = std::filesystem::temp_directory_path(error);
    path_ = (folder / fmt::format("attune-kernel-{}-XXXXXX", binary.content.text())).string();
    file_ = mkostemp(path_.data(), O_CLOEXEC);
    remove_file_ = true;
  } else {
    file_ = memfd_create("attune-kernel", MFD_CLOEXEC);
    path_ = fmt::format("/proc/self/fd/{}", file_);
  }
  if (file_ < 0) {
    throw Error("cannot create the file of a kernel module",
                fmt::format("path={} {}", path_, std::strerror(errno)));
  }
  try {
    write_all(file_, binary.cubin);
    // The name of the file stays taken as long as the module is loaded: the loader would take a
    // second module of the same name for the first.
    library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr)
      throw host_error(kInvalidImage, "cannot load the kernel module", dlerror());
    const auto* version = static_cast<const int*>(symbol("attune_host_abi_version"));
    if (*version != kAbiVersion) {
      throw host_error(kInvalidImage, "the kernel module is of another version",
                       fmt::format("version={} supported={}", *version, kAbiVersion));
    }
    *static_cast<const Abi**>(symbol("attune_host_abi")) = &abi;
    smem_ = reinterpret_cast<unsigned char* (*)()>(symbol("attune_host_smem"));
    image_ = find_module(reinterpret_cast<void*>(smem_)).image;
  } catch (...) {
    if (library_ != nullptr) dlclose(library_);
    close(file_);
    if (remove_file_) unlink(path_.c_str());
    throw;
  }
}

HostModule::~HostModule() {
  dlclose(library_);
  close(file_);
  if (remove_file_) unlink(path_.c_str());
}

void* HostModule::symbol(const std::string& name) const {
  void* const found = dlsym(library_, name.c_str());
  if (found == nullptr) {
    throw host_error(kNotFound, "cannot find the kernel in its binary",
                     fmt::format("symbol={}", name));
  }
  return found;
}

EntryPoint HostModule::entry(const std::string& name) const {
  EntryPoint entry;
  entry.call = reinterpret_cast<void (*)(const void*)>(symbol("attune_entry_" + name));
  entry.params_bytes = *static_cast<const unsigned long*>(symbol("attune_params_" + name));
  return entry;
}

Region HostModule::thread_local_block() const {
  smem_();  // the loader makes the block at the first use
  return find_module(reinterpret_cast<void*>(smem_)).thread_local_block;
}

}  // namespace attune::host
