#include <fmt/format.h>

#include "tests/conformance/case.h"
#include "tests/conformance/operands.h"

namespace attune::conformance {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 64;

// How an operand lies in shared memory: as its descriptor says, for wgmma and for us.
struct Layout {
  std::string name;
  bool transposed = false;  // contiguous along its rows (M or N) instead of k
  int swizzle_bytes = 0;    // 0, 32, 64, 128
  int leading_bytes = 0;
  int stride_bytes = 0;
  int step_bytes = 0;  // from one k step to the next
  int bytes = 0;       // of all steps
};

int swizzle_field(int swizzle_bytes) {
  return swizzle_bytes == 0 ? 0 : swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : 3;
}

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// K-major: groups of 8 rows, in each of them 16-byte columns (no swizzle) or rows of a swizzle's
// width.
Layout k_major(int rows, int steps, int swizzle_bytes) {
  Layout layout{"k", false, swizzle_bytes};
  if (swizzle_bytes == 0) {
    layout.leading_bytes = 128;         // 8 k on
    layout.stride_bytes = 256 * steps;  // 8 rows on
    layout.step_bytes = 256;
    layout.bytes = rows / 8 * layout.stride_bytes;
  } else {
    layout.leading_bytes = 16;  // not read
    layout.stride_bytes = 8 * swizzle_bytes;
    layout.step_bytes = 32;  // inside one panel: steps * 32 <= swizzle_bytes
    layout.bytes = rows * swizzle_bytes;
  }
  return layout;
}

// MN-major: k rows of `swizzle_bytes`, 8 of them an atom (16-byte rows without swizzle).
Layout mn_major(int rows, int steps, int swizzle_bytes) {
  const int width = swizzle_bytes == 0 ? 16 : swizzle_bytes;
  const int atom = 8 * width;
  const int atoms = (2 * rows + width - 1) / width;  // along M or N
  Layout layout{"mn", true, swizzle_bytes};
  if (swizzle_bytes == 0) {
    layout.leading_bytes = atom;             // 8 k on
    layout.stride_bytes = 2 * steps * atom;  // 8 rows on
    layout.step_bytes = 2 * atom;
  } else {
    layout.stride_bytes = atom;               // 8 k on
    layout.leading_bytes = 2 * steps * atom;  // the next panel of M or N
    layout.step_bytes = 2 * atom;
  }
  layout.bytes = atoms * 2 * steps * atom;
  return layout;
}

// What a lane's accumulators and registers hold is random; the image is small whole numbers, so
// that every sum is exact and the case is about addresses alone.
struct Shape {
  int n = 8;
  bool registers = false;
  bool clear = false;
  int steps = 1;
  int num_ctas = 1;
};

std::string kernel_of(const Shape& shape, const Layout& a, const Layout& b) {
  return fmt::format("wgmma_{}n_{}_{}{}{}", shape.n, shape.registers ? "rs" : "ss",
                     shape.registers || !a.transposed ? "k" : "m", b.transposed ? "n" : "k",
                     shape.clear ? "_clear" : "");
}

Case base_case(const Shape& shape, const Layout& a, const Layout& b) {
  Case one;
  one.kernel = kernel_of(shape, a, b);
  one.needs = Needs::kSm90a;
  const int a_bytes = shape.registers ? 0 : round_up(a.bytes, 1024);
  const int image_bytes = a_bytes + round_up(b.bytes, 1024);
  one.launch.grid.x = static_cast<unsigned>(shape.num_ctas);
  one.launch.block.x = kThreads;
  one.launch.smem_bytes = image_bytes;
  one.args = {image_bytes / 4,
              0,
              a_bytes,
              a.leading_bytes,
              a.stride_bytes,
              b.leading_bytes,
              b.stride_bytes,
              swizzle_field(a.swizzle_bytes),
              swizzle_field(b.swizzle_bytes),
              shape.steps,
              a.step_bytes,
              b.step_bytes};
  one.num_outputs =
      static_cast<std::size_t>(shape.num_ctas) * kThreads * static_cast<std::size_t>(shape.n / 2);
  return one;
}

Case layout_case(const Shape& shape, const Layout& a, const Layout& b) {
  Case one = base_case(shape, a, b);
  one.name = fmt::format("layout/{}{}/a_{}{}/b_{}{}", one.kernel, shape.steps > 1 ? "_steps" : "",
                         a.name, a.swizzle_bytes, b.name, b.swizzle_bytes);
  const int image_words = one.args[0];
  one.inputs = [shape, image_words](Random& random) {
    // Few values, because outputs are kept: each has to take less than a byte.
    const auto pair = [&] {
      const std::uint32_t low = to_bf16(static_cast<float>(random.between(-2, 2)));
      return low | static_cast<std::uint32_t>(to_bf16(static_cast<float>(random.between(-2, 2))))
                       << 16;
    };
    Words words;
    for (int cta = 0; cta < shape.num_ctas; ++cta) {
      for (int i = 0; i < image_words; ++i) words.push_back(pair());
      for (int thread = 0; thread < kThreads; ++thread) {
        for (int i = 0; i < shape.n / 2; ++i) {
          words.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(random.between(-2, 2))));
        }
        for (int i = 0; shape.registers && i < 4 * shape.steps; ++i) words.push_back(pair());
      }
    }
    return words;
  };
  return one;
}

