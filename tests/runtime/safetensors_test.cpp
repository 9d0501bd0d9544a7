#include "runtime/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "tests/support/made_tensors.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

// In memory of exactly its size, so that a sanitizer sees every read behind its end.
std::string refusal(const std::string& file) {
  const auto memory = std::make_unique<std::byte[]>(file.size());
  std::memcpy(memory.get(), file.data(), file.size());
  return refusal_of([&] { parse_safetensors({memory.get(), file.size()}); });
}

std::string refusal(const std::filesystem::path& path) {
  return refusal_of([&] { Safetensors{path}; });
}

MadeTensors small_tensors() {
  return {{"a", MadeTensor::of<std::uint8_t>(Dtype::kU8, {3}, {1, 2, 3})},
          {"b", MadeTensor::of<float>(Dtype::kF32, {2, 1}, {1.5f, -2})},
          {"none", MadeTensor::of<float>(Dtype::kF32, {0, 4}, {})},
          {"one", MadeTensor::of<std::int64_t>(Dtype::kI64, {}, {-7})}};
}

TEST(Safetensors, ViewsLieInTheFileAndCopiesCopeWithAnyAddress) {
  const TemporaryFolder folder;
  const Safetensors file(folder.write("x.safetensors", safetensors_of(small_tensors())));
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.at("a").dtype, Dtype::kU8);
  EXPECT_EQ(elements<std::uint8_t>(file.at("a")), (std::vector<std::uint8_t>{1, 2, 3}));
  EXPECT_EQ(file.at("b").shape, (TensorShape{2, 1}));
  EXPECT_EQ(elements<float>(file.at("b")), (std::vector<float>{1.5f, -2}));
  EXPECT_EQ(file.at("none").shape, (TensorShape{0, 4}));
  EXPECT_TRUE(file.at("none").bytes.empty());
  EXPECT_EQ(file.at("one").shape, TensorShape());
  EXPECT_EQ(elements<std::int64_t>(file.at("one")), (std::vector<std::int64_t>{-7}));
  // b starts 3 bytes behind a, so one of them is not aligned; and nothing was copied.
  EXPECT_EQ(file.at("b").bytes.data() - file.at("a").bytes.data(), 3);
}

TEST(Safetensors, ViewsOutliveAMove) {
  const TemporaryFolder folder;
  Safetensors first(folder.write("x.safetensors", safetensors_of(small_tensors())));
  const TensorView view = first.at("b");
  const Safetensors second = std::move(first);
  EXPECT_EQ(second.at("b").bytes.data(), view.bytes.data());
  EXPECT_EQ(elements<float>(view), (std::vector<float>{1.5f, -2}));
}

TEST(Safetensors, ACopyOfOtherElementsIsRefused) {
  const MadeTensors made = small_tensors();
  const TensorViews views = views_of(made);
  EXPECT_EQ(refusal_of([&] { elements<double>(views.at("b")); }),
            "the tensor has another type: dtype=F32 element_bytes=8");
}

TEST(Safetensors, ReadsTheTinyCheckpoint) {
  const Safetensors model(test_data("gemma4-tiny"));
  EXPECT_EQ(model.tensors().size(), 85u);
  EXPECT_EQ(model.at("model.layers.5.self_attn.q_proj.weight").shape, (TensorShape{4096, 64}));
  EXPECT_EQ(refusal_of([&] { model.at("model.layers.6.layer_scalar"); }),
            "there is no such tensor: path=" + model.path().string() +
                " tensor=model.layers.6.layer_scalar");
}

struct Wrong {
  std::string header;
  std::string message;  // a part of it
};

constexpr const char* kData = "12345678";

