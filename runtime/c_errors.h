// What every function of the C ABI does around its work: exceptions become a status and the calling
// thread's message; structs are read and written by the size that the caller gives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/attune_c.h"

namespace attune {

// Of this thread; "" when its last call succeeded.
const char* last_error() noexcept;
void clear_last_error() noexcept;
// Keeps the message of the exception that is being handled, and gives its status.
attune_status status_of_current_exception() noexcept;

template <typename Body>
attune_status guarded(const Body& body) noexcept {
  clear_last_error();
  try {
    body();
    return ATTUNE_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

// Throws InvalidArgument that names both.
void require_not_null(const char* function, const char* name, const void* value);

// Throws InvalidArgument unless a caller may give a struct of `bytes`: at least `least`, what the
// first version had, and nothing absurd where `known` are known here.
void require_struct_size(const char* name, std::size_t bytes, std::size_t least, std::size_t known);
[[noreturn]] void refuse_newer_fields(const char* name, std::size_t bytes, std::size_t known);

// Throws InvalidArgument that names a field which is kept for later and is not 0.
void require_zero(const char* name, std::int32_t value);

// Reads a struct of the caller's size: an older caller's lacks the last fields, which stay zero; a
// newer one's has more than is known here, which must be zero.
template <typename T>
T read_struct(const char* name, const T& from, std::size_t least_bytes) {
  const std::size_t bytes = from.struct_size;
  require_struct_size(name, bytes, least_bytes, sizeof(T));
  const auto* unknown = reinterpret_cast<const unsigned char*>(&from) + sizeof(T);
  for (std::size_t i = 0; i + sizeof(T) < bytes; ++i) {
    if (unknown[i] != 0) refuse_newer_fields(name, bytes, sizeof(T));
  }
  T known{};
  std::memcpy(static_cast<void*>(&known), &from, std::min(bytes, sizeof(T)));
  return known;
}

// Writes `known` into a struct of the caller's size, which stays in struct_size: an older caller
// gets the fields that it knows, a newer one zeros in those that are not known here.
template <typename T>
void write_struct(const char* name, T known, std::size_t least_bytes, T* to) {
  const std::size_t bytes = to->struct_size;
  require_struct_size(name, bytes, least_bytes, sizeof(T));
  known.struct_size = bytes;
  std::memcpy(static_cast<void*>(to), &known, std::min(bytes, sizeof(T)));
  auto* const unknown = reinterpret_cast<unsigned char*>(to) + sizeof(T);
  for (std::size_t i = 0; i + sizeof(T) < bytes; ++i) unknown[i] = 0;
}

// What fits of `from` with a terminator; `needed` gets the whole length plus one.
void copy_text(const std::string& from, char* text, std::size_t size, std::size_t* needed);

}  // namespace attune
