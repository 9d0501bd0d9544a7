// Binaries of the cache in place of a compiler, for targets that have none.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tuner/compile_stage.h"

namespace attune {

// Gives no binary; what is asked of it is missing in the cache.
class StoredCompiles : public CompileService {
 public:
  // As if the compiler of that version were here.
  explicit StoredCompiles(std::string compiler_version);
  std::string compiler_version() const override { return version_; }
  Digest key(const Source& source, const std::string& arch) const override;
  std::size_t run(const NextJob& next, const std::function<void(CompileOutcome)>& done,
                  const std::function<bool()>& stop) override;

  // The kernels that were asked for, by the symbol of each.
  const std::set<std::string>& missing() const { return missing_; }

 private:
  std::string version_;
  std::set<std::string> missing_;
};

// The compiler version of which the cache has the most candidates of `problems`. Throws CacheError
// when it has none of any.
std::string stored_compiler_version(const TuneStore& store, const std::vector<Problem>& problems,
                                    const DeviceInfo& device);

}  // namespace attune
