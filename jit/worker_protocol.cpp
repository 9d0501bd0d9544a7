#include "jit/worker_protocol.h"

#include <cstring>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "jit/host/host_source.h"
#include "jit/host/host_target.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr std::uint32_t kMaxMessageBytes = 1u << 30;

std::string to_body(const json& message) {
  std::string body;
  json::to_cbor(message, body);
  return body;
}

json resources_to_json(const KernelResources& kernel) {
  return {{"symbol", kernel.symbol},
          {"registers", kernel.registers},
          {"stack_bytes", kernel.stack_bytes},
          {"spill_store_bytes", kernel.spill_store_bytes},
          {"spill_load_bytes", kernel.spill_load_bytes},
          {"static_smem_bytes", kernel.static_smem_bytes}};
}

KernelResources resources_from_json(const json& message) {
  KernelResources kernel;
  message.at("symbol").get_to(kernel.symbol);
  message.at("registers").get_to(kernel.registers);
  message.at("stack_bytes").get_to(kernel.stack_bytes);
  message.at("spill_store_bytes").get_to(kernel.spill_store_bytes);
  message.at("spill_load_bytes").get_to(kernel.spill_load_bytes);
  message.at("static_smem_bytes").get_to(kernel.static_smem_bytes);
  return kernel;
}

json binary_to_json(const Binary& binary) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(binary.cubin.data());
  json kernels = json::array();
  for (const KernelResources& kernel : binary.kernels) kernels.push_back(resources_to_json(kernel));
  return {{"key", binary.key.text()},
          {"content", binary.content.text()},
          {"arch", binary.arch},
          {"compiler_version", binary.compiler_version},
          {"options", binary.options},
          {"cubin", json::binary(std::vector<std::uint8_t>(bytes, bytes + binary.cubin.size()))},
          {"kernels", std::move(kernels)},
          {"notes", binary.notes},
          {"log", binary.log},
          {"compile_ms", binary.compile_ms}};
}

Digest digest_from(const json& message) {
  const auto digest = Digest::parse(message.get<std::string>());
  if (!digest) throw Error("not a digest", message.get<std::string>());
  return *digest;
}

Binary binary_from_json(const json& message) {
  Binary binary;
  binary.key = digest_from(message.at("key"));
  binary.content = digest_from(message.at("content"));
  message.at("arch").get_to(binary.arch);
  message.at("compiler_version").get_to(binary.compiler_version);
  message.at("options").get_to(binary.options);
  const auto& cubin = message.at("cubin").get_binary();
  binary.cubin.resize(cubin.size());
  std::memcpy(binary.cubin.data(), cubin.data(), cubin.size());
  for (const json& kernel : message.at("kernels")) {
    binary.kernels.push_back(resources_from_json(kernel));
  }
  message.at("notes").get_to(binary.notes);
  message.at("log").get_to(binary.log);
  message.at("compile_ms").get_to(binary.compile_ms);
  if (digest_of(binary.cubin) != binary.content) throw Error("the cubin was damaged on its way");
  return binary;
}

// Runs a decoder; whatever it stumbles over becomes one kind of error.
template <typename Decode>
auto decoding(const std::string& body, const Decode& decode) {
  try {
    return decode(json::from_cbor(body));
  } catch (const std::exception& error) {
    throw Error("cannot read a worker's message",
                fmt::format("bytes={} reason={}", body.size(), error.what()),
                "use the worker programs of this attune");
  }
}

}  // namespace

// A source of the host goes with all that it is made of, so that a worker has no say in it.
std::string encode_job(const CompileJob& job, const CompilerSearch& compilers) {
  const Source source = is_host_arch(job.arch) ? for_host(job.source) : job.source;
  json headers = json::array();
  for (const EmbeddedFile& header : source.headers) {
    headers.push_back({std::string(header.name), std::string(header.text)});
  }
  return to_body({{"id", job.id},
                  {"arch", job.arch},
                  {"text", source.text},
                  {"split_symbol", source.split_symbol},
                  {"combine_symbol", source.combine_symbol},
                  {"symbols", source.symbols},
                  {"headers", std::move(headers)},
                  {"nvrtc_path", compilers.nvrtc.nvrtc_path},
                  {"nvrtc_folders", compilers.nvrtc.extra_folders},
                  {"cxx", compilers.host.cxx},
                  {"keep_folder", compilers.host.keep_folder},
                  {"scratch_folder", compilers.host.scratch_folder}});
}

ReceivedJob decode_job(const std::string& body) {
  return decoding(body, [](const json& message) {
    ReceivedJob received;
    message.at("id").get_to(received.job.id);
    message.at("arch").get_to(received.job.arch);
    message.at("text").get_to(received.job.source.text);
    message.at("split_symbol").get_to(received.job.source.split_symbol);
    message.at("combine_symbol").get_to(received.job.source.combine_symbol);
    message.at("symbols").get_to(received.job.source.symbols);
    message.at("nvrtc_path").get_to(received.compilers.nvrtc.nvrtc_path);
    message.at("nvrtc_folders").get_to(received.compilers.nvrtc.extra_folders);
    message.at("cxx").get_to(received.compilers.host.cxx);
    message.at("keep_folder").get_to(received.compilers.host.keep_folder);
    message.at("scratch_folder").get_to(received.compilers.host.scratch_folder);
    const json& headers = message.at("headers");
    received.header_storage.reserve(2 * headers.size());  // views point into it
    for (const json& header : headers) {
      const auto& name = received.header_storage.emplace_back(header.at(0).get<std::string>());
      const auto& text = received.header_storage.emplace_back(header.at(1).get<std::string>());
      received.job.source.headers.push_back({name, text});
    }
    return received;
  });
}

std::string encode_outcome(const CompileOutcome& outcome) {
  json message = {{"id", outcome.id},
                  {"error", outcome.error},
                  {"log", outcome.log},
                  {"is_of_machine", outcome.is_of_machine}};
  if (outcome.binary) message["binary"] = binary_to_json(*outcome.binary);
  return to_body(message);
}

CompileOutcome decode_outcome(const std::string& body) {
  return decoding(body, [](const json& message) {
    CompileOutcome outcome;
    message.at("id").get_to(outcome.id);
    message.at("error").get_to(outcome.error);
    message.at("log").get_to(outcome.log);
    message.at("is_of_machine").get_to(outcome.is_of_machine);
    if (message.contains("binary")) outcome.binary = binary_from_json(message.at("binary"));
    return outcome;
  });
}

std::string encode_binary(const Binary& binary) { return to_body(binary_to_json(binary)); }

Binary decode_binary(const std::string& body) {
  return decoding(body, [](const json& message) { return binary_from_json(message); });
}

std::string frame(const std::string& body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + body;
}

std::optional<std::string> take_frame(std::string* bytes) {
  std::uint32_t length = 0;
  if (bytes->size() < sizeof(length)) return std::nullopt;
  std::memcpy(&length, bytes->data(), sizeof(length));
  if (length > kMaxMessageBytes) {
    throw Error("cannot read a worker's message", fmt::format("length={}", length),
                "use the worker programs of this attune");
  }
  if (bytes->size() - sizeof(length) < length) return std::nullopt;
  std::string body = bytes->substr(sizeof(length), length);
  bytes->erase(0, sizeof(length) + length);
  return body;
}

}  // namespace attune
