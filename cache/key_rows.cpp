#include "cache/key_rows.h"

#include <algorithm>

#include "common/error.h"

namespace attune {

std::int64_t put_gpu(SQLite::Database& db, const DeviceInfo& gpu) {
  const std::string identity = gpu.identity();
  if (const auto id = query_int64(db, "SELECT id FROM gpus WHERE identity = ?", identity)) {
    return *id;
  }
  execute(db,
          "INSERT INTO gpus (identity, name, arch, num_sms, memory_bytes) VALUES (?, ?, ?, ?, ?)",
          identity, gpu.name, gpu.arch, gpu.num_sms, static_cast<std::int64_t>(gpu.memory_bytes));
  return db.getLastInsertRowid();
}

std::int64_t put_problem(SQLite::Database& db, const Problem& problem) {
  const std::string text = problem.text();
  if (const auto id = query_int64(db, "SELECT id FROM problems WHERE text = ?", text)) return *id;
  if (Problem::parse(text) != problem) {
    throw InvalidArgument("cannot store the problem", text, "its text form leaves out a field");
  }
  execute(db, "INSERT INTO problems (text, shape, kv_min, kv_max) VALUES (?, ?, ?, ?)", text,
          shape_text(problem), problem.kv.min, problem.kv.max);
  return db.getLastInsertRowid();
}

std::int64_t put_candidate(SQLite::Database& db, const Candidate& candidate) {
  const std::string text = candidate.text();
  if (const auto id = query_int64(db, "SELECT id FROM candidates WHERE text = ?", text)) {
    return *id;
  }
  if (Candidate::parse(text) != candidate) {
    throw InvalidArgument("cannot store the candidate", text, "its text form leaves out a field");
  }
  execute(db, "INSERT INTO candidates (text) VALUES (?)", text);
  return db.getLastInsertRowid();
}

std::int64_t put_toolchain(SQLite::Database& db, const Toolchain& toolchain) {
  const auto found = query_int64(
      db,
      "SELECT id FROM toolchains WHERE template_digest = ? AND nvrtc_version = ? AND options = ?",
      toolchain.template_digest, toolchain.compiler_version, toolchain.options);
  if (found) return *found;
  execute(db, "INSERT INTO toolchains (template_digest, nvrtc_version, options) VALUES (?, ?, ?)",
          toolchain.template_digest, toolchain.compiler_version, toolchain.options);
  return db.getLastInsertRowid();
}

std::optional<Scope> find_scope(SQLite::Database& db, const std::string& gpu_identity,
                                const Toolchain& toolchain) {
  Query query(db,
              "SELECT gpus.id, toolchains.id FROM gpus, toolchains WHERE identity = ?"
              " AND template_digest = ? AND nvrtc_version = ? AND options = ?",
              gpu_identity, toolchain.template_digest, toolchain.compiler_version,
              toolchain.options);
  if (!query.next()) return std::nullopt;
  Scope scope{};
  scope.gpu_id = query.int64();
  scope.toolchain_id = query.int64();
  return scope;
}

Scope put_scope(SQLite::Database& db, const DeviceInfo& gpu, const Toolchain& toolchain) {
  return {put_gpu(db, gpu), put_toolchain(db, toolchain)};
}

std::string shape_text(const Problem& problem) {
  Problem shape = problem;
  shape.kv = {1, 1};
  return shape.text();
}

std::optional<Problem> read_problem(const std::string& text) {
  try {
    return Problem::parse(text);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

std::optional<Candidate> read_candidate(const std::string& text) {
  try {
    const Candidate candidate = Candidate::parse(text);
    const KernelConfig& config = candidate.config;
    // Arithmetic on a config divides by these.
    const bool sane =
        std::min({config.block_m, config.block_n, config.num_stages, config.num_warps}) >= 1;
    return sane ? std::optional(candidate) : std::nullopt;
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

}  // namespace attune
