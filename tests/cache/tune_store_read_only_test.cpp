// A store whose file or folder may only be read.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cache/fixtures.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::cache_error_of;
using testing::files_with;
using testing::make_cache;
using testing::sample_binary;
using testing::sample_gpu;
using testing::sample_problem;
using testing::sample_toolchain;
using testing::sample_winner;
using testing::serves;
using testing::TempDir;
using testing::Warnings;

constexpr uid_t kNobody = 65534;

// Runs `work` in a process without root's rights, as permissions do not bind root. `work` returns
// what went wrong, or nothing.
std::string as_nobody(const std::function<std::string()>& work) {
  int pipe_fds[2];
  if (::pipe(pipe_fds) != 0) return "pipe failed";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string problem;
    if (::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) {
      problem = "setuid failed";
    } else {
      try {
        problem = work();
      } catch (const std::exception& error) {
        problem = fmt::format("threw {}", error.what());
      }
    }
    [[maybe_unused]] const auto written = ::write(pipe_fds[1], problem.data(), problem.size());
    ::_exit(0);
  }
  ::close(pipe_fds[1]);
  std::string problem;
  char buffer[512];
  for (ssize_t n; (n = ::read(pipe_fds[0], buffer, sizeof buffer)) > 0;) {
    problem.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(pipe_fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status)) problem += " died";
  return problem;
}

// A folder with a cache that only its owner, root or the tester, can write.
class ReadOnlyCache : public ::testing::Test {
 protected:
  ReadOnlyCache() {
    make_cache(file_);
    rows_ = testing::dump(file_);
    fs::permissions(file_, fs::perms(0444));
    fs::permissions(dir_.path(), fs::perms(0555));
    before_ = testing::read_file(file_);
  }
  ~ReadOnlyCache() override {
    EXPECT_EQ(testing::read_file(file_), before_);
    EXPECT_EQ(files_with(dir_.path(), "tune").size(), 1u);
    fs::permissions(dir_.path(), fs::perms(0700));
  }

  TempDir dir_;
  fs::path file_ = dir_ / "tune.db";
  std::string rows_;
  std::string before_;
};

TEST_F(ReadOnlyCache, ServesLookupsAndRefusesPuts) {
  EXPECT_EQ(as_nobody([&]() -> std::string {
              const auto store = TuneStore::open(file_);
              if (!store->is_read_only()) return "not read-only";
              if (!serves(*store)) return "does not serve";
              if (store->winners().size() != 1) return "does not list";
              const std::string message =
                  cache_error_of([&] { store->put_winner(sample_gpu(), sample_winner()); });
              if (message.find("cannot write tuning cache: path=") != 0) return message;
              if (message.find("(read-only)") == std::string::npos) return message;
              return serves(*store) ? "" : "stopped serving";
            }),
            "");
}

TEST_F(ReadOnlyCache, DropsWritesWithOneWarningForOpenOrMemory) {
  EXPECT_EQ(as_nobody([&]() -> std::string {
              Warnings warnings;
              const auto store = TuneStore::open_or_memory(file_, warnings.sink());
              if (!store->is_read_only()) return "not read-only";
              if (warnings.count() != 0) return "warned before a write";
              store->put_winner(sample_gpu(), sample_winner());
              store->put_binary(sample_binary("new"), "v");
              store->put_rejections(sample_gpu(), sample_problem(), sample_toolchain(), {});
              if (warnings.count() != 1) return fmt::format("{} warnings", warnings.count());
              if (store->find_binary(sample_binary("new").key)) return "wrote";
              return serves(*store) ? "" : "does not serve";
            }),
            "");
}

TEST_F(ReadOnlyCache, CanBeExported) {
  TempDir target;
  fs::permissions(target.path(), fs::perms(0777));
  EXPECT_EQ(as_nobody([&]() -> std::string {
              TuneStore::open(file_)->export_to(target / "ship.db");
              return "";
            }),
            "");
  // A tester who is root does not trust the file of nobody, so compare the rows alone.
  EXPECT_EQ(testing::dump(target / "ship.db"), rows_);
}

TEST_F(ReadOnlyCache, CanBeImported) {
  TempDir target;
  EXPECT_EQ(as_nobody([&]() -> std::string {
              const auto store = TuneStore::open_in_memory();
              if (store->import_from(file_).winners_added != 1) return "added none";
              return serves(*store) ? "" : "does not serve";
            }),
            "");
}

TEST(TuneStoreReadOnly, AFolderWithoutACacheMeansMemory) {
  TempDir dir;
  fs::permissions(dir.path(), fs::perms(0555));
  EXPECT_EQ(as_nobody([&]() -> std::string {
              Warnings warnings;
              const auto store = TuneStore::open_or_memory(dir / "sub/tune.db", warnings.sink());
              if (!store->is_in_memory()) return "not in memory";
              if (warnings.count() != 1) return fmt::format("{} warnings", warnings.count());
              store->put_winner(sample_gpu(), sample_winner());
              return serves(*store) ? "" : "does not serve";
            }),
            "");
  fs::permissions(dir.path(), fs::perms(0700));
}

}  // namespace
}  // namespace attune
