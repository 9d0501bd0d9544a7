#include "cache/compile_claims.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <gtest/gtest.h>

#include "tests/cache/fixtures.h"
#include "tests/support/processes.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using Claim = CompileClaims::Claim;

class Claims : public ::testing::Test {
 protected:
  // Claims in a process that holds them until it is killed.
  pid_t hold_in_child(const Digest& key) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = testing::start_process([&] {
      CompileClaims claims(*store_);
      const auto held = claims.claim(key);
      [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
      for (;;) ::pause();
    });
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  static bool is_granted(const std::variant<Claim, CompileClaims::Owner>& result) {
    return std::holds_alternative<Claim>(result);
  }

  testing::TempDir dir_;
  std::unique_ptr<TuneStore> store_ = TuneStore::open(dir_ / "tune.db");
  const Digest key_ = digest_of("a");
};

TEST_F(Claims, OneKeyHasOneOwnerUntilItIsGivenBack) {
  CompileClaims first(*store_), second(*store_);
  {
    const auto held = first.claim(key_);
    EXPECT_TRUE(is_granted(held));
    EXPECT_FALSE(is_granted(second.claim(key_)));
    EXPECT_TRUE(is_granted(second.claim(digest_of("b"))));
  }
  EXPECT_TRUE(is_granted(second.claim(key_)));
}

TEST_F(Claims, KeysThatShareAPlaceForTheirOwnersNameAreClaimedApart) {
  const Digest a{1, 5}, b{2, 5 + (std::uint64_t{1} << 14)};
  CompileClaims first(*store_), second(*store_);
  auto of_a = std::make_unique<std::variant<Claim, CompileClaims::Owner>>(first.claim(a));
  const auto of_b = first.claim(b);
  EXPECT_TRUE(is_granted(*of_a));
  EXPECT_TRUE(is_granted(of_b));
  ASSERT_FALSE(is_granted(second.claim(b)));
  ASSERT_FALSE(is_granted(second.claim(a)));
  EXPECT_EQ(std::get<CompileClaims::Owner>(second.claim(a)).text, "another process");
  of_a.reset();
  EXPECT_TRUE(is_granted(second.claim(a)));
  EXPECT_FALSE(is_granted(second.claim(b)));  // the other lock stays
}

TEST_F(Claims, TheOwnerIsNamed) {
  const pid_t child = hold_in_child(key_);
  CompileClaims claims(*store_);
  const auto result = claims.claim(key_);
  ASSERT_FALSE(is_granted(result));
  const std::string text = std::get<CompileClaims::Owner>(result).text;
  EXPECT_TRUE(text.starts_with("process " + std::to_string(child) + " on ")) << text;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(Claims, AKilledOwnersClaimIsFreeAtOnce) {
  const pid_t child = hold_in_child(key_);
  CompileClaims claims(*store_);
  EXPECT_FALSE(is_granted(claims.claim(key_)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(is_granted(claims.claim(key_)));
}

TEST_F(Claims, AWaitEndsWithTheOwnerOrWithPatience) {
  const pid_t child = hold_in_child(key_);
  CompileClaims claims(*store_);
  std::string told;
  const auto start = std::chrono::steady_clock::now();
  const auto impatient = claims.wait(key_, std::chrono::milliseconds(1200),
                                     [&](const auto& owner) { told = owner.text; });
  EXPECT_TRUE(impatient.waited);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1200));
  EXPECT_TRUE(told.starts_with("process " + std::to_string(child))) << told;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(claims.wait(key_, kClaimPatience, {}).waited);
}

TEST_F(Claims, ADeletedClaimsFileIsMadeAnew) {
  CompileClaims first(*store_), second(*store_);
  const auto held = first.claim(key_);
  fs::remove(dir_ / "tune.db-claims");
  const auto again = second.claim(key_);  // twice the work, and no harm
  EXPECT_TRUE(is_granted(again));
  EXPECT_FALSE(is_granted(first.claim(key_)));
  EXPECT_TRUE(fs::exists(dir_ / "tune.db-claims"));
}

TEST_F(Claims, WhereThereIsNoFileEverythingIsGranted) {
  const auto memory = TuneStore::open_in_memory();
  CompileClaims first(*memory), second(*memory);
  const auto held = first.claim(key_);
  EXPECT_TRUE(is_granted(held));
  EXPECT_TRUE(is_granted(second.claim(key_)));
  fs::create_directory(dir_ / "tune.db-claims");  // cannot be opened
  CompileClaims third(*store_), fourth(*store_);
  const auto other = third.claim(key_);
  EXPECT_TRUE(is_granted(other));
  EXPECT_TRUE(is_granted(fourth.claim(key_)));
}

TEST_F(Claims, TheFileIsTheOwnersAlone) {
  const mode_t umask_before = ::umask(0);
  CompileClaims claims(*store_);
  const auto held = claims.claim(key_);
  ::umask(umask_before);
  EXPECT_EQ(static_cast<unsigned>(fs::status(dir_ / "tune.db-claims").permissions()), 0600u);
}

}  // namespace
}  // namespace attune