TEST(Safetensors, RefusesHeadersThatBreakARuleByTensorAndOffsets) {
  const Wrong cases[] = {
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "accepted"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   )", "accepted"},
      {R"({"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})",
       "accepted"},
      {"", R"(header_bytes=0; a header starts with {)"},
      {R"( {"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "a header starts with {"},
      {R"([])", "a header starts with {"},
      {R"({"a":)", "a header is a JSON object of tensors"},
      {R"({"a":5})", R"(tensor="a" entry=5; a tensor is an object)"},
      {R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}})",
       R"(tensor="a" dtype="F4"; dtype is a known element type)"},
      {R"({"a":{"dtype":5,"shape":[2],"data_offsets":[0,8]}})", R"(tensor="a" dtype=5; )"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})",
       R"(tensor="a" dtype=(missing); a tensor has dtype, shape and data_offsets)"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", "shape=(missing)"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "data_offsets=(missing)"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "shape=2; shape lists integers"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
       "shape=[-2]; shape lists integers from 0"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "shape=[2.0]; "},
      {R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", R"(shape=["2"]; )"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})",
       "an extent has 63 bits"},
      {R"({"a":{"dtype":"F32","shape":[123456789012345678901],"data_offsets":[0,8]}})",
       "shape lists integers from 0"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
       "its bytes have 64 bits"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})",
       "its bytes have 64 bits"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})",
       "its bytes have 64 bits"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
       R"(tensor="a" data_offsets=[8,0]; data_offsets are a begin and an end)"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "data_offsets=[0]; "},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", "data_offsets=[0,8,8]; "},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", "data_offsets=[-8,0]; "},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8],"shape":[")" + std::string(1000, 'x') +
           R"("]}})",
       "shape=(array of 1); "},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
       "data_offsets=[0,12]; data_bytes=8, tensors end inside of them"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]}})",
       "data_bytes=8, tensors end inside of them"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       "data_offsets=[0,8]; F32 [3] takes 12 bytes"},
      {R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})",
       R"(tensor="b" data_offsets=[3, 8] expected_begin=5; tensors follow each other without gaps)"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})",
       R"(tensor="b" data_offsets=[3, 8] expected_begin=2)"},
      {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[1,8]}})",
       R"(tensor="a" data_offsets=[1, 8] expected_begin=0)"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       R"(tensor="b" data_offsets=[0, 8] expected_begin=8)"},
      {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}})",
       "tensors_end=7 data_bytes=8; the last tensor ends with the file"},
      {R"({})", "tensors_end=0 data_bytes=8"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       R"(key="a" appears twice)"},
      {R"({"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}})",
       R"(key="dtype" appears twice)"},
      {std::string("{}\0", 3), "it has a zero byte"},
      {"{\"\xff\":1}", "a header is a JSON object of tensors"},
      {"{\"a\":" + std::string(100000, '['), "depth=33"},
  };
  for (const Wrong& wrong : cases) {
    const std::string message = refusal(file_of(wrong.header, kData));
    EXPECT_NE(message.find(wrong.message), std::string::npos) << wrong.header.substr(0, 200) << "\n"
                                                              << message;
    EXPECT_LT(message.size(), 500u);
    if (wrong.message == "accepted") continue;
    EXPECT_TRUE(message.starts_with("the safetensors file cannot be used: ")) << message;
    EXPECT_TRUE(message.ends_with("; fetch the file again")) << message;
  }
}

TEST(Safetensors, RefusesLengthsThatCannotBe) {
  EXPECT_EQ(refusal(std::string()),
            "the safetensors file cannot be used: bytes=0; a file starts with 8 bytes of header "
            "length; fetch the file again");
  const auto with_length = [](std::uint64_t length) {
    std::string file = file_of("{}", "");
    std::memcpy(file.data(), &length, sizeof(length));
    return refusal(file);
  };
  EXPECT_EQ(with_length(2), "accepted");
  EXPECT_NE(with_length(3).find("header_bytes=3 bytes=10; the header is cut off"),
            std::string::npos);
  for (const std::uint64_t length : {std::uint64_t{100000001}, std::uint64_t{1} << 40,
                                     std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_NE(with_length(length).find("a header has at most 100000000 bytes"), std::string::npos);
  }
}

// Every byte of a file's head, replaced by any other, and every length: read or refused.
TEST(Safetensors, NoByteOfTheHeadBreaksTheReader) {
  const std::string file =
      safetensors_of({{"a", MadeTensor::of<std::uint8_t>(Dtype::kU8, {3}, {1, 2, 3})},
                      {"b", MadeTensor::of<float>(Dtype::kF32, {2, 1}, {1.5f, -2})}});
  ASSERT_EQ(refusal(file), "accepted");
  const std::size_t head = file.size() - 11;
  int num_accepted = 0;
  for (std::size_t at = 0; at < head; ++at) {
    for (int bits = 1; bits < 256; ++bits) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ bits);
      num_accepted += refusal(changed) == "accepted";
    }
  }
  for (std::size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(refusal(file.substr(0, length)), "accepted") << length;
  }
  EXPECT_NE(refusal(file + '\0'), "accepted");
  // Other names, other dtypes of the same size; hardly anything else is still a file.
  EXPECT_GT(num_accepted, 100);
  EXPECT_LT(num_accepted, static_cast<int>(head) * 255 / 4);
}

TEST(Safetensors, SaysWhatIsWrongWithAPath) {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  EXPECT_EQ(refusal(folder.path()), "the folder has no weights: path=" + folder.path().string() +
                                        "; it needs model.safetensors or "
                                        "model.safetensors.index.json");
  EXPECT_EQ(refusal(folder / "none.safetensors"),
            "cannot map the file: path=" + path("none.safetensors") +
                " (No such file or directory); name a regular file that this user may read");
  EXPECT_EQ(refusal(folder.write("empty.safetensors", "")),
            path("empty.safetensors") +
                ": the safetensors file cannot be used: bytes=0; a file starts with 8 bytes of "
                "header length; fetch the file again");
  std::filesystem::create_directories(folder / "model.safetensors");
  EXPECT_NE(refusal(folder.path()).find("(it is a folder)"), std::string::npos);
  EXPECT_NE(refusal(std::filesystem::path("/dev/null")).find("(it is not a regular file)"),
            std::string::npos);
}

