// What functions of the C ABI do with handles and arrays.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/c_errors.h"

namespace attune {

// The object of a handle.
template <typename Handle>
Handle& at(const char* function, const char* name, Handle* handle) {
  require_not_null(function, name, handle);
  return *handle;
}

template <typename T>
std::span<const T> span_of(const char* function, const char* name, const T* data,
                           std::size_t count) {
  if (count > 0) require_not_null(function, name, data);
  return {data, count};
}

// Runs `make`, which gives a new handle, and stores it; NULL when it throws.
template <typename Handle, typename Make>
attune_status make_handle(const char* function, const char* name, Handle** to, const Make& make) {
  return guarded([&] {
    require_not_null(function, name, to);
    *to = nullptr;
    *to = make();
  });
}

// Stores what `body` gives of the object of a handle.
template <typename Handle, typename T, typename Body>
attune_status get(const char* function, const char* handle_name, const Handle* handle,
                  const char* name, T* to, const Body& body) {
  return guarded([&] {
    const Handle& object = at(function, handle_name, handle);
    require_not_null(function, name, to);
    *to = static_cast<T>(body(object));
  });
}

}  // namespace attune
