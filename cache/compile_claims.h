// Who compiles what: processes that start on one empty cache at once share the work. A claim is a
// lock on a byte of <cache>-claims, which the kernel drops with its owner, however that ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "cache/tune_store.h"
#include "common/text.h"

namespace attune {

// Longer than any compile lasts: who publishes nothing for so long is not waited for.
constexpr std::chrono::milliseconds kClaimPatience = std::chrono::seconds(150);
constexpr std::chrono::milliseconds kClaimPoll{50};

class CompileClaims {
 public:
  // Claims among all who use the store's file. In memory, read-only, or where the file system has no
  // locks, every claim is granted: then work may be done twice.
  explicit CompileClaims(const TuneStore& store);
  ~CompileClaims();
  CompileClaims(const CompileClaims&) = delete;
  CompileClaims& operator=(const CompileClaims&) = delete;

  // Held until it is destroyed or its process ends.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept;
    Claim& operator=(Claim&& other) noexcept;
    ~Claim();

   private:
    friend class CompileClaims;
    struct File;
    Claim(std::shared_ptr<File> file, long long offset);
    void release() noexcept;

    std::shared_ptr<File> file_;  // empty: granted without a lock
    long long offset_ = 0;
  };

  // "process 4242 on node7", as far as it is known.
  struct Owner {
    std::string text;
  };
  // Grants the compile of a key or says who has it. Never waits.
  std::variant<Claim, Owner> claim(const Digest& key);

  // Waits for a claim, at most `patience`; `on_wait` hears of the owner once, when it takes a second.
  struct Waited {
    Claim claim;
    bool waited = false;  // somebody may have stored the binary meanwhile
  };
  Waited wait(const Digest& key, std::chrono::milliseconds patience,
              const std::function<void(const Owner&)>& on_wait);

 private:
  bool open();

  std::string path_;  // empty: no file to lock
  std::shared_ptr<Claim::File> file_;
};

}  // namespace attune