// Row `row` and column `k` of a K-major operand without swizzle and with one step, in 16-bit units.
std::size_t plain_index(int row, int k) {
  return static_cast<std::size_t>(row / 8 * 128 + k / 8 * 64 + row % 8 * 8 + k % 8);
}

void append_image(const std::vector<std::uint16_t>& values, int rows, Words* words) {
  const int bytes = round_up(rows * kDepth * 2, 1024);
  std::vector<std::uint16_t> image(static_cast<std::size_t>(bytes / 2));
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      image[plain_index(row, k)] = values[static_cast<std::size_t>(row * kDepth + k)];
    }
  }
  for (std::size_t i = 0; i < image.size(); i += 2) {
    words->push_back(image[i] | static_cast<std::uint32_t>(image[i + 1]) << 16);
  }
}

// The accumulators and, for RS, the registers of A of one thread.
void append_thread(const Operands& o, int thread, bool registers, Words* words) {
  const int row = thread / 32 * 16 + thread % 32 / 4;
  const int column = 2 * (thread % 4);
  for (int i = 0; i < o.n / 2; ++i) {
    const int at_row = row + 8 * (i / 2 % 2);
    const int at_column = column + i / 4 * 8 + i % 2;
    words->push_back(
        std::bit_cast<std::uint32_t>(o.c[static_cast<std::size_t>(at_row * o.n + at_column)]));
  }
  for (int part = 0; registers && part < 4; ++part) {
    const auto at =
        static_cast<std::size_t>((row + 8 * (part % 2)) * kDepth + column + 8 * (part / 2));
    words->push_back(o.a[at] | static_cast<std::uint32_t>(o.a[at + 1]) << 16);
  }
}

Case number_case(const Shape& shape, const Pattern& pattern) {
  const Layout a = k_major(kRows, 1, 0);
  const Layout b = k_major(shape.n, 1, 0);
  Case one = base_case(shape, a, b);
  one.name = fmt::format("numbers/{}/{}", one.kernel, pattern.name);
  one.inputs = [shape, fill = pattern.fill](Random& random) {
    Words words;
    for (int cta = 0; cta < shape.num_ctas; ++cta) {
      Operands operands(kRows, shape.n);
      fill(random, shape.registers ? 5 * cta + 3 : cta, operands);
      if (!shape.registers) append_image(operands.a, kRows, &words);
      append_image(operands.b, shape.n, &words);
      for (int thread = 0; thread < kThreads; ++thread) {
        append_thread(operands, thread, shape.registers, &words);
      }
    }
    return words;
  };
  return one;
}

