// What CompilePool and attune-compile-worker say to each other: messages of a 4-byte length and as
// many bytes of CBOR, both ways over the worker's standard input and output. The other workers speak
// in the same form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "jit/compile_pool.h"

namespace attune {

// A job as a worker holds it: it owns the header texts that `job.source.headers` points into.
struct ReceivedJob {
  CompileJob job;
  CompilerSearch compilers;
  std::vector<std::string> header_storage;
};

std::string encode_job(const CompileJob& job, const CompilerSearch& compilers);
std::string encode_outcome(const CompileOutcome& outcome);
// Throw Error for anything that the encoders do not write.
ReceivedJob decode_job(const std::string& body);
CompileOutcome decode_outcome(const std::string& body);
std::string encode_binary(const Binary& binary);
Binary decode_binary(const std::string& body);

// `body` with its length in front.
std::string frame(const std::string& body);
// Takes the first whole message off the front of `bytes`; empty when it is not complete yet. Throws
// Error for a length that no message has.
std::optional<std::string> take_frame(std::string* bytes);

}  // namespace attune
