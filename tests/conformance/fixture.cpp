#include "tests/conformance/fixture.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "cache/cubin_codec.h"
#include "common/error.h"
#include "common/text.h"

namespace attune::conformance {
namespace {

constexpr std::string_view kMagic = "attune conformance 1\n";

void append_number(std::uint64_t number, std::vector<std::byte>* to) {
  for (int i = 0; i < 8; ++i) to->push_back(static_cast<std::byte>(number >> (8 * i) & 255));
}

// Reads what append_number and raw appends wrote.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }
  std::span<const std::byte> take(std::uint64_t count) {
    if (count > rest_.size()) throw InvalidArgument("a conformance fixture is cut off");
    const auto taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::uint64_t number() {
    std::uint64_t number = 0;
    const auto bytes = take(8);
    for (std::size_t i = 0; i < 8; ++i) number |= std::to_integer<std::uint64_t>(bytes[i]) << 8 * i;
    return number;
  }

 private:
  std::span<const std::byte> rest_;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

std::filesystem::path fixture_folder() {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
  const auto bundled = program.parent_path().parent_path() / "data" / "conformance";
  if (!none && std::filesystem::is_directory(bundled, none)) return bundled;
  return ATTUNE_FIXTURES;
}

std::string encode(const Outputs& outputs) {
  std::vector<std::byte> plain;
  for (const auto& [name, bytes] : outputs) {
    append_number(name.size(), &plain);
    const auto text = bytes_of(name);
    plain.insert(plain.end(), text.begin(), text.end());
    append_number(bytes.size(), &plain);
    for (std::size_t plane = 0; plane < 4; ++plane) {
      for (std::size_t i = plane; i < bytes.size(); i += 4) plain.push_back(bytes[i]);
    }
  }
  const std::vector<std::byte> packed = compress(plain);
  std::string file(kMagic);
  file += digest_of(plain).text();
  file.append(reinterpret_cast<const char*>(packed.data()), packed.size());
  return file;
}

Outputs decode(const std::string& file) {
  constexpr std::size_t kDigestLength = 32;
  const std::string_view text = file;
  if (!text.starts_with(kMagic) || text.size() < kMagic.size() + kDigestLength) {
    throw InvalidArgument("this is no conformance fixture");
  }
  const auto content = Digest::parse(text.substr(kMagic.size(), kDigestLength));
  if (!content) throw InvalidArgument("a conformance fixture has no digest");
  const auto plain = decompress(bytes_of(text.substr(kMagic.size() + kDigestLength)), *content);
  if (!plain) throw InvalidArgument("a conformance fixture is damaged");
  Outputs outputs;
  Reader reader(*plain);
  while (!reader.at_end()) {
    const auto name = reader.take(reader.number());
    const auto planes = reader.take(reader.number());
    std::vector<std::byte> bytes(planes.size());
    auto next = planes.begin();
    for (std::size_t plane = 0; plane < 4; ++plane) {
      for (std::size_t i = plane; i < bytes.size(); i += 4) bytes[i] = *next++;
    }
    outputs[{reinterpret_cast<const char*>(name.data()), name.size()}] = std::move(bytes);
  }
  return outputs;
}

Outputs read_fixture(const std::filesystem::path& folder, const std::string& group) {
  const auto path = folder / (group + ".bin");
  std::ifstream in(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  if (!in) {
    throw InvalidArgument("cannot read a conformance fixture",
                          fmt::format("path={}", path.string()),
                          "record it on a GPU with ATTUNE_RECORD_FIXTURES=FOLDER");
  }
  return decode(file);
}

void write_fixture(const std::filesystem::path& folder, const std::string& group,
                   const Outputs& outputs) {
  std::filesystem::create_directories(folder);
  const auto path = folder / (group + ".bin");
  std::ofstream out(path, std::ios::binary);
  const std::string file = encode(outputs);
  out.write(file.data(), static_cast<std::streamsize>(file.size()));
  out.close();
  if (!out) {
    throw InvalidArgument("cannot write a conformance fixture",
                          fmt::format("path={}", path.string()));
  }
}

}  // namespace attune::conformance