// Widths of a panel that hold `rows` of an MN-major operand whole, or panels side by side.
bool fits(int rows, int swizzle_bytes) { return swizzle_bytes == 0 || 2 * rows >= swizzle_bytes; }

void add_layouts(int n, Group* group) {
  for (const int swizzle : {0, 32, 64, 128}) {
    const Layout a_k = k_major(kRows, 1, swizzle);
    const Layout a_m = mn_major(kRows, 1, swizzle);
    const Layout b_k = k_major(n, 1, swizzle);
    const Shape ss{.n = n};
    const Shape rs{.n = n, .registers = true};
    group->cases.push_back(layout_case(ss, a_k, b_k));
    group->cases.push_back(layout_case(ss, a_m, b_k));
    group->cases.push_back(layout_case(rs, a_k, b_k));
    // An MN-major panel wider than N is read in its first columns; the whole panel is there.
    const Layout b_n = mn_major(fits(n, swizzle) ? n : swizzle / 2, 1, swizzle);
    group->cases.push_back(layout_case(ss, a_k, b_n));
    group->cases.push_back(layout_case(ss, a_m, b_n));
    group->cases.push_back(layout_case(rs, a_k, b_n));
  }
}

}  // namespace

Group wgmma_group() {
  Group group{"wgmma", {}};
  for (const int n : {8, 16, 32, 64, 128, 256}) {
    // A tile of 64 x 256 is 16384 numbers; the widths differ in N alone.
    if (n <= 64) {
      add_layouts(n, &group);
      continue;
    }
    const Shape ss{.n = n};
    const Shape rs{.n = n, .registers = true};
    group.cases.push_back(layout_case(ss, k_major(kRows, 1, 128), k_major(n, 1, 128)));
    group.cases.push_back(layout_case(ss, mn_major(kRows, 1, 128), k_major(n, 1, 64)));
    group.cases.push_back(layout_case(ss, k_major(kRows, 1, 0), mn_major(n, 1, 128)));
    group.cases.push_back(layout_case(ss, mn_major(kRows, 1, 64), mn_major(n, 1, 32)));
    group.cases.push_back(layout_case(rs, k_major(kRows, 1, 0), k_major(n, 1, 0)));
    group.cases.push_back(layout_case(rs, k_major(kRows, 1, 0), mn_major(n, 1, 0)));
  }
  for (const int swizzle : {0, 128}) {  // four k steps of a panel
    const Shape ss{.n = 32, .steps = 4};
    const Shape rs{.n = 32, .registers = true, .steps = 4};
    group.cases.push_back(layout_case(ss, k_major(kRows, 4, swizzle), k_major(32, 4, swizzle)));
    group.cases.push_back(layout_case(ss, mn_major(kRows, 4, swizzle), mn_major(64, 4, swizzle)));
    group.cases.push_back(layout_case(rs, k_major(kRows, 4, swizzle), mn_major(64, 4, swizzle)));
  }
  for (const bool registers : {false, true}) {
    const Shape clear{.n = 32, .registers = registers, .clear = true};
    group.cases.push_back(layout_case(clear, k_major(kRows, 1, 0), k_major(32, 1, 0)));
  }
  for (const Pattern& pattern : patterns()) {
    // 512 outputs each, four times a tile of mma.
    const int num_ctas = pattern.num_tiles / 16;
    group.cases.push_back(number_case({.n = 8, .num_ctas = num_ctas}, pattern));
    group.cases.push_back(
        number_case({.n = 8, .registers = true, .num_ctas = (num_ctas + 1) / 2}, pattern));
  }
  // A wide instruction sums as a narrow one does.
  for (const std::size_t which : {std::size_t{2}, std::size_t{14}}) {
    group.cases.push_back(number_case({.n = 64}, patterns()[which]));
    group.cases.push_back(number_case({.n = 64, .registers = true}, patterns()[which]));
  }
  return group;
}

}  // namespace attune::conformance
