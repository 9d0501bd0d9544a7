// Changes in the files of a kernel's source: bugs for tests to find.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "jit/source.h"

namespace attune {

// A source with changes in some of its files. Owns the changed texts.
class Planted {
 public:
  explicit Planted(Source source) : source_(std::move(source)) {}
  Planted(Planted&&) = default;  // the texts stay where they are

  void change(std::string_view file, std::string_view from, std::string_view to) {
    for (EmbeddedFile& header : source_.headers) {
      if (header.name != file) continue;
      std::string& text = texts_.emplace_back(header.text);
      const std::size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << "the template has changed: " << file;
      text.replace(at, from.size(), to);
      header.text = text;
      return;
    }
    FAIL() << "no such file: " << file;
  }
  const Source& source() const { return source_; }

 private:
  Source source_;
  std::deque<std::string> texts_;
};

}  // namespace attune
