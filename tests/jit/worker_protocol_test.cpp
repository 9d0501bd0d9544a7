#include "jit/worker_protocol.h"

#include <gtest/gtest.h>

#include "common/error.h"

namespace attune {
namespace {

CompileOutcome sample_outcome() {
  Binary binary;
  binary.key = digest_of("inputs");
  binary.arch = "sm_90a";
  binary.compiler_version = "13.0";
  binary.options = "-a -b";
  for (int i = 0; i < 256; ++i) binary.cubin.push_back(static_cast<std::byte>(i));
  binary.content = digest_of(binary.cubin);
  binary.kernels = {{.symbol = "k",
                     .registers = 1,
                     .stack_bytes = 2,
                     .spill_store_bytes = 3,
                     .spill_load_bytes = 4,
                     .static_smem_bytes = 5}};
  binary.notes = {"C7510: slow"};
  binary.log = "line\n";
  binary.compile_ms = 1.5;
  return {7, binary, {}, "line\n"};
}

TEST(WorkerProtocol, GivesAJobBack) {
  const std::string header_text = "int x;\n";
  CompileJob job;
  job.id = 3;
  job.arch = "sm_80";
  job.source = {.text = "#include \"templates/a.h\"\n",
                .split_symbol = "s",
                .combine_symbol = "c",
                .symbols = {"s", "c"},
                .headers = {{"templates/a.h", header_text}}};
  const ReceivedJob received = decode_job(encode_job(
      job, {.nvrtc = {"/nvrtc", {"/a", "/b"}},
            .host = {.cxx = "/cxx", .keep_folder = "/keep", .scratch_folder = "/scratch"}}));
  EXPECT_EQ(received.job.id, 3u);
  EXPECT_EQ(received.job.arch, "sm_80");
  EXPECT_EQ(received.job.source.text, job.source.text);
  EXPECT_EQ(received.job.source.split_symbol, "s");
  EXPECT_EQ(received.job.source.combine_symbol, "c");
  ASSERT_EQ(received.job.source.headers.size(), 1u);
  EXPECT_EQ(received.job.source.headers[0].name, "templates/a.h");
  EXPECT_EQ(received.job.source.headers[0].text, header_text);
  EXPECT_EQ(received.job.source.symbols, job.source.symbols);
  EXPECT_EQ(received.compilers.nvrtc.nvrtc_path, "/nvrtc");
  EXPECT_EQ(received.compilers.nvrtc.extra_folders, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(received.compilers.host.cxx, "/cxx");
  EXPECT_EQ(received.compilers.host.keep_folder, "/keep");
  EXPECT_EQ(received.compilers.host.scratch_folder, "/scratch");
}

TEST(WorkerProtocol, GivesABinaryBack) {
  const CompileOutcome sent = sample_outcome();
  const CompileOutcome outcome = decode_outcome(encode_outcome(sent));
  EXPECT_EQ(outcome.id, 7u);
  EXPECT_EQ(outcome.log, "line\n");
  ASSERT_TRUE(outcome.binary.has_value());
  EXPECT_EQ(outcome.binary->key, sent.binary->key);
  EXPECT_EQ(outcome.binary->content, sent.binary->content);
  EXPECT_EQ(outcome.binary->arch, "sm_90a");
  EXPECT_EQ(outcome.binary->compiler_version, "13.0");
  EXPECT_EQ(outcome.binary->options, "-a -b");
  EXPECT_EQ(outcome.binary->cubin, sent.binary->cubin);
  EXPECT_EQ(outcome.binary->kernels, sent.binary->kernels);
  EXPECT_EQ(outcome.binary->notes, sent.binary->notes);
  EXPECT_EQ(outcome.binary->compile_ms, 1.5);
}

TEST(WorkerProtocol, GivesAFailureBack) {
  const CompileOutcome outcome =
      decode_outcome(encode_outcome({9, {}, "what failed", "log", true}));
  EXPECT_FALSE(outcome.binary.has_value());
  EXPECT_EQ(outcome.error, "what failed");
  EXPECT_TRUE(outcome.is_of_machine);
}

TEST(WorkerProtocol, RefusesADamagedCubin) {
  CompileOutcome outcome = sample_outcome();
  outcome.binary->cubin[100] ^= std::byte{1};
  EXPECT_THROW(decode_outcome(encode_outcome(outcome)), Error);
}

TEST(WorkerProtocol, RefusesOtherBytes) {
  EXPECT_THROW(decode_outcome("hello"), Error);
  EXPECT_THROW(decode_outcome(""), Error);
  EXPECT_THROW(decode_job(encode_outcome(sample_outcome())), Error);
}

TEST(WorkerProtocol, TakesMessagesFromAnyCutOfTheStream) {
  const std::string stream = frame("first") + frame("") + frame("second");
  std::string received;
  std::vector<std::string> messages;
  for (const char byte : stream) {
    received += byte;
    while (auto message = take_frame(&received)) messages.push_back(*message);
  }
  EXPECT_EQ(messages, (std::vector<std::string>{"first", "", "second"}));
  EXPECT_TRUE(received.empty());
}

TEST(WorkerProtocol, RefusesALengthThatNoMessageHas) {
  std::string received = "\xff\xff\xff\xff";
  EXPECT_THROW(take_frame(&received), Error);
}

}  // namespace
}  // namespace attune
