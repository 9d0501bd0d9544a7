#include <fmt/format.h>

#include "tests/conformance/case.h"

namespace attune::conformance {
namespace {

Case cluster_case(std::string name, std::string kernel, unsigned size, unsigned num_clusters,
                  unsigned threads) {
  Case one;
  one.name = fmt::format("{}_of_{}", name, size);
  one.kernel = std::move(kernel);
  one.needs = Needs::kSm90;
  one.launch.grid.x = size * num_clusters;
  one.launch.block.x = threads;
  one.launch.smem_bytes = 1024;
  one.launch.cluster.x = size;
  one.args[0] = static_cast<int>(size);
  return one;
}

Case memory_case(unsigned size) {
  Case one = cluster_case("memory", "cluster_memory", size, 2, 64);
  const std::size_t num_ctas = one.launch.grid.x;
  one.num_outputs = num_ctas * 320;
  one.inputs = [num_ctas](Random& random) {
    Words words(num_ctas * 64);
    for (std::uint32_t& word : words) word = random.bits();
    return words;
  };
  return one;
}

Case arrive_case(unsigned size, int count) {
  Case one = cluster_case(fmt::format("arrive_{}", count), "cluster_arrive", size, 2, 32);
  one.args[1] = count;
  one.num_outputs = one.launch.grid.x * std::size_t{32};
  one.inputs = [](Random&) { return Words(1); };
  return one;
}

// `masks`: four bits for each CTA that loads, the first lowest.
Case multicast_case(unsigned size, int masks, std::uint32_t columns, TensorMapSwizzle swizzle) {
  constexpr int kRows = 6;
  Case one = cluster_case(fmt::format("multicast_{:x}_{}", masks, columns), "cluster_multicast",
                          size, 1, 64);
  const int box_bytes = static_cast<int>(columns) * kRows * 2;  // a multiple of 128
  one.map = {.rank = 2,
             .size = {100, 30},
             .stride_bytes = {208},
             .box = {columns, kRows},
             .swizzle = swizzle};
  one.map_over = MapOver::kInputs;
  const int bytes = static_cast<int>(size) * box_bytes + 128;
  one.launch.smem_bytes = 1024 + bytes;
  one.args = {static_cast<int>(size), box_bytes, bytes / 4, masks, 0, 0, 40, 3, -8, 26, 72, -2};
  one.num_outputs = size * static_cast<std::size_t>(bytes / 4);
  one.inputs = [](Random&) {
    Words words;
    for (std::uint32_t i = 0; i < 30 * 208 / 4; ++i) words.push_back(2 * i | (2 * i + 1) << 16);
    return words;
  };
  return one;
}

}  // namespace

Group cluster_group() {
  return {"cluster",
          {memory_case(2), memory_case(4), arrive_case(2, 1), arrive_case(2, 3), arrive_case(4, 1),
           multicast_case(2, 0x33, 64, TensorMapSwizzle::k128),
           multicast_case(2, 0x12, 64, TensorMapSwizzle::kNone),
           multicast_case(2, 0x31, 32, TensorMapSwizzle::k64),
           multicast_case(4, 0xffff, 64, TensorMapSwizzle::k128),
           multicast_case(4, 0x8fa5, 32, TensorMapSwizzle::k64)}};
}

Group refused_multicasts() {
  Case one = multicast_case(2, 0x33, 64, TensorMapSwizzle::k128);
  one.args[6] = 6;
  return {"cluster", {one}};
}

}  // namespace attune::conformance
