#include "runtime/c_errors.h"

#include <exception>
#include <new>

#include <fmt/format.h>

#include "runtime/attune.h"

namespace attune {
namespace {

// Of a caller that never set its struct's size.
constexpr std::size_t kLargestGrowth = 64;

thread_local std::string message_of_last_call;

// Never throws: without memory for the message a part of it is kept.
attune_status fail(attune_status status, const char* message) noexcept {
  try {
    message_of_last_call = message;
  } catch (const std::bad_alloc&) {
    message_of_last_call.assign("out of memory",
                                std::min<std::size_t>(13, message_of_last_call.capacity()));
  }
  return status;
}

[[noreturn]] void refuse_size(const char* name, std::size_t bytes, std::size_t known,
                              const char* what_to_do) {
  throw InvalidArgument("a struct has a size that is not known here",
                        fmt::format("{}.struct_size={} known={}", name, bytes, known), what_to_do);
}

}  // namespace

const char* last_error() noexcept { return message_of_last_call.c_str(); }
void clear_last_error() noexcept { message_of_last_call.clear(); }

attune_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return fail(ATTUNE_INVALID_ARGUMENT, error.what());
  } catch (const NotPrepared& error) {
    return fail(ATTUNE_NOT_PREPARED, error.what());
  } catch (const DeviceUnavailable& error) {
    return fail(ATTUNE_NO_DEVICE, error.what());
  } catch (const CudaError& error) {
    return fail(ATTUNE_CUDA_ERROR, error.what());
  } catch (const CompileError& error) {
    return fail(ATTUNE_COMPILE_ERROR, error.what());
  } catch (const CacheError& error) {
    return fail(ATTUNE_CACHE_ERROR, error.what());
  } catch (const std::exception& error) {
    return fail(ATTUNE_ERROR, error.what());
  } catch (...) {
    return fail(ATTUNE_ERROR, "unknown exception");
  }
}

void require_not_null(const char* function, const char* name, const void* value) {
  if (value == nullptr) {
    throw InvalidArgument(fmt::format("{} got a null pointer", function),
                          fmt::format("{}=NULL", name), "pass a valid one");
  }
}

void require_struct_size(const char* name, std::size_t bytes, std::size_t least,
                         std::size_t known) {
  if (bytes >= least && bytes <= kLargestGrowth * known) return;
  refuse_size(name, bytes, known, "set struct_size to sizeof the struct");
}

void refuse_newer_fields(const char* name, std::size_t bytes, std::size_t known) {
  refuse_size(name, bytes, known, "it uses fields of a newer attune: use a newer library");
}

void require_zero(const char* name, std::int32_t value) {
  if (value == 0) return;
  throw InvalidArgument("a field has no meaning yet", fmt::format("{}={}", name, value),
                        "zero-initialize the struct, or use a newer library");
}

void copy_text(const std::string& from, char* text, std::size_t size, std::size_t* needed) {
  if (needed != nullptr) *needed = from.size() + 1;
  if (size == 0) return;
  const std::size_t length = std::min(from.size(), size - 1);
  std::memcpy(text, from.data(), length);
  text[length] = '\0';
}

}  // namespace attune
