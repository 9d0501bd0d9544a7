#include "tuner/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include "tuner/parallel.h"

namespace attune {
namespace {

constexpr std::uint16_t kPoisonBf16 = 0xffff;

// Compares the output of one case with the reference, sequence by sequence.
class Comparison {
 public:
  Comparison(const VerifyCase& expected, const AttentionParams& params,
             std::span<const std::byte> out, std::span<const std::byte> lse)
      : case_(expected),
        problem_(expected.inputs.problem),
        params_(params),
        out_(reinterpret_cast<const std::uint16_t*>(out.data())),
        lse_(reinterpret_cast<const float*>(lse.data())) {}

  std::variant<CaseErrors, Rejection> run() {
    parallel_for(case_.inputs.kv_len.size(), 0, [&](std::size_t b) { compare_sequence(b); });
    if (rejection_) return *rejection_;
    errors_.relative_l2 = relative(difference_, norm_);
    if (case_.name == kAccuracyCase && errors_.relative_l2 > kMaxRelativeL2) {
      return Rejection{
          RejectReason::kWrongResult,
          fmt::format("case='{}' kv_len={} relative_l2={:.2e} limit={:.2e}", case_.name,
                      case_.inputs.kv_len.front(), errors_.relative_l2, kMaxRelativeL2)};
    }
    return errors_;
  }

 private:
  static double relative(double difference, double norm) {
    if (difference == 0) return 0;
    return norm == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / norm);
  }

  // Keeps the rejection of the first sequence, whatever thread finds it.
  void reject(std::size_t b, RejectReason reason, const std::string& detail) {
    const std::lock_guard lock(mutex_);
    if (rejection_ && b >= rejected_sequence_) return;
    rejected_sequence_ = b;
    rejection_ = {reason, fmt::format("case='{}' sequence={} kv_len={} {}", case_.name, b,
                                      case_.inputs.kv_len[b], detail)};
  }

  // Padding behind a head, a token and a sequence must keep its poison.
  bool gaps_are_untouched(std::size_t b) const {
    const std::int64_t row = problem_.num_q_heads * params_.out_head_stride;
    const std::uint16_t* sequence = out_ + b * params_.out_batch_stride;
    const auto is_poison = [](const std::uint16_t* begin, const std::uint16_t* end) {
      return std::all_of(begin, end, [](std::uint16_t one) { return one == kPoisonBf16; });
    };
    for (int t = 0; t < problem_.seqlen_q; ++t) {
      const std::uint16_t* token = sequence + t * params_.out_token_stride;
      for (int h = 0; h < problem_.num_q_heads; ++h) {
        const std::uint16_t* head = token + h * params_.out_head_stride;
        if (!is_poison(head + problem_.head_dim, head + params_.out_head_stride)) return false;
      }
      if (!is_poison(token + row, token + params_.out_token_stride)) return false;
    }
    return is_poison(sequence + problem_.seqlen_q * params_.out_token_stride,
                     sequence + params_.out_batch_stride);
  }

  void compare_sequence(std::size_t b) {
    if (!gaps_are_untouched(b)) {
      return reject(b, RejectReason::kOutOfBounds, "wrote between the rows of the output");
    }
    double difference = 0;
    double norm = 0;
    double max_abs = 0;
    for (int t = 0; t < problem_.seqlen_q; ++t) {
      for (int h = 0; h < problem_.num_q_heads; ++h) {
        if (!compare_row(b, t, h, &difference, &norm, &max_abs)) return;
      }
    }
    const double error = relative(difference, norm);
    if (error > kMaxEdgeRelativeL2) {
      return reject(b, RejectReason::kWrongResult,
                    fmt::format("relative_l2={:.2e} limit={:.2e}", error, kMaxEdgeRelativeL2));
    }
    const std::lock_guard lock(mutex_);
    difference_ += difference;
    norm_ += norm;
    errors_.worst_sequence = std::max(errors_.worst_sequence, error);
    errors_.max_abs = std::max(errors_.max_abs, max_abs);
  }

  bool compare_row(std::size_t b, int t, int h, double* difference, double* norm, double* max_abs) {
    const std::size_t row =
        (b * problem_.seqlen_q + t) * problem_.num_q_heads + static_cast<std::size_t>(h);
    const std::uint16_t* got = out_ + b * params_.out_batch_stride + t * params_.out_token_stride +
                               h * params_.out_head_stride;
    const double* expected = &case_.expected.out[row * problem_.head_dim];
    double row_difference = 0;
    double row_norm = 0;
    for (int d = 0; d < problem_.head_dim; ++d) {
      const double value = bf16_to_float(got[d]);
      const double error = std::abs(value - expected[d]);
      if (!std::isfinite(value)) {
        reject(b, RejectReason::kWrongResult,
               fmt::format("token={} head={} column={}: {} expected={:.4g}", t, h, d, value,
                           expected[d]));
        return false;
      }
      row_difference += error * error;
      row_norm += expected[d] * expected[d];
      *max_abs = std::max(*max_abs, error);
    }
    // Where nothing is seen the norm is 0, and anything but exact zeros is infinitely wrong.
    const double error = relative(row_difference, row_norm);
    if (error > kMaxRowRelativeL2) {
      reject(b, RejectReason::kWrongResult,
             fmt::format("token={} head={} relative_l2={:.2e} limit={:.2e} first={:.4g} "
                         "expected={:.4g}",
                         t, h, error, kMaxRowRelativeL2, bf16_to_float(got[0]), expected[0]));
      return false;
    }
    *difference += row_difference;
    *norm += row_norm;
    return compare_lse(b, t, h, row);
  }

  bool compare_lse(std::size_t b, int t, int h, std::size_t row) {
    const double got = lse_[row];
    const double expected = case_.expected.lse[row];
    const double limit = (problem_.softcap ? kMaxLseErrorSoftcap : kMaxLseError) *
                         std::max(1.0, std::isinf(expected) ? 1.0 : std::abs(expected));
    const bool equal = got == expected || std::abs(got - expected) <= limit;
    if (!equal) {
      reject(b, RejectReason::kWrongResult,
             fmt::format("token={} head={} lse={} expected={:.6g} limit={:.1e}", t, h, got,
                         expected, limit));
    }
    return equal;
  }

  const VerifyCase& case_;
  const Problem& problem_;
  const AttentionParams& params_;
  const std::uint16_t* out_;
  const float* lse_;
  std::mutex mutex_;  // of everything below
  std::optional<Rejection> rejection_;
  std::size_t rejected_sequence_ = 0;
  CaseErrors errors_;
  double difference_ = 0;
  double norm_ = 0;
};

}  // namespace

std::variant<CaseErrors, Rejection> compare(const VerifyCase& expected,
                                            const AttentionParams& params,
                                            std::span<const std::byte> out,
                                            std::span<const std::byte> lse) {
  return Comparison(expected, params, out, lse).run();
}

}  // namespace attune
