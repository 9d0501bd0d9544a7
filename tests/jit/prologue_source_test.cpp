#include <span>
#include <string_view>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/source.h"

namespace attune {
namespace {

TEST(PrologueSource, SpellsHeadDimAndLayoutInItsSymbol) {
  const Source source = prologue_source(512, KvLayout::kUnifiedPaged);
  EXPECT_EQ(source.symbols, std::vector<std::string>{"prologue_d512_unified_paged"});
  EXPECT_NE(source.text.find("attune::prologue<512, attune::KvLayout::kUnifiedPaged, true>(p);"),
            std::string::npos);
  EXPECT_EQ(source.headers.front().name, "templates/prologue.cuh");
  const Source raw = prologue_source(256, KvLayout::kContiguous, false);
  EXPECT_EQ(raw.symbols, std::vector<std::string>{"prologue_raw_d256_contiguous"});
  EXPECT_NE(raw.text.find("attune::prologue<256, attune::KvLayout::kContiguous, false>(p);"),
            std::string::npos);
}

TEST(PrologueSource, RefusesWhatTheTemplateRefuses) {
  EXPECT_THROW(prologue_source(256, KvLayout::kUnified), InvalidArgument);
  EXPECT_THROW(prologue_source(96, KvLayout::kRing), InvalidArgument);
  EXPECT_THROW(prologue_source(512, KvLayout::kUnified, false), InvalidArgument);
}

TEST(PrologueDigest, IsOfItsTemplatesAndOnTheHostOfItsLanguageToo) {
  constexpr std::string_view kFiles[] = {"templates/prologue.cuh", "templates/state.cuh"};
  EXPECT_EQ(prologue_digest("sm_90a"), template_digest_of(kFiles));
  EXPECT_NE(prologue_digest("sm_90a"), template_digest_of(std::span(kFiles).first(1)));
  EXPECT_NE(prologue_digest("sm_90a"), prologue_digest("host"));
}

TEST(StateSource, HasOneKernel) {
  EXPECT_EQ(state_source().symbols, std::vector<std::string>{"write_state"});
}

}  // namespace
}  // namespace attune
