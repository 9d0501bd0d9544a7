// Problems of one kernel family on the host device, against the reference in double.
#pragma once

#include <initializer_list>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tuner/verify.h"

namespace attune {

struct FamilyProblem {
  const char* name;
  const char* problem;
  const char* config;
};

// For ctest's list of tests.
inline void PrintTo(const FamilyProblem& one, std::ostream* out) {
  *out << one.problem << ' ' << one.config;
}

// The name of a test's parameter.
inline std::string name_of_problem(const ::testing::TestParamInfo<FamilyProblem>& instance) {
  return instance.param.name;
}

class FamilyOnHost : public ::testing::TestWithParam<FamilyProblem> {
 protected:
  explicit FamilyOnHost(std::string family) : family_(std::move(family)) {}

  void SetUp() override {
    const auto refusal = known_family(family_).supports(problem_, config_);
    ASSERT_FALSE(refusal) << refusal->detail;
  }

  Candidate candidate(int split_cap) const { return {family_, config_, split_cap}; }

  // "right", or what is wrong with the first of the split caps that is. Copies are made at once when
  // they are asked for, and again as late as they may be.
  std::string outcome_on(const HostTarget& target, const std::vector<VerifyCase>& cases,
                         std::initializer_list<int> split_caps, bool shares_slots = false) const {
    Variant variant = candidate(1).variant(problem_);
    variant.shared_slots = shares_slots;
    const Binary binary = HostBench({.target = target}).compile(attention_source(variant));
    for (const bool early_copies : {false, true}) {
      const auto device = open_host_device({.target = target, .early_copies = early_copies});
      Verifier verifier(*device, cases);
      for (const int split_cap : split_caps) {
        const Candidate one = candidate(split_cap);
        const auto outcome = verifier.verify(
            load_attention(*device, binary, variant, plan_launch(problem_, one)), one);
        if (const auto* rejection = std::get_if<Rejection>(&outcome)) {
          return one.text() + (early_copies ? " early_copies: " : ": ") + rejection->detail;
        }
      }
    }
    return "right";
  }

  // Every entry of a batch has this length.
  VerifyCase case_of(int kv_len) const {
    return verify_case(problem_, 1, "kv_len " + std::to_string(kv_len),
                       std::vector<int>(problem_.batch, kv_len));
  }

  const std::string family_;
  const Problem problem_ = Problem::parse(GetParam().problem);
  const KernelConfig config_ = parse_config(GetParam().config);
};

}  // namespace attune
