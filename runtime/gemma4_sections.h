// What the readers of a Gemma 4 config.json share.
#pragma once

#include <string_view>

#include "runtime/gemma4_geometry.h"
#include "runtime/json_section.h"

namespace attune {

constexpr std::string_view kGemma4Config = "the Gemma 4 config";
constexpr std::string_view kOneObject = "a config is one JSON object";

// The part of a config that describes the text model; `root` in text-only files.
JsonSection gemma4_text_section(const JsonSection& root);

Gemma4Geometry read_gemma4_geometry(const JsonSection& text);

}  // namespace attune
