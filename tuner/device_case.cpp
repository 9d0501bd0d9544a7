#include "tuner/device_case.h"

#include <algorithm>
#include <limits>

#include "tuner/compare.h"
#include "tuner/parallel.h"

namespace attune {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::uint16_t kPaddingBf16 = 0x7fff;  // NaN between the rows of K, V and q
// Padding in elements behind a head, a token and a sequence: multiples of 8, all different, so that
// strides which are swapped, taken from another tensor or assumed to be dense show.
struct Padding {
  int head, token, batch;
};
constexpr Padding kQPadding{8, 24, 72};
constexpr Padding kKPadding{16, 40, 88};
constexpr Padding kVPadding{32, 56, 104};
constexpr Padding kOutPadding{48, 64, 120};

// Pages that belong to nobody, in front of all others.
constexpr int kSparePages = 3;
// Where a sequence has no page: a kernel that follows it reads far outside.
constexpr int kNoPage = std::numeric_limits<int>::max() / 2;

template <typename T>
DeviceMem upload(Device& device, const std::vector<T>& data, StreamHandle stream) {
  DeviceMem mem = device.allocate(data.size() * sizeof(T));
  device.copy_to_device(mem.ptr(), std::as_bytes(std::span(data)), stream);
  return mem;
}

// A [batch, tokens, heads, columns] tensor with padding; of a paged one the batch are pages.
struct Shape {
  std::int64_t tokens, heads, columns;
  Padding padding;

  std::int64_t head_stride() const { return columns + padding.head; }
  std::int64_t token_stride() const { return heads * head_stride() + padding.token; }
  std::int64_t batch_stride() const { return tokens * token_stride() + padding.batch; }
  void strides(int64* batch, int64* token, int64* head) const {
    *batch = batch_stride();
    *token = token_stride();
    *head = head_stride();
  }
};

std::vector<std::uint16_t> with_padding(const std::vector<std::uint16_t>& dense, std::size_t batch,
                                        const Shape& shape) {
  std::vector<std::uint16_t> padded(batch * shape.batch_stride(), kPaddingBf16);
  parallel_for(batch, 0, [&](std::size_t b) {
    const std::uint16_t* from = &dense[b * shape.tokens * shape.heads * shape.columns];
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      std::uint16_t* to = &padded[b * shape.batch_stride() + t * shape.token_stride()];
      for (std::int64_t h = 0; h < shape.heads; ++h, from += shape.columns) {
        std::copy_n(from, shape.columns, to + h * shape.head_stride());
      }
    }
  });
  return padded;
}

// Where the sequences of a case lie in the KV buffers.
class Placement {
 public:
  explicit Placement(const AttentionInputs& in)
      : in_(in), page_size_(in.problem.page_size), batch_(static_cast<int>(in.kv_len.size())) {
    for (int b = 0; b < batch_; ++b) sequence.push_back(batch_ - b);
    if (!is_paged(in.problem.kv_layout)) return;
    pages_per_sequence_ = (in.capacity + page_size_ - 1) / page_size_;
    block_table.assign(std::size_t{1} * (batch_ + 1) * pages_per_sequence_, kNoPage);
    for (int b = 0; b < batch_; ++b) {
      const int used = (in.kv_len[b] + page_size_ - 1) / page_size_;
      for (int i = 0; i < used; ++i) {
        block_table[sequence[b] * pages_per_sequence_ + i] = page_of(b, i);
      }
    }
  }

  std::vector<int> sequence;     // [batch]
  std::vector<int> block_table;  // [batch + 1, pages per sequence]
  std::int64_t block_table_stride() const { return pages_per_sequence_; }

  // Entries of the outer dimension of a KV buffer, and tokens of each.
  std::size_t num_outer() const {
    if (page_size_ == 0) return static_cast<std::size_t>(batch_) + 1;
    return static_cast<std::size_t>(kSparePages + batch_ * pages_per_sequence_);
  }
  std::int64_t tokens() const { return page_size_ == 0 ? in_.capacity : page_size_; }
  // Elements from the buffer to a row.
  std::int64_t offset(const Shape& shape, int b, int row, int head) const {
    std::int64_t outer = sequence[b];
    std::int64_t token = row;
    if (page_size_ > 0) {
      outer = page_of(b, row / page_size_);
      token = row % page_size_;
    }
    return outer * shape.batch_stride() + token * shape.token_stride() + head * shape.head_stride();
  }

 private:
  // Later pages of a sequence lie before earlier ones, and between those of others.
  int page_of(int b, int i) const {
    return kSparePages + (pages_per_sequence_ - 1 - i) * batch_ + b;
  }

  const AttentionInputs& in_;
  int page_size_;
  int batch_;
  int pages_per_sequence_ = 0;
};

