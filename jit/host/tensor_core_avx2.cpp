// Integers throughout: an addend is its significand, shifted right by its distance from the largest
// exponent. That holds for every finite input, so only infinities and NaN are left to the scalar
// version.
#include "jit/host/tensor_core_avx2.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <bit>

// Sanitizers would cost six times the time; every index is a constant or a lane.
#define ATTUNE_AVX2 __attribute__((target("avx2"), no_sanitize("address", "undefined")))
#define ATTUNE_AVX2_INLINE ATTUNE_AVX2 __attribute__((always_inline)) inline
#endif

namespace attune::host {

#if defined(__x86_64__)

namespace {

constexpr int kColumns = 8;          // of a panel: the lanes of a vector
constexpr int kNoExponent = -10000;  // of a zero: below every exponent, so it shifts out and never
                                     // is the largest
constexpr int kProductFraction = 14;
constexpr int kFloatFraction = 23;

struct alignas(32) Factors {
  int significand[kMmaDepth][kColumns];
  int exponent[kMmaDepth][kColumns];
};

struct alignas(32) RowFactors {
  int significand[kMmaDepth];
  int exponent[kMmaDepth];
  bool special;
};

struct Decoded {
  __m256i significand, exponent, special;
};

// Eight bf16 numbers in 32-bit lanes; the significand is signed, with 7 fraction bits.
ATTUNE_AVX2_INLINE Decoded decode(__m256i bits) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i field = _mm256_and_si256(_mm256_srli_epi32(bits, 7), _mm256_set1_epi32(0xff));
  const __m256i implicit =
      _mm256_and_si256(_mm256_cmpgt_epi32(field, zero), _mm256_set1_epi32(0x80));
  const __m256i magnitude =
      _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7f)), implicit);
  const __m256i exponent = _mm256_sub_epi32(_mm256_max_epi32(field, one), _mm256_set1_epi32(127));
  const __m256i sign = _mm256_or_si256(_mm256_slli_epi32(bits, 16), one);
  return {_mm256_sign_epi32(magnitude, sign),
          _mm256_blendv_epi8(exponent, _mm256_set1_epi32(kNoExponent),
                             _mm256_cmpeq_epi32(magnitude, zero)),
          _mm256_cmpeq_epi32(field, _mm256_set1_epi32(0xff))};
}

// A row of A. Significands are shifted left by half of what the products need, and their upper
// halves cleared for madd.
ATTUNE_AVX2_INLINE void decode_row(const uint16* row, int shift, RowFactors& factors) {
  __m256i special = _mm256_setzero_si256();
  for (int k = 0; k < kMmaDepth; k += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + k));
    const Decoded x = decode(_mm256_cvtepu16_epi32(half));
    const __m256i shifted =
        _mm256_and_si256(_mm256_slli_epi32(x.significand, shift), _mm256_set1_epi32(0xffff));
    _mm256_store_si256(reinterpret_cast<__m256i*>(factors.significand + k), shifted);
    _mm256_store_si256(reinterpret_cast<__m256i*>(factors.exponent + k), x.exponent);
    special = _mm256_or_si256(special, x.special);
  }
  factors.special = !_mm256_testz_si256(special, special);
}

// Eight columns of B, 8 k of each from `first` on, as rows of eight 16-bit numbers.
ATTUNE_AVX2_INLINE void transpose_8x8(const uint16 (*b)[kMmaDepth], int first, __m128i (&rows)[8]) {
  __m128i x[8], y[8];
  for (int i = 0; i < 8; ++i) {
    x[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&b[i][first]));
  }
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm_unpacklo_epi16(x[i], x[i + 4]);
    y[i + 4] = _mm_unpackhi_epi16(x[i], x[i + 4]);
  }
  for (int i = 0; i < 4; i += 2) {
    for (int j = 0; j < 2; ++j) {
      x[i + j] = _mm_unpacklo_epi16(y[2 * i + j], y[2 * i + j + 2]);
      x[i + j + 4] = _mm_unpackhi_epi16(y[2 * i + j], y[2 * i + j + 2]);
    }
  }
  // x[0], x[1]: k 0 1 of columns 0 2 4 6 and 1 3 5 7; x[4], x[5]: k 2 3; x[2], x[3]: k 4 5; ...
  constexpr int kPair[4] = {0, 4, 2, 6};
  for (int i = 0; i < 4; ++i) {
    rows[2 * i] = _mm_unpacklo_epi16(x[kPair[i]], x[kPair[i] + 1]);
    rows[2 * i + 1] = _mm_unpackhi_epi16(x[kPair[i]], x[kPair[i] + 1]);
  }
}

