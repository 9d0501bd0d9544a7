#include "cache/compile_claims.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "cache/cache_directory.h"

namespace attune {

// An open claims file. Its locks belong to the open file, so that threads exclude each other too.
struct CompileClaims::Claim::File {
  File(int opened, FileIdentity opened_identity) : fd(opened), identity(opened_identity) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd); }

  // 0, or errno.
  int set_lock(short type, long long offset) const {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = offset;
    lock.l_len = 1;
    return ::fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
  }

  int fd;
  FileIdentity identity;
};

namespace {

// Who holds a key is written at its place in the file, which another key may share.
constexpr std::uint64_t kNumSlots = 1 << 14;
struct Record {
  std::array<char, 32> key;
  std::array<char, 64> owner;
};

off_t record_offset(const Digest& key) {
  return static_cast<off_t>(key.low % kNumSlots * sizeof(Record));
}
// A byte that is no other key's. Locks need no file beneath them.
long long lock_offset(const Digest& key) { return static_cast<long long>(key.low >> 2); }

template <std::size_t size>
std::array<char, size> padded(std::string_view text) {
  std::array<char, size> chars{};
  std::memcpy(chars.data(), text.data(), std::min(size - 1, text.size()));
  return chars;
}

Record record_of(const Digest& key) {
  Record record{};
  const std::string text = key.text();
  std::memcpy(record.key.data(), text.data(), std::min(text.size(), record.key.size()));
  char host[48] = "this machine";
  ::gethostname(host, sizeof host - 1);
  record.owner = padded<64>(fmt::format("process {} on {}", ::getpid(), host));
  return record;
}

}  // namespace

CompileClaims::Claim::Claim(std::shared_ptr<File> file, long long offset)
    : file_(std::move(file)), offset_(offset) {}
CompileClaims::Claim::Claim(Claim&& other) noexcept
    : file_(std::move(other.file_)), offset_(other.offset_) {}
CompileClaims::Claim& CompileClaims::Claim::operator=(Claim&& other) noexcept {
  release();
  file_ = std::move(other.file_);
  offset_ = other.offset_;
  return *this;
}
CompileClaims::Claim::~Claim() { release(); }

void CompileClaims::Claim::release() noexcept {
  if (file_) file_->set_lock(F_UNLCK, offset_);
  file_.reset();
}

CompileClaims::CompileClaims(const TuneStore& store) {
  if (!store.is_in_memory() && !store.is_read_only()) path_ = store.path() + "-claims";
}
CompileClaims::~CompileClaims() = default;

// False where there is no file to lock. A file that was deleted under us is made anew.
bool CompileClaims::open() {
  if (path_.empty()) return false;
  const auto identity = file_identity(path_);
  if (file_ && identity == file_->identity) return true;
  const int fd =
      ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  struct stat status {};
  if (fd < 0) return false;
  if (::fstat(fd, &status) != 0) {
    ::close(fd);
    return false;
  }
  file_ = std::make_shared<Claim::File>(fd, FileIdentity{status.st_dev, status.st_ino});
  return true;
}

std::variant<CompileClaims::Claim, CompileClaims::Owner> CompileClaims::claim(const Digest& key) {
  if (!open()) return Claim();
  const Record mine = record_of(key);
  const int error = file_->set_lock(F_WRLCK, lock_offset(key));
  if (error == 0) {
    // What does not fit on a full disk is the owner's name alone.
    [[maybe_unused]] const auto written =
        ::pwrite(file_->fd, &mine, sizeof mine, record_offset(key));
    return Claim(file_, lock_offset(key));
  }
  if (error != EAGAIN && error != EACCES) return Claim();  // no locks here
  Record theirs{};
  const auto num_read = ::pread(file_->fd, &theirs, sizeof theirs, record_offset(key));
  const bool is_known = num_read == static_cast<ssize_t>(sizeof theirs) && theirs.key == mine.key;
  theirs.owner.back() = 0;
  return Owner{is_known ? std::string(theirs.owner.data()) : "another process"};
}

CompileClaims::Waited CompileClaims::wait(const Digest& key, std::chrono::milliseconds patience,
                                          const std::function<void(const Owner&)>& on_wait) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  bool told = false;
  for (bool waited = false;; waited = true) {
    auto granted = claim(key);
    if (auto* mine = std::get_if<Claim>(&granted)) return {std::move(*mine), waited};
    const auto elapsed = Clock::now() - start;
    if (elapsed > patience) return {Claim(), true};
    if (!told && elapsed > std::chrono::seconds(1) && on_wait) {
      on_wait(std::get<Owner>(granted));
      told = true;
    }
    std::this_thread::sleep_for(kClaimPoll);
  }
}

}  // namespace attune
