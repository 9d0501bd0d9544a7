// Warnings, remarks and errors on stderr.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace attune {

// Copies write to the same place.
class Log {
 public:
  Log();
  void warn(const std::string& text) const;  // "attune: warning: ..."
  void note(const std::string& text) const;  // "attune: ..."
  // Called before every line: takes a progress line off the terminal.
  void before_line(std::function<void()> clear);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace attune
