// What the templates' static_asserts state of each family's configs, and which configs are searched: the
// functions of the catalogue in family.cpp.
#pragma once

#include <optional>

#include "templates/family.h"

namespace attune {

std::optional<Unsupported> splitkv_limits(const KernelConfig& config, int head_dim, KvLayout);
std::optional<Unsupported> tiled_limits(const KernelConfig& config, int head_dim, KvLayout);
std::optional<Unsupported> slices_limits(const KernelConfig& config, int head_dim, KvLayout);
std::optional<Unsupported> swapab_limits(const KernelConfig& config, int head_dim, KvLayout);
std::optional<Unsupported> oneround_limits(const KernelConfig& config, int head_dim,
                                           KvLayout layout);
std::optional<Unsupported> wgmma_limits(const KernelConfig& config, int head_dim, KvLayout layout);
std::optional<Unsupported> wgrows_limits(const KernelConfig& config, int head_dim, KvLayout layout);
bool tries_tile(const KernelConfig& config, int head_dim, KvLayout);
bool tries_slices(const KernelConfig& config, int head_dim, KvLayout);
bool tries_wgrows(const KernelConfig& config, int head_dim, KvLayout);
bool tries_stream(const KernelConfig& config, int head_dim, KvLayout);
bool tries_round(const KernelConfig& config, int head_dim, KvLayout);

}  // namespace attune
