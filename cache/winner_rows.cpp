#include "cache/winner_rows.h"

#include <fmt/format.h>

#include "cache/binary_rows.h"
#include "cache/cache_directory.h"
#include "cache/result_rows.h"
#include "common/error.h"

namespace attune {
namespace {

constexpr const char* kSelectWinner =
    "SELECT w.id, g.id, t.id, c.id, w.binary_id, g.identity, p.text, c.text,"
    " t.template_digest, t.nvrtc_version, t.options,"
    " a.reference, a.num_cases, a.relative_l2, a.worst_case_relative_l2, a.max_abs_error,"
    " a.created_at, w.worst_regret, w.runner_up, w.margin_runner_up, w.default_candidate,"
    " w.margin_default, w.margin_default_low, w.method, w.effort, w.candidates, w.driver_version,"
    " w.created_at"
    " FROM winners w JOIN gpus g ON g.id = w.gpu_id JOIN problems p ON p.id = w.problem_id"
    " JOIN candidates c ON c.id = w.candidate_id JOIN toolchains t ON t.id = w.toolchain_id"
    " JOIN admissions a ON a.id = w.admission_id";

struct StoredWinner {
  std::int64_t id = 0;
  Scope scope{};
  std::int64_t candidate_id = 0;
  std::int64_t binary_id = 0;
  std::string gpu_identity;
  Winner winner;
};

// Reads what kSelectWinner selects; empty when a text is none that this program knows.
std::optional<StoredWinner> read_columns(Query& query, const Warn& warn) {
  StoredWinner stored;
  stored.id = query.int64();
  stored.scope.gpu_id = query.int64();
  stored.scope.toolchain_id = query.int64();
  stored.candidate_id = query.int64();
  stored.binary_id = query.int64();
  stored.gpu_identity = query.text();
  const std::string problem_text = query.text();
  const std::string candidate_text = query.text();
  const auto problem = read_problem(problem_text);
  const auto candidate = read_candidate(candidate_text);
  if (!problem || !candidate) {
    warn(
        fmt::format("a stored winner is ignored: problem='{}' candidate='{}' cannot be read: "
                    "they are of a newer attune, or damaged",
                    problem_text, candidate_text));
    return std::nullopt;
  }
  Winner& winner = stored.winner;
  winner.problem = *problem;
  winner.candidate = *candidate;
  winner.toolchain.template_digest = query.digest();
  winner.toolchain.compiler_version = query.text();
  winner.toolchain.options = query.text();
  winner.admission.reference = query.text();
  winner.admission.num_cases = query.integer();
  winner.admission.relative_l2 = query.real();
  winner.admission.worst_case_relative_l2 = query.real();
  winner.admission.max_abs_error = query.real();
  winner.admission.created_at = query.text();
  winner.worst_regret = query.real();
  winner.runner_up = query.text();
  winner.margin_runner_up = query.real();
  winner.default_candidate = query.text();
  winner.margin_default = query.real();
  winner.margin_default_low = query.real();
  winner.method = query.integer();
  winner.effort = query.text();
  winner.candidates = query.text();
  winner.driver_version = query.text();
  winner.created_at = query.text();
  return stored;
}

// Adds what lives in other tables; false when the binary's row is gone.
bool read_parts(SQLite::Database& db, StoredWinner* stored) {
  auto binary = read_binary_row(db, stored->binary_id);
  if (!binary) return false;
  Winner& winner = stored->winner;
  winner.binary = std::move(binary->binary);
  winner.measurements = read_points(db, stored->scope, winner.problem, stored->candidate_id);
  return true;
}

std::int64_t put_admission_row(SQLite::Database& db, const Scope& scope, std::int64_t problem_id,
                               std::int64_t candidate_id, std::int64_t binary_id,
                               const Admission& admission, const std::string& now) {
  const auto id = query_int64(
      db,
      "INSERT INTO admissions (gpu_id, problem_id, candidate_id, toolchain_id, reference,"
      " binary_id, num_cases, relative_l2, worst_case_relative_l2, max_abs_error, created_at)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
      " ON CONFLICT (gpu_id, problem_id, candidate_id, toolchain_id, reference) DO UPDATE SET"
      " binary_id = excluded.binary_id, num_cases = excluded.num_cases,"
      " relative_l2 = excluded.relative_l2,"
      " worst_case_relative_l2 = excluded.worst_case_relative_l2,"
      " max_abs_error = excluded.max_abs_error, created_at = excluded.created_at RETURNING id",
      scope.gpu_id, problem_id, candidate_id, scope.toolchain_id, admission.reference, binary_id,
      admission.num_cases, admission.relative_l2, admission.worst_case_relative_l2,
      admission.max_abs_error, admission.created_at.empty() ? now : admission.created_at);
  return id.value();
}

}  // namespace

Freshness freshness_of(const Winner& winner, const WinnerQuery& query) {
  if (query.timing_method != 0 && winner.method != query.timing_method) {
    return Freshness::kOlderMethod;
  }
  if (!query.driver_version.empty() && winner.driver_version != query.driver_version) {
    return Freshness::kStaleDriver;
  }
  return Freshness::kFresh;
}

std::optional<ReadWinner> read_winner(SQLite::Database& db, std::int64_t id, const Warn& warn) {
  Query query(db, fmt::format("{} WHERE w.id = ?", kSelectWinner), id);
  if (!query.next()) return std::nullopt;
  auto stored = read_columns(query, warn);
  if (!stored || !read_parts(db, &*stored)) return std::nullopt;
  auto cubin = read_cubin(db, stored->binary_id, stored->winner.binary.content);
  if (!cubin) {
    warn(
        fmt::format("a stored binary is damaged: problem={} candidate={} key={}; it counts as a "
                    "miss, tune the problem again",
                    stored->winner.problem.text(), stored->winner.candidate.text(),
                    stored->winner.binary.key.text()));
    return std::nullopt;
  }
  stored->winner.binary.cubin = std::move(*cubin);
  return ReadWinner{std::move(stored->winner), stored->binary_id};
}

std::int64_t put_winner_rows(SQLite::Database& db, const DeviceInfo& gpu, const Winner& winner) {
  const std::string now = utc_now();
  const Scope scope = put_scope(db, gpu, winner.toolchain);
  const std::int64_t problem_id = put_problem(db, winner.problem);
  const std::int64_t candidate_id = put_candidate(db, winner.candidate);
  const std::int64_t binary_id =
      put_binary_row(db, winner.binary, winner.candidate.variant(winner.problem).text(), now,
                     OnDifferent::kReplace);
  const std::int64_t admission_id =
      put_admission_row(db, scope, problem_id, candidate_id, binary_id, winner.admission, now);
  for (const Measurement& point : winner.measurements) {
    put_measurement_row(db, scope, winner.problem, candidate_id, point);
  }
  execute(db,
          "INSERT INTO winners (gpu_id, problem_id, toolchain_id, candidate_id, binary_id,"
          " admission_id, worst_regret, runner_up, margin_runner_up, default_candidate,"
          " margin_default, margin_default_low, method, effort, candidates, driver_version,"
          " created_at)"
          " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
          " ON CONFLICT (gpu_id, problem_id, toolchain_id) DO UPDATE SET"
          " candidate_id = excluded.candidate_id, binary_id = excluded.binary_id,"
          " admission_id = excluded.admission_id, worst_regret = excluded.worst_regret,"
          " runner_up = excluded.runner_up, margin_runner_up = excluded.margin_runner_up,"
          " default_candidate = excluded.default_candidate,"
          " margin_default = excluded.margin_default,"
          " margin_default_low = excluded.margin_default_low, method = excluded.method,"
          " effort = excluded.effort, candidates = excluded.candidates,"
          " driver_version = excluded.driver_version, created_at = excluded.created_at",
          scope.gpu_id, problem_id, scope.toolchain_id, candidate_id, binary_id, admission_id,
          winner.worst_regret, winner.runner_up, winner.margin_runner_up, winner.default_candidate,
          winner.margin_default, winner.margin_default_low, winner.method, winner.effort,
          winner.candidates,
          winner.driver_version.empty() ? gpu.driver_version : winner.driver_version,
          winner.created_at.empty() ? now : winner.created_at);
  return binary_id;
}

std::vector<TunedRow> tuned_rows(SQLite::Database& db, const WinnerQuery& asked) {
  std::vector<TunedRow> tuned;
  const auto scope = find_scope(db, asked.gpu_identity, asked.toolchain);
  if (!scope) return tuned;
  Query query(db,
              "SELECT w.id, p.text FROM winners w JOIN problems p ON p.id = w.problem_id"
              " WHERE w.gpu_id = ? AND w.toolchain_id = ?",
              scope->gpu_id, scope->toolchain_id);
  while (query.next()) {
    const std::int64_t id = query.int64();
    if (const auto problem = read_problem(query.text())) tuned.push_back({id, *problem});
  }
  return tuned;
}

std::vector<std::string> find_gpus(SQLite::Database& db, const std::string& alias,
                                   const std::string& arch) {
  std::vector<std::string> identities;
  Query query(db,
              "SELECT identity FROM gpus WHERE ?1 IN (name, identity) AND arch = ?2"
              " ORDER BY identity",
              alias, arch);
  while (query.next()) identities.push_back(query.text());
  return identities;
}

std::vector<std::string> winner_compiler_versions(SQLite::Database& db,
                                                  const std::string& gpu_identity) {
  std::vector<std::string> versions;
  Query query(db,
              "SELECT DISTINCT t.nvrtc_version FROM winners w JOIN gpus g ON g.id = w.gpu_id"
              " JOIN toolchains t ON t.id = w.toolchain_id WHERE g.identity = ?",
              gpu_identity);
  while (query.next()) versions.push_back(query.text());
  return versions;
}

std::vector<std::pair<std::string, Winner>> list_winners(SQLite::Database& db,
                                                         const std::string& gpu_identity,
                                                         const Warn& warn) {
  std::vector<std::pair<std::string, Winner>> all;
  Query query(db,
              fmt::format("{} WHERE ?1 = '' OR g.identity = ?1"
                          " ORDER BY g.identity, p.shape, p.kv_min, p.kv_max, w.created_at, w.id",
                          kSelectWinner),
              gpu_identity);
  while (query.next()) {
    auto stored = read_columns(query, warn);
    if (!stored || !read_parts(db, &*stored)) continue;
    all.emplace_back(std::move(stored->gpu_identity), std::move(stored->winner));
  }
  return all;
}

}  // namespace attune