// Returns the mask of the columns that have an infinity or NaN.
ATTUNE_AVX2_INLINE int decode_panel(const uint16 (*b)[kMmaDepth], int shift, Factors& factors) {
  __m256i special = _mm256_setzero_si256();
  for (int first = 0; first < kMmaDepth; first += 8) {
    __m128i rows[8];
    transpose_8x8(b, first, rows);
    for (int i = 0; i < 8; ++i) {
      const Decoded x = decode(_mm256_cvtepu16_epi32(rows[i]));
      _mm256_store_si256(reinterpret_cast<__m256i*>(factors.significand[first + i]),
                         _mm256_slli_epi32(x.significand, shift));
      _mm256_store_si256(reinterpret_cast<__m256i*>(factors.exponent[first + i]), x.exponent);
      special = _mm256_or_si256(special, x.special);
    }
  }
  return _mm256_movemask_ps(_mm256_castsi256_ps(special));
}

struct DecodedSums {
  __m256i magnitude, exponent, special;
};

ATTUNE_AVX2_INLINE DecodedSums decode_sums(__m256 c) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i bits = _mm256_castps_si256(c);
  const __m256i field =
      _mm256_and_si256(_mm256_srli_epi32(bits, kFloatFraction), _mm256_set1_epi32(0xff));
  const __m256i implicit =
      _mm256_and_si256(_mm256_cmpgt_epi32(field, zero), _mm256_set1_epi32(1 << kFloatFraction));
  const __m256i magnitude =
      _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffff)), implicit);
  const __m256i exponent =
      _mm256_sub_epi32(_mm256_max_epi32(field, _mm256_set1_epi32(1)), _mm256_set1_epi32(127));
  return {magnitude,
          _mm256_blendv_epi8(exponent, _mm256_set1_epi32(kNoExponent),
                             _mm256_cmpeq_epi32(magnitude, zero)),
          _mm256_cmpeq_epi32(field, _mm256_set1_epi32(0xff))};
}

// Four lanes of (sum + c) * 2^exponent, exact.
ATTUNE_AVX2_INLINE __m256d exact_sum(__m128i sum, __m128i c, __m128i exponent) {
  const __m128i field = _mm_add_epi32(exponent, _mm_set1_epi32(1023));
  const __m256d scale = _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_cvtepi32_epi64(field), 52));
  return _mm256_mul_pd(_mm256_add_pd(_mm256_cvtepi32_pd(sum), _mm256_cvtepi32_pd(c)), scale);
}

// The exact `value` truncated to fp32, if that is a normal number or zero.
ATTUNE_AVX2_INLINE __m128 truncate_normal(__m256d value) {
  const __m256i kept = _mm256_set1_epi64x(~((1ll << (52 - kFloatFraction)) - 1));
  return _mm256_cvtpd_ps(_mm256_and_pd(value, _mm256_castsi256_pd(kept)));
}

// The same for every value.
ATTUNE_AVX2_INLINE __m128 truncate_any(__m256d value) {
  const __m256d magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), value);
  const __m256d small = _mm256_cmp_pd(magnitude, _mm256_set1_pd(0x1p-126), _CMP_LT_OQ);
  const __m256d units = _mm256_round_pd(_mm256_mul_pd(value, _mm256_set1_pd(0x1p149)),
                                        _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m256d subnormal = _mm256_mul_pd(units, _mm256_set1_pd(0x1p-149));
  return truncate_normal(_mm256_blendv_pd(value, subnormal, small));
}

// (sum + c) * 2^exponent of eight lanes, truncated.
ATTUNE_AVX2_INLINE __m256 truncate_sums(__m256i sum, __m256i c, __m256i exponent) {
  const __m256d low = exact_sum(_mm256_castsi256_si128(sum), _mm256_castsi256_si128(c),
                                _mm256_castsi256_si128(exponent));
  const __m256d high = exact_sum(_mm256_extracti128_si256(sum, 1), _mm256_extracti128_si256(c, 1),
                                 _mm256_extracti128_si256(exponent, 1));
  const __m256i may_be_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(-126), exponent);
  if (_mm256_testz_si256(may_be_subnormal, may_be_subnormal)) {
    return _mm256_set_m128(truncate_normal(high), truncate_normal(low));
  }
  return _mm256_set_m128(truncate_any(high), truncate_any(low));
}

struct BlockSum {
  __m256 d;
  int scalar;  // mask of the lanes that the scalar version has to do
};

