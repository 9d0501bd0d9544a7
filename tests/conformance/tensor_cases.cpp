#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "jit/host/tensor_map.h"
#include "tests/conformance/case.h"

namespace attune::conformance {
namespace {

using Coordinates = std::vector<int>;

struct Tensor {
  std::string name;
  TensorMapSpec map;
};

std::size_t rank_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.map.rank); }

// Of the memory from the first to the last element, in words.
std::size_t tensor_words(const Tensor& tensor) {
  std::uint64_t bytes =
      tensor.map.size[0] * static_cast<std::uint64_t>(element_bytes(tensor.map.type));
  for (std::size_t i = 1; i < rank_of(tensor); ++i) {
    bytes += (tensor.map.size[i] - 1) * tensor.map.stride_bytes[i - 1];
  }
  return static_cast<std::size_t>((bytes + 15) / 16 * 4);
}

// Every half word its own number from `first` on.
Words numbered(std::size_t count, std::uint32_t first) {
  Words words;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t low = (first + 2 * static_cast<std::uint32_t>(i)) & 0xffff;
    words.push_back(low | ((low + 1) & 0xffff) << 16);
  }
  return words;
}

Case box_case(const Tensor& tensor, const Coordinates& at, int smem_offset, bool store) {
  constexpr int kGuardBytes = 128;
  constexpr int kBarrierBytes = 1024;  // in front of the box
  Case one;
  one.name =
      fmt::format("{}/{}{}/at_{}", store ? "store" : "load", tensor.name,
                  smem_offset == 0 ? "" : fmt::format("_smem{}", smem_offset), fmt::join(at, "_"));
  one.kernel = store ? "tensor_store" : "tensor_load";
  one.needs = Needs::kSm90;
  one.launch.block.x = 128;
  // A row narrower than the swizzle takes the whole span of it, but counts its own bytes.
  const int span = static_cast<int>(host::box_span_bytes(tensor.map));
  const int bytes = store ? span : static_cast<int>(host::box_bytes(tensor.map));
  one.launch.smem_bytes = kBarrierBytes + smem_offset + span + kGuardBytes;
  one.args = {tensor.map.rank, smem_offset, bytes, (smem_offset + span + kGuardBytes) / 4};
  std::copy(at.begin(), at.end(), one.args.begin() + 4);
  one.map = tensor.map;
  one.map_over = store ? MapOver::kOutputs : MapOver::kInputs;
  const std::size_t num_inputs = store ? static_cast<std::size_t>(span / 4) : tensor_words(tensor);
  one.num_outputs = store ? tensor_words(tensor) : static_cast<std::size_t>(one.args[3]);
  one.inputs = [num_inputs](Random&) { return numbered(num_inputs, 0x1001); };
  return one;
}

Tensor matrix(std::string name, TensorMapSwizzle swizzle, std::uint32_t columns,
              std::uint32_t rows) {
  return {std::move(name),
          {.rank = 2,
           .size = {96, 40},
           .stride_bytes = {208},
           .box = {columns, rows},
           .swizzle = swizzle}};
}

// Inside, over every edge, at a corner, beside it. The innermost coordinates of all cases are
// multiples of 16 bytes: hardware takes no others.
const std::vector<Coordinates> kMatrixPlaces = {{0, 0},
                                                {16, 5},
                                                {-8, 3},
                                                {8, -3},
                                                {80, 36},
                                                {-8, 38},
                                                {96, 0},
                                                {-200, 0},
                                                {0, 40},
                                                {24, 1},
                                                {88, 0},
                                                {1000000, -1000000},
                                                {1000000, 2000000}};

// Stores take no negative coordinates.
void add(const Tensor& tensor, const std::vector<Coordinates>& places, Group* group) {
  for (const Coordinates& at : places) {
    group->cases.push_back(box_case(tensor, at, 0, false));
    if (std::all_of(at.begin(), at.end(), [](int x) { return x >= 0; })) {
      group->cases.push_back(box_case(tensor, at, 0, true));
    }
  }
}

void add_matrices(Group* group) {
  add(matrix("none", TensorMapSwizzle::kNone, 64, 6), kMatrixPlaces, group);
  add(matrix("swizzle32", TensorMapSwizzle::k32, 16, 12), kMatrixPlaces, group);
  add(matrix("swizzle64", TensorMapSwizzle::k64, 32, 12), kMatrixPlaces, group);
  add(matrix("swizzle128", TensorMapSwizzle::k128, 64, 12), kMatrixPlaces, group);
  // The swizzle follows the address, not the row.
  for (const int offset : {128, 256, 640, 1152}) {
    for (const bool store : {false, true}) {
      group->cases.push_back(
          box_case(matrix("swizzle128", TensorMapSwizzle::k128, 64, 12), {8, 2}, offset, store));
      group->cases.push_back(
          box_case(matrix("swizzle64", TensorMapSwizzle::k64, 32, 12), {8, 2}, offset, store));
      group->cases.push_back(
          box_case(matrix("swizzle32", TensorMapSwizzle::k32, 16, 12), {8, 2}, offset, store));
    }
  }
}

