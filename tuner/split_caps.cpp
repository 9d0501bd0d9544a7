// split_caps: how many CTAs share a row's keys.
#include <algorithm>

#include "tuner/space.h"
#include "tuner/space_parts.h"

namespace attune {
namespace {

// CTAs of a launch of a persistent family: what fills the device, and one for each row block, which the
// device hands out as others end.
std::vector<int> persistent_ctas(const Problem& problem, const KernelConfig& config,
                                 const DeviceInfo& device) {
  const std::int64_t row_blocks = ceil_div(problem.num_rows(), config.block_m);
  // CTAs go on to the blocks that are left, so fewer of them do as well.
  const auto blocks = static_cast<int>(
      std::min<std::int64_t>(row_blocks * problem.num_kv_heads * problem.batch, kMaxTextNumber));
  if (blocks <= device.num_sms) return {blocks};
  return {device.num_sms, blocks};
}

}  // namespace

std::vector<int> split_caps(const Problem& problem, const Family& family,
                            const KernelConfig& config, const DeviceInfo& device) {
  if (family.is_persistent) return persistent_ctas(problem, config, device);
  if (!family.splits_keys) return {1};
  if (problem.invariant) return {invariant_split_cap(problem)};
  const int row_blocks = ceil_div(problem.num_rows(), config.block_m);
  const std::int64_t ctas_per_split = std::int64_t{1} * problem.num_kv_heads * row_blocks;
  const int of_sequence = std::max(1, ceil_div(max_visible_keys(problem), config.block_n));
  const std::int64_t limit = std::int64_t{1} * of_sequence * problem.batch;
  const auto fill = [&](int ctas) {
    const auto splits = static_cast<int>(std::min(ctas / ctas_per_split, limit));
    return splits > problem.batch ? splits : 1;
  };
  const auto clusters = [&](int cap) { return merges_in_cluster(family, row_blocks, cap); };
  const auto has_room = [&](int cap) {
    return cap * ctas_per_split * problem.batch <= kMaxClusterCtas;
  };
  // The first one fills the device once and is the default's. Fewer splits are longer ones with
  // less to combine; where the keys are few, much fewer may do.
  const int full = fill(device.num_sms);
  std::vector<int> wanted = {full, std::max(1, full / 2)};
  // Sequences of different lengths: a long one must not be left to one CTA.
  // Not so in a prefill, which has row blocks for all CTAs.
  const int shared = 2 * problem.batch;
  const bool differ = problem.batch > 1 && problem.window == 0 && problem.op != Op::kPrefill;
  if (differ && full < shared && shared <= limit) wanted.insert(wanted.begin(), shared);
  // Twice as many splits differ half as much from an even share.
  if (differ) wanted.push_back(fill(2 * device.num_sms));
  if (full == limit) wanted.push_back(std::max(1, full / 4));
  for (const int per_sm : {2, 3, 4}) {
    if (fits_per_sm(per_sm, problem, family, config, device)) {
      wanted.push_back(fill(per_sm * device.num_sms));
    }
  }
  // Clusters leave SMs to the next launch, whose first tiles come in meanwhile.
  for (const int cap : {16, 8, 4}) {
    if (cap > of_sequence || !clusters(cap)) continue;
    if (problem.batch == 1 || has_room(cap)) wanted.push_back(cap);
  }
  // One split less is no cluster, where these would not all find room.
  for (int& cap : wanted) {
    if (cap > 2 && clusters(cap) && !has_room(cap)) --cap;
    if (cap <= problem.batch && !clusters(cap)) cap = 1;
  }
  std::vector<int> caps;
  for (const int cap : wanted) {
    if (std::find(caps.begin(), caps.end(), cap) == caps.end()) caps.push_back(cap);
  }
  return caps;
}

}  // namespace attune
