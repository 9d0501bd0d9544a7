// The conformance suite: one primitive of the templates a case, the same on every device. The GPU's
// outputs are kept in tests/data/conformance/; inputs come from seeds.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/device.h"
#include "jit/source.h"
#include "jit/tensor_map.h"
#include "tests/conformance/random.h"

namespace attune::conformance {

using Words = std::vector<std::uint32_t>;

// The kernels' parameters, as in kernels/common.cuh.
struct Params {
  TensorMap map;
  DevicePtr in = 0;
  DevicePtr out = 0;
  std::array<int, 12> args{};
};
static_assert(sizeof(Params) == 192);

// Where a case's kernel can be compiled.
enum class Needs { kAnything, kSm90, kSm90a };

// How an output word may differ from the GPU's.
enum class Judge {
  kBits,  // not at all
  kNan,   // floats; the payload and sign of a NaN are free: x86 and the GPU make different ones
  kExp2,  // floats within the error that the PTX manual documents, of the exact value
  kLog2,
  kReciprocal,
};

// What the tensor map of a case describes.
enum class MapOver { kNothing, kInputs, kOutputs };

struct Case {
  std::string name;    // "cancellation"
  std::string kernel;  // "mma": the symbol is conformance_mma
  Needs needs = Needs::kAnything;
  KernelLaunch launch;
  std::array<int, 12> args{};
  std::uint64_t seed = 0;  // 0: from the names
  std::function<Words(Random&)> inputs;
  std::size_t num_outputs = 0;        // words
  std::uint32_t before = 0xcdcdcdcd;  // in outputs that the kernel does not write
  Judge judge = Judge::kBits;
  MapOver map_over = MapOver::kNothing;
  TensorMapSpec map;  // its address is that of the buffer
};

// The cases of one kernel file and one fixture file.
struct Group {
  std::string name;  // "mma"
  std::vector<Case> cases;
};

Group mma_group();
Group wgmma_group();
Group matrix_group();
Group scalar_group();
Group warp_group();
Group async_group();
Group tensor_group();
Group cluster_group();
std::vector<Group> all_groups();

// Copies that an H200 ends with CUDA_ERROR_ILLEGAL_INSTRUCTION, for innermost coordinates that are
// no multiple of 16 bytes and for stores at negative ones.
Group refused_boxes();
Group refused_multicasts();

// Words of one case, the same on every machine.
Words inputs_of(const Group& group, const Case& one);

// Whether kernels of these needs compile for `arch`. The host has everything.
bool is_available(Needs needs, const std::string& arch);

// The translation unit of a group for `arch`.
Source group_source(const Group& group, const std::string& arch);

// The embedded texts of kernels/, by their file names.
std::span<const EmbeddedFile> kernel_files();

}  // namespace attune::conformance