// Rows narrower than the swizzle.
void add_narrow(Group* group) {
  const std::vector<Coordinates> few = {{0, 0}, {88, 30}};
  add(matrix("swizzle128_narrow64", TensorMapSwizzle::k128, 32, 16), few, group);
  add(matrix("swizzle128_narrow32", TensorMapSwizzle::k128, 16, 16), few, group);
  add(matrix("swizzle64_narrow16", TensorMapSwizzle::k64, 8, 16), few, group);
}

void add_types(Group* group) {
  Tensor bytes{"uint8",
               {.type = TensorMapType::kUint8, .rank = 2, .size = {50, 20}, .stride_bytes = {64}}};
  bytes.map.box = {32, 8};
  bytes.map.swizzle = TensorMapSwizzle::k32;
  add(bytes, {{0, 0}, {32, 3}, {-16, -2}, {48, 16}}, group);
  Tensor floats{
      "float32",
      {.type = TensorMapType::kFloat32, .rank = 2, .size = {40, 12}, .stride_bytes = {160}}};
  floats.map.box = {32, 8};
  floats.map.swizzle = TensorMapSwizzle::k128;
  add(floats, {{0, 0}, {20, 5}, {-4, 8}, {16, 8}}, group);
  Tensor ragged{"ragged", {.rank = 2, .size = {50, 5}, .stride_bytes = {112}, .box = {64, 8}}};
  add(ragged, {{0, 0}, {-8, -1}, {32, 2}, {48, 0}}, group);
  // NaN outside the tensor.
  Tensor nan = matrix("nan", TensorMapSwizzle::k128, 64, 6);
  nan.map.fill = TensorMapFill::kNan;
  Tensor nan_floats = floats;
  nan_floats.name = "nan_float32";
  nan_floats.map.fill = TensorMapFill::kNan;
  for (const Coordinates& at : {Coordinates{-8, -3}, {80, 36}, {96, 0}}) {
    group->cases.push_back(box_case(nan, at, 0, false));
  }
  group->cases.push_back(box_case(nan_floats, {28, 6}, 0, false));
}

void add_ranks(Group* group) {
  Tensor line{"rank1", {.rank = 1, .size = {100}, .box = {64}}};
  add(line, {{0}, {56}, {96}, {-16}, {104}, {-64}}, group);
  Tensor cube{"rank3",
              {.rank = 3, .size = {48, 6, 5}, .stride_bytes = {112, 112 * 7}, .box = {32, 4, 3}}};
  cube.map.swizzle = TensorMapSwizzle::k64;
  add(cube, {{0, 0, 0}, {24, 3, 2}, {-8, -1, -2}, {40, 5, 4}, {0, 6, 0}}, group);
  // A K/V cache: panels of 64 columns, tokens, panels, heads; the strides are not in order.
  Tensor cache{"rank4_cache",
               {.rank = 4,
                .size = {64, 20, 2, 3},
                .stride_bytes = {256, 128, 256 * 20},
                .box = {64, 8, 2, 1}}};
  cache.map.swizzle = TensorMapSwizzle::k128;
  add(cache, {{0, 0, 0, 0}, {0, 8, 0, 1}, {0, 16, 0, 2}, {0, -3, 0, 0}, {0, 0, 1, 2}, {0, 0, 0, 3}},
      group);
  Tensor five{"rank5",
              {.rank = 5,
               .size = {24, 4, 3, 3, 2},
               .stride_bytes = {48, 192, 576, 1728},
               .box = {16, 2, 2, 2, 2}}};
  five.map.swizzle = TensorMapSwizzle::k32;
  add(five, {{0, 0, 0, 0, 0}, {8, 2, 1, 1, 0}, {-8, -1, -1, -1, -1}, {16, 3, 2, 2, 1}}, group);
}

}  // namespace

Group tensor_group() {
  Group group{"tensor", {}};
  add_matrices(&group);
  add_types(&group);
  add_ranks(&group);
  add_narrow(&group);
  return group;
}

Group refused_boxes() {
  const Tensor bf16 = matrix("none", TensorMapSwizzle::kNone, 64, 6);
  const Tensor swizzled = matrix("swizzle128", TensorMapSwizzle::k128, 64, 6);
  Group group{"tensor", {}};
  for (const bool store : {false, true}) {
    group.cases.push_back(box_case(bf16, {3, 1}, 0, store));
    group.cases.push_back(box_case(swizzled, {90, 30}, 0, store));
  }
  group.cases.push_back(box_case(bf16, {-5, 38}, 0, false));
  group.cases.push_back(box_case(bf16, {-8, 3}, 0, true));
  group.cases.push_back(box_case(bf16, {16, -3}, 0, true));
  group.cases.push_back(box_case(swizzled, {1000000, -1000000}, 0, true));
  return group;
}

}  // namespace attune::conformance
