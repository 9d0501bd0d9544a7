// A compile service with bugs in the sources of some variants, and the bugs.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/planted.h"
#include "tuner/compile_stage.h"

namespace attune {

using Bug = std::function<void(Planted*)>;

// Where every kernel of splitkv begins: the parameters are `p`.
inline Bug at_begin(const std::string& code) {
  return [code](Planted* kernel) {
    kernel->change("templates/split_work.cuh", "  work.kv_head = blockIdx.y;",
                   "  work.kv_head = blockIdx.y;\n" + code);
  };
}
// Only in launches of the timer, whose rows have no padding between them.
inline Bug when_timed(const std::string& code) {
  return at_begin("  if (p.k_token_stride == p.num_kv_heads * p.k_head_stride) {\n" + code +
                  "\n  }");
}

inline const char* wild_write_code() {
  return "  *reinterpret_cast<volatile int*>(static_cast<unsigned long>(256)) = 1;";
}
inline Bug wild_write() { return at_begin(wild_write_code()); }
inline Bug write_before_the_output() {
  return at_begin("  if (threadIdx.x == 0) static_cast<volatile uint16*>(p.out)[-8] = 1;");
}
inline Bug trap() { return at_begin("  __trap();"); }
inline Bug misaligned_access() {
  return at_begin("  atomicAdd(reinterpret_cast<int*>(static_cast<char*>(p.out) + 2), 0);");
}
inline const char* endless_loop() {
  return "  while (*static_cast<const volatile int*>(p.kv_len) != -12345) {\n  }";
}
inline Bug hang() { return at_begin(endless_loop()); }
inline Bug half_of_the_output() {
  return [](Planted* kernel) {
    kernel->change("templates/splitkv.cuh", "if (work.first_row + row >= work.num_rows) return;",
                   "if (work.first_row + row >= work.num_rows || warp_column > 0) return;");
  };
}
inline Bug wrong_by_a_percent() {
  return [](Planted* kernel) {
    kernel->change("templates/splitkv.cuh", "seen ? rcp(sum) : 0.0f",
                   "seen ? 1.01f * rcp(sum) : 0.0f");
  };
}
inline Bug nan_at_length_0() {
  return [](Planted* kernel) {
    kernel->change("templates/splitkv.cuh", "seen ? rcp(sum) : 0.0f", "rcp(sum)");
  };
}

inline Bug shared_memory_overrun() {
  return at_begin(
      "  __shared__ int word;\n  static_cast<volatile int*>(&word)[(1 << 22) + threadIdx.x] = 1;");
}

// Compiles by `real`. Keys are of the sources without bugs, as those of a template that is wrong by
// itself would be.
class PlantedCompiles : public CompileService {
 public:
  explicit PlantedCompiles(CompileService& real) : real_(real) {}

  std::map<Variant, Bug> bugs;

  std::string compiler_version() const override { return real_.compiler_version(); }
  Digest key(const Source& source, const std::string& arch) const override {
    return real_.key(source, arch);
  }
  std::size_t run(const NextJob& next, const std::function<void(CompileOutcome)>& done,
                  const std::function<bool()>& stop) override {
    std::map<std::size_t, Digest> keys;
    std::list<Planted> planted;  // the sources are views of them
    std::size_t num_known = 0;
    const auto next_to_do = [&]() -> std::optional<CompileJob> {
      while (auto job = next()) {
        const Digest clean_key = key(job->source, job->arch);
        keys[job->id] = clean_key;
        const Bug* bug = bug_of(job->source);
        if (const auto known = known_.find(clean_key); bug == nullptr && known != known_.end()) {
          ++num_known;
          done({job->id, known->second, "", ""});
          continue;
        }
        if (bug != nullptr) {
          planted.emplace_back(job->source);
          (*bug)(&planted.back());
          job->source = planted.back().source();
        }
        return job;
      }
      return std::nullopt;
    };
    const auto with_clean_key = [&](CompileOutcome outcome) {
      if (outcome.binary) {
        const bool is_clean = outcome.binary->key == keys.at(outcome.id);
        outcome.binary->key = keys.at(outcome.id);
        if (is_clean) known_[outcome.binary->key] = *outcome.binary;
      }
      done(std::move(outcome));
    };
    return num_known + real_.run(next_to_do, with_clean_key, stop);
  }

 private:
  const Bug* bug_of(const Source& source) const {
    for (const auto& [variant, bug] : bugs) {
      if (attention_symbols(variant).split == source.split_symbol) return &bug;
    }
    return nullptr;
  }

  CompileService& real_;
  std::map<Digest, Binary> known_;  // without bugs, so that a second run need not compile them
};

}  // namespace attune
