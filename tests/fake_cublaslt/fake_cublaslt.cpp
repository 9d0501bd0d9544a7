// A libcublasLt on the CPU for tests: the entry points that attune binds, for the one kind of product that
// it asks for. What breaks the library's rules is an invalid value.
#include "tests/fake_cublaslt/fake_cublaslt.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr int kNotStarted = 1, kInvalid = 7, kNotSupported = 15;  // CUBLAS_STATUS_...
constexpr std::uint64_t kHandle = 0x636c74;

attune::FakeCublasLtState state;

struct Layout {
  int type;
  std::uint64_t rows, columns;
  std::int64_t leading_dimension;
};
struct Desc {
  bool transposes_a;
};
struct Preference {
  std::uint64_t workspace_bytes;
  std::uint32_t reduction_mask = 7;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};
struct Algorithm {
  std::uint64_t data[8];
};
struct Choice {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

template <typename T>
int make(void** object, T value) {
  *object = new T(value);
  ++state.objects;
  ++state.made;
  return 0;
}
template <typename T>
int remove(void* object) {
  delete static_cast<T*>(object);
  --state.objects;
  return 0;
}

float widen(std::uint16_t bits) {
  const std::uint32_t word = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}
std::uint16_t narrow(float value) {
  std::uint32_t word;
  std::memcpy(&word, &value, sizeof(word));
  return static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

// y = W^T x for columns of bf16: the only product of this library.
bool is_served(const Desc& desc, const Layout& a, const Layout& b, const Layout& c,
               const Layout& d) {
  const auto is_dense = [](const Layout& one) {
    return one.type == 14 && one.leading_dimension == static_cast<std::int64_t>(one.rows);
  };
  return desc.transposes_a && is_dense(a) && is_dense(b) && is_dense(c) && is_dense(d) &&
         a.rows == b.rows && a.columns == d.rows && b.columns == d.columns && c.rows == d.rows &&
         c.columns == d.columns;
}
Algorithm algorithm_of(const Layout& a, const Layout& b) {
  return {{a.rows, a.columns, b.columns}};
}
// Whether an algorithm is of these matrices, and of as many columns or a few more.
bool is_of(const Algorithm& algorithm, const Layout& a, const Layout& b) {
  const std::uint64_t columns = algorithm.data[2];
  return algorithm.data[0] == a.rows && algorithm.data[1] == a.columns && b.columns <= columns &&
         columns < b.columns + 64;
}

template <typename T>
const T& as(const void* object) {
  return *static_cast<const T*>(object);
}

}  // namespace

extern "C" {

attune::FakeCublasLtState* fake_cublaslt_state() { return &state; }

std::size_t cublasLtGetVersion() { return 120304; }
const char* cublasLtGetStatusName(int status) {
  return status == kNotStarted ? "CUBLAS_STATUS_NOT_INITIALIZED" : "CUBLAS_STATUS_OTHER";
}
int cublasLtCreate(void** handle) {
  return state.refuses_to_start ? kNotStarted : make(handle, kHandle);
}
int cublasLtDestroy(void* handle) { return remove<std::uint64_t>(handle); }

int cublasLtMatmulDescCreate(void** desc, int compute_type, int scale_type) {
  return compute_type == 68 && scale_type == 0 ? make(desc, Desc{}) : kInvalid;
}
int cublasLtMatmulDescDestroy(void* desc) { return remove<Desc>(desc); }
int cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value,
                                   std::size_t bytes) {
  if (attribute != 3 || bytes != sizeof(std::int32_t)) return kInvalid;
  static_cast<Desc*>(desc)->transposes_a = as<std::int32_t>(value) == 1;
  return 0;
}

int cublasLtMatrixLayoutCreate(void** layout, int type, std::uint64_t rows, std::uint64_t columns,
                               std::int64_t leading_dimension) {
  return make(layout, Layout{type, rows, columns, leading_dimension});
}
int cublasLtMatrixLayoutDestroy(void* layout) { return remove<Layout>(layout); }
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value,
                                     std::size_t bytes) {
  if (attribute != 3 || bytes != sizeof(std::uint64_t)) return kInvalid;
  static_cast<Layout*>(layout)->columns = as<std::uint64_t>(value);
  return 0;
}

