#include "cli/check_report.h"

#include <gtest/gtest.h>

namespace attune {
namespace {

CheckOutcome made_up_checks() {
  CheckOutcome outcome;
  outcome.problem = Problem::parse("decode/b1/q1/kv1-16/h1x1/d64/contiguous/bf16");
  outcome.target = "host+checks";
  outcome.total_s = 4.2;
  CheckRow right;
  right.candidate = Candidate::parse("splitkv/m16n32s2w2/x1");
  right.admission.num_cases = 20;
  right.admission.relative_l2 = 1.9e-3;
  CheckRow wrong;
  wrong.candidate = Candidate::parse("splitkv/m16n64s2w2/x1");
  wrong.early_copies = true;
  wrong.failure = Rejection{RejectReason::kLaunch, "the kernel failed: a race\nthread 3 wrote\n"};
  outcome.rows = {right, wrong};
  return outcome;
}

TEST(CheckReport, TellsEachCandidateAndTheWholeFault) {
  EXPECT_EQ(check_text(made_up_checks()),
            "ok     splitkv/m16n32s2w2/x1 (late copies): 20 cases, relative L2 1.9e-03\n"
            "FAILED splitkv/m16n64s2w2/x1 (early copies)\n"
            "    launch: the kernel failed: a race\n"
            "    thread 3 wrote\n"
            "decode/b1/q1/kv1-16/h1x1/d64/contiguous/bf16 on host+checks: 2 checks, 1 failed, "
            "4.2 s\n");
}

TEST(CheckReport, JsonHasTheSame) {
  const Json json = check_json(made_up_checks());
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["checks"][0]["ok"], true);
  EXPECT_EQ(json["checks"][1]["copies"], "early");
  EXPECT_EQ(json["checks"][1]["failure"]["reason"], "launch");
}

}  // namespace
}  // namespace attune
