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
  EXPECT_NE(source.text.find("attune::prologue<512, attune::KvLayout::kUnifiedPaged>(p);"),
            std::string::npos);
  EXPECT_EQ(source.headers.front().name, "templates/prologue.cuh");
}

TEST(PrologueSource, RefusesWhatTheTemplateRefuses) {
  EXPECT_THROW(prologue_source(256, KvLayout::kUnified), InvalidArgument);
  EXPECT_THROW(prologue_source(96, KvLayout::kRing), InvalidArgument);
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
