#include "tests/conformance/run.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"

namespace attune::conformance {
namespace {

std::vector<std::byte> run_loaded(Device& device, const Module& module, const Group& group,
                                  const Case& one) {
  const Words inputs = inputs_of(group, one);
  const Words before(one.num_outputs, one.before);
  const Stream stream = device.create_stream();
  const DeviceMem in = device.allocate(inputs.size() * sizeof(std::uint32_t));
  const DeviceMem out = device.allocate(before.size() * sizeof(std::uint32_t));
  device.copy_to_device(in.ptr(), std::as_bytes(std::span(inputs)), stream.get());
  device.copy_to_device(out.ptr(), std::as_bytes(std::span(before)), stream.get());
  Params params;
  params.in = in.ptr();
  params.out = out.ptr();
  params.args = one.args;
  if (one.map_over != MapOver::kNothing) {
    TensorMapSpec spec = one.map;
    spec.address = one.map_over == MapOver::kInputs ? in.ptr() : out.ptr();
    params.map = device.tensor_map(spec);
  }
  const Kernel kernel =
      device.kernel(module, fmt::format("conformance_{}", one.kernel), one.launch.smem_bytes);
  device.launch(kernel, one.launch, &params, stream.get());
  std::vector<std::byte> outputs(out.bytes());
  device.copy_to_host(outputs, out.ptr(), stream.get());
  return outputs;
}

}  // namespace

std::vector<std::byte> run_case(Device& device, const Compile& compile, const Group& group,
                                const Case& one) {
  const Module module = device.load(compile(group_source(group, device.info().arch)));
  return run_loaded(device, module, group, one);
}

GroupRun run_group(Device& device, const Compile& compile, const Group& group) {
  const std::string& arch = device.info().arch;
  GroupRun run;
  const auto available = [&](const Case& one) { return is_available(one.needs, arch); };
  if (std::none_of(group.cases.begin(), group.cases.end(), available)) return run;
  const Module module = device.load(compile(group_source(group, arch)));
  for (const Case& one : group.cases) {
    if (!available(one)) continue;
    try {
      run.outputs[one.name] = run_loaded(device, module, group, one);
    } catch (const Error& error) {
      run.failures[one.name] = error.what();
    }
  }
  return run;
}

}  // namespace attune::conformance