TEST(Safetensors, AHugeFileIsMappedAndNotRead) {
  const TemporaryFolder folder;
  const auto file = folder.write("x.safetensors", file_of("{}", ""));
  std::filesystem::resize_file(file, std::uintmax_t{1} << 36);  // a hole: no disk is used
  EXPECT_NE(refusal(file).find("tensors_end=0 data_bytes=68719476726"), std::string::npos);
}

// Two shards and their index.
class Shards : public ::testing::Test {
 protected:
  Shards() {
    folder_.write("one.safetensors", safetensors_of({{"a", small_tensors().at("a")}}));
    folder_.write("two.safetensors", safetensors_of({{"b", small_tensors().at("b")},
                                                     {"one", small_tensors().at("one")}}));
  }
  std::string refusal_with(const std::string& index) const {
    folder_.write("model.safetensors.index.json", index);
    return refusal(folder_.path());
  }
  const TemporaryFolder folder_;
};

constexpr const char* kIndex =
    R"({"metadata":{},"weight_map":{"a":"one.safetensors","b":"two.safetensors","one":"two.safetensors"}})";

TEST_F(Shards, EveryTensorComesFromItsShard) {
  ASSERT_EQ(refusal_with(kIndex), "accepted");
  for (const auto& path : {folder_.path(), folder_ / "model.safetensors.index.json"}) {
    const Safetensors file(path);
    EXPECT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(elements<std::uint8_t>(file.at("a")), (std::vector<std::uint8_t>{1, 2, 3}));
    EXPECT_EQ(elements<float>(file.at("b")), (std::vector<float>{1.5f, -2}));
  }
}

TEST_F(Shards, AShardMayBeALinkToAFileElsewhere) {
  const TemporaryFolder blobs;
  std::filesystem::rename(folder_ / "two.safetensors", blobs / "blob");
  std::filesystem::create_symlink(blobs / "blob", folder_ / "two.safetensors");
  EXPECT_EQ(refusal_with(kIndex), "accepted");
}

TEST_F(Shards, RefusesAnIndexThatDisagreesWithItsShards) {
  const Wrong cases[] = {
      {R"({"weight_map":{"a":"one.safetensors"}, "weight_map":{}})", "appears twice"},
      {R"({"weight_map":[]})", "weight_map=(array of 0); weight_map is an object"},
      {R"({})", "weight_map=(missing)"},
      {R"({"weight_map":{"a":5}})", R"(tensor="a" shard=5; a shard is a file beside the index)"},
      {R"({"weight_map":{"a":"../one.safetensors"}})", R"(shard="../one.safetensors"; a shard is)"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", R"(shard="/etc/passwd"; a shard is)"},
      {R"({"weight_map":{"a":"a\\b"}})", "a shard is a file beside the index"},
      {R"({"weight_map":{"a":".."}})", R"(shard=".."; a shard is)"},
      {R"({"weight_map":{"a":""}})", R"(shard=""; a shard is)"},
      {R"({"weight_map":{"a":"three.safetensors"}})",
       R"(shard="three.safetensors" is missing; every shard is beside it)"},
      {R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})",
       R"(tensor="b" shard="one.safetensors"; each tensor is in the shard that the index names)"},
      {R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})",
       R"(tensor="one" shard="two.safetensors" index_says=(nothing); the index names each)"},
      {R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors","one":"one.safetensors"}})",
       R"(tensor="one" shard="two.safetensors" index_says="one.safetensors"; the index names)"},
      {"{", "an index is one JSON object"},
      {"[]", "file=(array of 0); it is an object"},
  };
  for (const Wrong& wrong : cases) {
    const std::string message = refusal_with(wrong.header);
    EXPECT_NE(message.find(wrong.message), std::string::npos) << wrong.header << "\n" << message;
    EXPECT_TRUE(message.starts_with((folder_ / "model.safetensors.index.json").string() +
                                    ": the safetensors index cannot be used: "))
        << message;
  }
}

TEST_F(Shards, NamesTheShardThatIsDamaged) {
  std::filesystem::resize_file(folder_ / "two.safetensors", 20);
  EXPECT_TRUE(refusal_with(kIndex).starts_with((folder_ / "two.safetensors").string() +
                                               ": the safetensors file cannot be used: "))
      << refusal_with(kIndex);
}

}  // namespace
}  // namespace attune
