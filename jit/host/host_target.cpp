#include "jit/host/host_target.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <fmt/format.h>

#include "common/error.h"
#include "templates/host/abi.h"

namespace attune {
namespace {

constexpr std::string_view kHost = "host";
constexpr std::string_view kDebug = "+debug";

std::string_view name_of(HostChecks checks) {
  switch (checks) {
    case HostChecks::kNone:
      return "";
    case HostChecks::kAccesses:
      return "+checks";
    case HostChecks::kSanitizers:
      return "+sanitizers";
  }
  throw InvalidArgument("unknown host checks", fmt::format("value={}", static_cast<int>(checks)));
}

// Whether this CPU runs x86-64-v3 code: the micro-architecture levels of the x86-64 psABI.
bool has_x86_64_v3() {
#if defined(__x86_64__)
  // The built-in knows whether the system saves the vector registers, but not every feature.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2")) {
    return false;
  }
  constexpr unsigned kMovbe = 1u << 22, kF16c = 1u << 29;  // leaf 1, ecx
  constexpr unsigned kLzcnt = 1u << 5;                     // leaf 0x80000001, ecx
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((ecx & kMovbe) == 0 || (ecx & kF16c) == 0) return false;
  return __get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kLzcnt) != 0;
#else
  return false;
#endif
}

}  // namespace

std::string HostTarget::text() const {
  return fmt::format("{}{}{}", kHost, name_of(checks), debug ? kDebug : "");
}

HostTarget HostTarget::parse(std::string_view text) {
  for (const HostChecks checks :
       {HostChecks::kNone, HostChecks::kAccesses, HostChecks::kSanitizers}) {
    for (const bool debug : {false, true}) {
      const HostTarget target{checks, debug};
      if (target.text() == text) return target;
    }
  }
  throw InvalidArgument("unknown architecture of the host device", fmt::format("arch='{}'", text),
                        "use host, host+checks or host+sanitizers, each also with +debug");
}

bool is_host_arch(std::string_view arch) {
  return arch == kHost || arch.starts_with(fmt::format("{}+", kHost));
}

std::vector<std::string> host_options(const HostTarget& target) {
  std::vector<std::string> options = {
      "-std=c++20",
      target.debug ? "-O0" : "-O2",
      target.debug ? "-g3" : "-g1",  // 1: lines for a backtrace
      "-w",
      "-fPIC",
      "-shared",
      "-nostdinc",                   // templates include nothing but each other
      "-nodefaultlibs",              // above all not a sanitizer's runtime, see below
      "-fvisibility=hidden",         // modules of one process do not share inline functions
      "-ftls-model=global-dynamic",  // modules are loaded after the process has started
      "-fno-exceptions",
      "-fno-rtti",
      "-ffp-contract=off",  // a multiply and an add are fused where the template says so
      "-fno-strict-aliasing",
  };
  // Signed overflow stays undefined, as it is in CUDA C++, so that the sanitizer reports it.
  if (has_x86_64_v3()) options.emplace_back("-march=x86-64-v3");
  switch (target.checks) {
    case HostChecks::kNone:
      options.emplace_back("-Wl,-z,defs");
      break;
    case HostChecks::kAccesses:
      // Only for its calls at loads and stores: the module defines the functions it calls. Vectors
      // would join accesses that the kernel makes one by one.
      options.insert(options.end(), {"-Wl,-z,defs", "-fsanitize=thread", "-fno-tree-vectorize",
                                     "-fno-tree-slp-vectorize"});
      break;
    case HostChecks::kSanitizers:
      // The process has the functions it calls.
      options.insert(options.end(), {"-fsanitize=address,undefined", "-fno-sanitize-recover=all",
                                     "-fno-omit-frame-pointer"});
      break;
  }
  options.push_back(fmt::format("-DATTUNE_HOST={}", host::kAbiVersion));
  return options;
}

}  // namespace attune
