#include "cache/binary_rows.h"

#include <utility>

#include <fmt/format.h>

#include "cache/cubin_codec.h"
#include "cache/eviction.h"
#include "common/error.h"

namespace attune {
namespace {

std::string join_lines(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  if (text.empty()) return lines;
  for (const std::string_view line : split(text, '\n')) lines.emplace_back(line);
  return lines;
}

// Whether the stored row is good as it is.
bool keeps(SQLite::Database& db, std::int64_t id, const Binary& binary, OnDifferent on_different) {
  const auto stored = read_binary_row(db, id);
  if (!stored || stored->failed) return false;
  if (stored->binary.content != binary.content && on_different == OnDifferent::kReplace) {
    return false;
  }
  return read_cubin(db, id, stored->binary.content).has_value();
}

void put_kernels(SQLite::Database& db, std::int64_t id,
                 const std::vector<KernelResources>& kernels) {
  execute(db, "DELETE FROM binary_kernels WHERE binary_id = ?", id);
  int kernel_idx = 0;
  for (const KernelResources& kernel : kernels) {
    execute(db,
            "INSERT INTO binary_kernels (binary_id, kernel_idx, symbol, registers, stack_bytes,"
            " spill_store_bytes, spill_load_bytes, static_smem_bytes)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            id, kernel_idx++, kernel.symbol, kernel.registers, kernel.stack_bytes,
            kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.static_smem_bytes);
  }
}

std::vector<KernelResources> read_kernels(SQLite::Database& db, std::int64_t id) {
  std::vector<KernelResources> kernels;
  Query query(db,
              "SELECT symbol, registers, stack_bytes, spill_store_bytes, spill_load_bytes,"
              " static_smem_bytes FROM binary_kernels WHERE binary_id = ? ORDER BY kernel_idx",
              id);
  while (query.next()) {
    KernelResources kernel;
    kernel.symbol = query.text();
    kernel.registers = query.integer();
    kernel.stack_bytes = query.integer();
    kernel.spill_store_bytes = query.integer();
    kernel.spill_load_bytes = query.integer();
    kernel.static_smem_bytes = query.integer();
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace

void require_sound(const Binary& binary) {
  const Digest content = digest_of(binary.cubin);
  if (!binary.cubin.empty() && content == binary.content) return;
  throw InvalidArgument("cannot store the binary",
                        fmt::format("key={} cubin_bytes={} content={} digest={}", binary.key.text(),
                                    binary.cubin.size(), binary.content.text(), content.text()),
                        "its cubin must be there and match its content digest");
}

std::int64_t put_binary_row(SQLite::Database& db, const Binary& binary, const std::string& variant,
                            const std::string& created_at, OnDifferent on_different) {
  require_sound(binary);
  const auto found = find_binary_row(db, binary.key);
  if (found && keeps(db, *found, binary, on_different)) return *found;

  const std::vector<std::byte> stored = compress(binary.cubin);
  execute(db,
          "INSERT INTO binaries (key, content, cubin, cubin_bytes, variant, arch, nvrtc_version,"
          " options, notes, log, compile_ms, failed, created_at, used_at)"
          " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)"
          " ON CONFLICT (key) DO UPDATE SET content = excluded.content, cubin = excluded.cubin,"
          " cubin_bytes = excluded.cubin_bytes, variant = excluded.variant, arch = excluded.arch,"
          " nvrtc_version = excluded.nvrtc_version, options = excluded.options,"
          " notes = excluded.notes, log = excluded.log, compile_ms = excluded.compile_ms,"
          " failed = 0, created_at = excluded.created_at, used_at = excluded.used_at",
          binary.key, binary.content, BlobRef{stored},
          static_cast<std::int64_t>(binary.cubin.size()), variant, binary.arch,
          binary.compiler_version, binary.options, join_lines(binary.notes), binary.log,
          binary.compile_ms, created_at, now_s());
  const std::int64_t id = found ? *found : db.getLastInsertRowid();
  put_kernels(db, id, binary.kernels);
  return id;
}

void put_failure_row(SQLite::Database& db, const BinaryRow& row, const std::string& log,
                     const std::string& created_at) {
  execute(db,
          "INSERT INTO binaries (key, cubin_bytes, variant, arch, nvrtc_version, options, notes,"
          " log, compile_ms, failed, created_at) VALUES (?, 0, ?, ?, ?, '', '', ?, 0, 1, ?)"
          " ON CONFLICT (key) DO UPDATE SET log = excluded.log, created_at = excluded.created_at"
          " WHERE failed = 1",
          row.key, row.variant, row.arch, row.compiler_version, log, created_at);
}

std::optional<StoredBinary> read_binary_row(SQLite::Database& db, std::int64_t id) {
  Query query(db,
              "SELECT key, content, variant, arch, nvrtc_version, options, notes, log, compile_ms,"
              " failed, created_at FROM binaries WHERE id = ?",
              id);
  if (!query.next()) return std::nullopt;
  StoredBinary stored;
  stored.binary.key = query.digest();
  stored.binary.content = query.digest();
  stored.variant = query.text();
  stored.binary.arch = query.text();
  stored.binary.compiler_version = query.text();
  stored.binary.options = query.text();
  stored.binary.notes = split_lines(query.text());
  stored.binary.log = query.text();
  stored.binary.compile_ms = query.real();
  stored.failed = query.boolean();
  stored.created_at = query.text();
  stored.binary.kernels = read_kernels(db, id);
  return stored;
}

std::optional<std::vector<std::byte>> read_cubin(SQLite::Database& db, std::int64_t id,
                                                 const Digest& content) {
  Query query(db, "SELECT cubin FROM binaries WHERE id = ? AND failed = 0", id);
  if (!query.next()) return std::nullopt;
  return decompress(query.blob(), content);
}

std::optional<std::int64_t> find_binary_row(SQLite::Database& db, const Digest& key) {
  return query_int64(db, "SELECT id FROM binaries WHERE key = ?", key);
}

std::vector<BinaryRow> list_binaries(SQLite::Database& db) {
  std::vector<BinaryRow> rows;
  Query query(db,
              "SELECT key, content, variant, arch, nvrtc_version, cubin_bytes,"
              " coalesce(length(cubin), 0), failed, compile_ms FROM binaries"
              " ORDER BY arch, variant, key");
  while (query.next()) {
    BinaryRow row;
    row.key = query.digest();
    row.content = query.digest();
    row.variant = query.text();
    row.arch = query.text();
    row.compiler_version = query.text();
    row.cubin_bytes = static_cast<std::size_t>(query.int64());
    row.stored_bytes = static_cast<std::size_t>(query.int64());
    row.failed = query.boolean();
    row.compile_ms = query.real();
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace attune
