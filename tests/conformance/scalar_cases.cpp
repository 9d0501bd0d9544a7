#include "tests/conformance/case.h"

namespace attune::conformance {
namespace {

constexpr int kThreads = 128;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

Case scalar_case(std::string name, std::string kernel, int count, int outputs_each, Judge judge) {
  Case one;
  one.name = std::move(name);
  one.kernel = std::move(kernel);
  one.launch.grid.x = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  one.launch.block.x = kThreads;
  one.args[0] = count;
  one.num_outputs = static_cast<std::size_t>(count) * static_cast<std::size_t>(outputs_each);
  one.judge = judge;
  return one;
}

// Every upper half, with lower halves at and around the tie.
Case cvt_case() {
  constexpr int kCount = 1 << 16;
  Case one = scalar_case("cvt_bf16x2", "cvt", kCount, 1, Judge::kBits);
  one.inputs = [](Random& random) {
    constexpr std::uint32_t kLower[] = {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff};
    Words words;
    for (std::uint32_t upper = 0; upper < kCount; ++upper) {
      words.push_back(upper << 16 | 0x8000);
      words.push_back(upper << 16 |
                      (upper % 4 == 0 ? random.bits() >> 16 : kLower[random.between(0, 5)]));
    }
    return words;
  };
  return one;
}

// Special values, every exponent, and numbers from `low` to `high` (exponents of two).
Case approximate_case(std::string name, std::string kernel, Judge judge, int low, int high) {
  constexpr int kCount = 6144;
  Case one = scalar_case(std::move(name), std::move(kernel), kCount, 1, judge);
  one.inputs = [low, high](Random& random) {
    Words words = special_floats();
    for (int exponent = -149; exponent <= 127; ++exponent) {
      words.push_back(bits_of(make_float(false, exponent)));
      words.push_back(bits_of(random.wide(exponent, exponent)));
      words.push_back(bits_of(make_float(exponent % 2 == 0, exponent, 0x7fffff)));
    }
    for (int whole = -160; whole <= 140; ++whole)
      words.push_back(bits_of(static_cast<float>(whole)));
    while (words.size() < kCount) words.push_back(bits_of(random.wide(low, high)));
    return words;
  };
  return one;
}

// Pairs and triples: all of the special values with each other, then numbers near each other and
// far apart.
Words float_tuples(Random& random, std::size_t each, std::size_t count) {
  const std::vector<std::uint32_t>& special = special_floats();
  Words words;
  for (const std::uint32_t a : special) {
    for (const std::uint32_t b : special) {
      words.push_back(a);
      words.push_back(b);
      if (each == 3) {
        words.push_back(special[static_cast<std::size_t>(
            random.between(0, static_cast<int>(special.size()) - 1))]);
      }
    }
  }
  while (words.size() < each * count) {
    const int exponent = random.between(-100, 100);
    for (std::size_t i = 0; i < each; ++i) {
      words.push_back(bits_of(random.wide(exponent - 12, exponent + 12)));
    }
  }
  return words;
}

Case float_case() {
  constexpr int kCount = 2560;
  Case one = scalar_case("float_arithmetic", "float_arithmetic", kCount, 11, Judge::kNan);
  one.inputs = [](Random& random) { return float_tuples(random, 3, kCount); };
  return one;
}

Case integer_case() {
  constexpr int kCount = 1024;
  Case one = scalar_case("integer_arithmetic", "integer_arithmetic", kCount, 13, Judge::kBits);
  one.inputs = [](Random& random) {
    constexpr std::uint32_t kEdges[] = {0,          1,          2,          0x7ffffffe,
                                        0x7fffffff, 0x80000000, 0x80000001, 0xffffffff};
    Words words;
    for (const std::uint32_t a : kEdges) {
      for (const std::uint32_t b : kEdges) {
        words.push_back(a);
        words.push_back(b);
      }
    }
    while (words.size() < 2 * kCount) words.push_back(random.bits() >> random.between(0, 31));
    return words;
  };
  return one;
}

}  // namespace

Group scalar_group() {
  return {"scalar",
          {cvt_case(), approximate_case("ex2", "exp2_approximate", Judge::kExp2, -12, 7),
           approximate_case("lg2", "log2_approximate", Judge::kLog2, -60, 60),
           approximate_case("rcp", "reciprocal_approximate", Judge::kReciprocal, -60, 60),
           float_case(), integer_case()}};
}

}  // namespace attune::conformance