// The rows of K, of V or of both that a kernel reads.
std::vector<std::uint16_t> kv_buffer(const AttentionInputs& in, const Placement& placement,
                                     const Shape& shape, bool is_value) {
  const Problem& problem = in.problem;
  const int head_dim = problem.head_dim;
  std::vector<std::uint16_t> buffer(placement.num_outer() * shape.batch_stride(), kPaddingBf16);
  parallel_for(in.kv_len.size(), 0, [&](std::size_t b) {
    for (int row = 0; row < in.capacity; ++row) {
      for (int head = 0; head < problem.num_kv_heads; ++head) {
        const std::size_t dense =
            ((b * in.capacity + row) * problem.num_kv_heads + head) * head_dim;
        std::uint16_t* to = &buffer[placement.offset(shape, static_cast<int>(b), row, head)];
        if (!is_unified(problem.kv_layout)) {
          std::copy_n((is_value ? in.v : in.k).data() + dense, head_dim, to);
          continue;
        }
        std::copy_n(in.k.data() + dense, kUnifiedRotated, to);
        for (int column = 0; column < head_dim; ++column) {
          to[kUnifiedRotated + column] = in.v[dense + unified_value_dim(column)];
        }
      }
    }
  });
  return buffer;
}

}  // namespace

GuardedMem::GuardedMem(Device& device, std::size_t bytes)
    : mem_(device.allocate(bytes + 2 * kGuardBytes)), bytes_(bytes) {}

DevicePtr GuardedMem::ptr() const { return mem_.ptr() + kGuardBytes; }

void GuardedMem::poison(Device& device, StreamHandle stream) const {
  device.fill_bytes(mem_.ptr(), kPoison, mem_.bytes(), stream);
}

std::vector<std::byte> GuardedMem::read(Device& device, StreamHandle stream) const {
  std::vector<std::byte> bytes(bytes_);
  device.copy_to_host(bytes, ptr(), stream);
  return bytes;
}

std::optional<std::int64_t> GuardedMem::broken_guard(Device& device, StreamHandle stream) const {
  std::vector<std::byte> guard(kGuardBytes);
  const std::int64_t size = static_cast<std::int64_t>(bytes_);
  for (const std::int64_t at : {-static_cast<std::int64_t>(kGuardBytes), size}) {
    device.copy_to_host(guard, ptr() + static_cast<DevicePtr>(at), stream);
    const auto broken = std::find_if(guard.begin(), guard.end(),
                                     [](std::byte one) { return one != std::byte{kPoison}; });
    if (broken != guard.end()) return at + (broken - guard.begin());
  }
  return std::nullopt;
}

DeviceCase::DeviceCase(Device& device, const VerifyCase& one, StreamHandle stream) : host(&one) {
  const AttentionInputs& in = one.inputs;
  const Problem& problem = in.problem;
  const std::size_t batch = in.kv_len.size();
  const Placement placement(in);
  const int columns = kv_row_columns(problem.kv_layout, problem.head_dim);
  const Shape q_shape{problem.seqlen_q, problem.num_q_heads, problem.head_dim, kQPadding};
  const Shape k_shape{placement.tokens(), problem.num_kv_heads, columns, kKPadding};
  const Shape v_shape{placement.tokens(), problem.num_kv_heads, columns, kVPadding};
  const Shape out_shape{problem.seqlen_q, problem.num_q_heads, problem.head_dim, kOutPadding};
  q_shape.strides(&params.q_batch_stride, &params.q_token_stride, &params.q_head_stride);
  k_shape.strides(&params.k_batch_stride, &params.k_token_stride, &params.k_head_stride);
  v_shape.strides(&params.v_batch_stride, &params.v_token_stride, &params.v_head_stride);
  out_shape.strides(&params.out_batch_stride, &params.out_token_stride, &params.out_head_stride);

  const auto q_padded = with_padding(in.q, batch, q_shape);
  const auto k_buffer = kv_buffer(in, placement, k_shape, false);
  std::vector<std::uint16_t> v_buffer;
  if (!is_unified(problem.kv_layout)) v_buffer = kv_buffer(in, placement, v_shape, true);
  std::vector<int> tokens_before;
  for (const int length : in.kv_len) tokens_before.push_back(length - problem.seqlen_q);
  q = upload(device, q_padded, stream);
  k = upload(device, k_buffer, stream);
  if (!v_buffer.empty()) v = upload(device, v_buffer, stream);
  kv_len = upload(device, tokens_before, stream);
  sequence = upload(device, placement.sequence, stream);
  if (is_paged(problem.kv_layout)) block_table = upload(device, placement.block_table, stream);
  out = GuardedMem(device, batch * out_shape.batch_stride() * kBytesPerElement);
  lse = GuardedMem(device, one.expected.lse.size() * sizeof(float));
  device.synchronize(stream);

  params.q = reinterpret_cast<const void*>(q.ptr());
  params.k = reinterpret_cast<const void*>(k.ptr());
  params.v = reinterpret_cast<const void*>(v.ptr());
  params.out = reinterpret_cast<void*>(out.ptr());
  params.kv_len = reinterpret_cast<const int*>(kv_len.ptr());
  params.kv_len_add = problem.seqlen_q;
  params.sequence = reinterpret_cast<const int*>(sequence.ptr());
  params.block_table = reinterpret_cast<const int*>(block_table.ptr());
  params.block_table_stride = placement.block_table_stride();
  params.kv_capacity = in.capacity;
  params.overlap = 1;  // as the kernels are timed
  params.ring_capacity = problem.kv_layout == KvLayout::kRing ? in.capacity : 0;
  params.sm_scale = in.sm_scale;
  params.softcap = in.softcap;
}

}  // namespace attune