int cublasLtMatmulPreferenceCreate(void** preference) { return make(preference, Preference{}); }
int cublasLtMatmulPreferenceDestroy(void* preference) { return remove<Preference>(preference); }
int cublasLtMatmulPreferenceSetAttribute(void* object, int attribute, const void* value,
                                         std::size_t bytes) {
  auto& preference = *static_cast<Preference*>(object);
  if (attribute == 1 && bytes == sizeof(std::uint64_t)) {
    preference.workspace_bytes = as<std::uint64_t>(value);
    return 0;
  }
  if (bytes != sizeof(std::uint32_t)) return kInvalid;
  if (attribute == 3) {
    preference.reduction_mask = as<std::uint32_t>(value);
  } else if (attribute >= 5 && attribute <= 8) {
    preference.alignment[attribute - 5] = as<std::uint32_t>(value);
  } else {
    return kInvalid;
  }
  return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* desc, void* a, void* b, void* c, void* d,
                                   void* preference, int most, Choice* choices, int* count) {
  ++state.choices;
  *count = 0;
  if (as<std::uint64_t>(handle) != kHandle || most < 1) return kInvalid;
  const auto& wish = as<Preference>(preference);
  // Reductions in place, and in bf16, are not asked for; pointers are aligned to 16 bytes.
  if ((wish.reduction_mask & ~2u) != 0 || wish.workspace_bytes < 1) return kNotSupported;
  for (const std::uint32_t alignment : wish.alignment) {
    if (alignment > 16) return kNotSupported;
  }
  if (!is_served(as<Desc>(desc), as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d))) {
    return kNotSupported;
  }
  if (state.has_no_algorithm) return 0;
  if (state.has_no_algorithm_for_few && as<Layout>(a).columns <= 64) return kNotSupported;
  choices[0] = {algorithm_of(as<Layout>(a), as<Layout>(b)), 0, 0, 1.0f, {}};
  *count = 1;
  return 0;
}

int cublasLtMatmul(void* handle, void* desc, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                   void* d, void* d_layout, const Algorithm* algorithm, void* workspace,
                   std::size_t workspace_bytes, void*) {
  ++state.products;
  if (state.status_of_products != 0) return state.status_of_products;
  const auto& of_a = as<Layout>(a_layout);
  const auto& of_b = as<Layout>(b_layout);
  const auto& of_d = as<Layout>(d_layout);
  if (state.wants_exact_algorithms && algorithm->data[2] != of_b.columns) return kNotSupported;
  if (as<std::uint64_t>(handle) != kHandle || c != d || workspace == nullptr ||
      workspace_bytes < 1 || as<float>(alpha) != 1 || as<float>(beta) != 0 ||
      !is_served(as<Desc>(desc), of_a, of_b, as<Layout>(c_layout), of_d) ||
      !is_of(*algorithm, of_a, of_b)) {
    return kInvalid;
  }
  const auto* const weights = static_cast<const std::uint16_t*>(a);
  const auto* const input = static_cast<const std::uint16_t*>(b);
  for (std::uint64_t token = 0; token < of_d.columns; ++token) {
    for (std::uint64_t row = 0; row < of_d.rows; ++row) {
      const std::uint16_t* const w =
          weights + row * static_cast<std::uint64_t>(of_a.leading_dimension);
      const std::uint16_t* const x =
          input + token * static_cast<std::uint64_t>(of_b.leading_dimension);
      float sum = 0;
      for (std::uint64_t i = 0; i < of_a.rows; ++i) sum += widen(w[i]) * widen(x[i]);
      static_cast<std::uint16_t*>(
          d)[token * static_cast<std::uint64_t>(of_d.leading_dimension) + row] = narrow(sum);
    }
  }
  return 0;
}

}  // extern "C"
