#include "runtime/token_file.h"

#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

class TokenFile : public testing::Test {
 protected:
  std::string message(const std::filesystem::path& path, std::optional<int> vocab_size) const {
    try {
      read_token_file(path, vocab_size);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "read";
  }

  TemporaryFolder folder_;
};

using Tokens = std::vector<std::int32_t>;

TEST_F(TokenFile, TextIsSeparatedByWhiteSpaceOrCommas) {
  EXPECT_EQ(
      read_token_file(folder_.write("a.txt", "1 2,3\n4\t5\r\n\r\n ,6, 7 ,, 262143\n"), 262144),
      (Tokens{1, 2, 3, 4, 5, 6, 7, 262143}));
  EXPECT_EQ(read_token_file(folder_.write("no_extension", "0")), (Tokens{0}));
}

TEST_F(TokenFile, BinaryIsLittleEndianInt32) {
  const std::string bytes("\x02\0\0\0\xff\xff\x03\0\x15\xcd\x5b\x07", 12);
  EXPECT_EQ(read_token_file(folder_.write("a.bin", bytes)), (Tokens{2, 262143, 123456789}));
  write_token_file(folder_.path() / "b.bin", Tokens{2, 262143, 123456789});
  std::ifstream file(folder_.path() / "b.bin", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), bytes);
}

TEST_F(TokenFile, WhatIsWrittenIsReadInBothForms) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    Tokens tokens(1 + random() % 300);
    for (std::int32_t& token : tokens) {
      token = static_cast<std::int32_t>((random() & 0x7fffffffu) >> (random() % 31));
    }
    for (const char* name : {"tokens.txt", "tokens.bin"}) {
      write_token_file(folder_.path() / name, tokens);  // over the round before
      ASSERT_EQ(read_token_file(folder_.path() / name), tokens) << name << " round " << round;
    }
  }
}

TEST_F(TokenFile, ErrorsNameFilePositionAndValue) {
  struct Case {
    const char* name;
    std::string bytes;
    std::optional<int> vocab_size;
    const char* values;
  };
  const std::string minus_five("\x01\0\0\0\xfb\xff\xff\xff", 8);
  const std::string ids_7_and_8("\x07\0\0\0\x08\0\0\0", 8);
  const Case cases[] = {
      {"word.txt", "1 2\n3\n4 five 6\n", {}, R"(line=3 value="five"; token ids are integers)"},
      {"list.txt", "[1, 2]", {}, R"(line=1 value="[1")"},
      {"float.txt", "1\n2.5", {}, R"(line=2 value="2.5")"},
      {"huge.txt", "99999999999999999999", {}, R"(line=1 value="99999999999999999999")"},
      {"wide.txt",
       "2147483648",
       {},
       "line=1 value=2147483648; token ids are integers from 0 to 2147483647"},
      {"negative.txt", "1,\n\n-5", {}, "line=3 value=-5"},
      {"large.txt", "7,8", 8, "line=1 value=8; token ids are integers from 0 to 7"},
      {"junk.txt", "\x01\x02", {}, R"(line=1 value="\x01\x02")"},
      {"negative.bin", minus_five, {}, "offset=4 value=-5"},
      {"large.bin", ids_7_and_8, 8, "offset=4 value=8; token ids are integers from 0 to 7"},
      {"cut.bin", minus_five + "x", {}, "bytes=9; a .bin file is little-endian int32"},
      {"empty.txt", "", {}, "bytes=0 ids=0; name a file with one token id or more"},
      {"blank.txt", " \n,\n", {}, "bytes=4 ids=0"},
      {"empty.bin", "", {}, "bytes=0 ids=0"},
  };
  for (const Case& c : cases) {
    const auto path = folder_.write(c.name, c.bytes);
    const std::string text = message(path, c.vocab_size);
    EXPECT_NE(text.find("cannot read the token file: file=" + path.string() + " " + c.values),
              std::string::npos)
        << text;
  }
}

TEST_F(TokenFile, FilesThatCannotBeOpenedAreNamed) {
  for (const auto& path : {folder_.path() / "missing.txt", folder_.path()}) {
    EXPECT_EQ(message(path, {}),
              "cannot read the token file: file=" + path.string() +
                  " opened=no; name a file of token ids that exists and can be read");
  }
  EXPECT_THROW(write_token_file(folder_.path() / "no" / "such.txt", Tokens{1}), InvalidArgument);
  EXPECT_THROW(write_token_file(folder_.path(), Tokens{1}), InvalidArgument);
}

}  // namespace
}  // namespace attune