// c + the products of kLength k from `first` on, for one row and a panel. Four chains of maxima and
// sums each, because the latency of a row is what limits.
template <int kLength>
ATTUNE_AVX2_INLINE BlockSum fused_sum(const RowFactors& a, const Factors& b, int first, __m256 c,
                                      const TensorCoreModel& model) {
  const DecodedSums start = decode_sums(c);
  __m256i exponents[kLength];
  __m256i most[4] = {start.exponent, start.exponent, start.exponent,
                     _mm256_set1_epi32(model.zero_exponent)};
#pragma GCC unroll 16
  for (int k = 0; k < kLength; ++k) {
    exponents[k] = _mm256_add_epi32(
        _mm256_set1_epi32(a.exponent[first + k]),
        _mm256_load_si256(reinterpret_cast<const __m256i*>(b.exponent[first + k])));
    most[k % 4] = _mm256_max_epi32(most[k % 4], exponents[k]);
  }
  const __m256i largest =
      _mm256_max_epi32(_mm256_max_epi32(most[0], most[1]), _mm256_max_epi32(most[2], most[3]));
  // 16 products are below 16 * 3.97 * 2^25 < 2^31; c is kept apart because it is over with it.
  __m256i sums[4] = {};
#pragma GCC unroll 16
  for (int k = 0; k < kLength; ++k) {
    const __m256i product = _mm256_madd_epi16(
        _mm256_set1_epi32(a.significand[first + k]),
        _mm256_load_si256(reinterpret_cast<const __m256i*>(b.significand[first + k])));
    const __m256i aligned =
        _mm256_srlv_epi32(_mm256_abs_epi32(product), _mm256_sub_epi32(largest, exponents[k]));
    sums[k % 4] = _mm256_add_epi32(sums[k % 4], _mm256_sign_epi32(aligned, product));
  }
  const __m256i sum =
      _mm256_add_epi32(_mm256_add_epi32(sums[0], sums[1]), _mm256_add_epi32(sums[2], sums[3]));
  const __m256i c_aligned =
      _mm256_srlv_epi32(_mm256_slli_epi32(start.magnitude, model.fraction_bits - kFloatFraction),
                        _mm256_sub_epi32(largest, start.exponent));
  const __m256i c_sign = _mm256_or_si256(_mm256_castps_si256(c), _mm256_set1_epi32(1));
  const __m256 d = truncate_sums(sum, _mm256_sign_epi32(c_aligned, c_sign),
                                 _mm256_sub_epi32(largest, _mm256_set1_epi32(model.fraction_bits)));
  return {d, _mm256_movemask_ps(_mm256_castsi256_ps(start.special))};
}

// d of one row and a panel.
ATTUNE_AVX2_INLINE void multiply_row(const RowFactors& a, const Factors& b, int special_columns,
                                     const uint16* a_row, const uint16 (*b_columns)[kMmaDepth],
                                     float* d, const TensorCoreModel& model) {
  const __m256 c = _mm256_loadu_ps(d);
  BlockSum result;
  if (model.block_length == 16) {
    result = fused_sum<16>(a, b, 0, c, model);
  } else {
    const BlockSum half = fused_sum<8>(a, b, 0, c, model);
    result = fused_sum<8>(a, b, 8, half.d, model);
    result.scalar |= half.scalar;
  }
  uint32 scalar = static_cast<uint32>(a.special ? 0xff : result.scalar | special_columns);
  if (scalar == 0) {
    _mm256_storeu_ps(d, result.d);
    return;
  }
  alignas(32) float vector[kColumns];
  _mm256_store_ps(vector, result.d);
  for (int column = 0; column < kColumns; ++column) {
    d[column] = scalar >> column & 1 ? multiply_add(d[column], a_row, b_columns[column], model)
                                     : vector[column];
  }
}

}  // namespace

bool avx2_supported() { return __builtin_cpu_supports("avx2"); }

ATTUNE_AVX2 void multiply_tile_avx2(int rows, int n, const uint16 (*a)[kMmaDepth],
                                    const uint16 (*b)[kMmaDepth], float* d,
                                    const TensorCoreModel& model) {
  constexpr int kRows = 64;  // decoded at a time
  const int shift = model.fraction_bits - kProductFraction;
  RowFactors row_factors[kRows];
  for (int first = 0; first < rows; first += kRows) {
    const int count = std::min(kRows, rows - first);
    for (int row = 0; row < count; ++row) decode_row(a[first + row], shift / 2, row_factors[row]);
    for (int column = 0; column < n; column += kColumns) {
      Factors panel;
      const int special = decode_panel(b + column, shift - shift / 2, panel);
      for (int row = 0; row < count; ++row) {
        multiply_row(row_factors[row], panel, special, a[first + row], b + column,
                     d + (first + row) * n + column, model);
      }
    }
  }
}

#else

bool avx2_supported() { return false; }

void multiply_tile_avx2(int rows, int n, const uint16 (*a)[kMmaDepth], const uint16 (*b)[kMmaDepth],
                        float* d, const TensorCoreModel& model) {
  multiply_tile_scalar(rows, n, a, b, d, model);
}

#endif

}  // namespace attune::host
