// What the opaque handles of runtime/attune_model_c.h are. Members are declared in the order of what needs
// what: the engine goes last.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/c_handles.h"
#include "runtime/checkpoint.h"
#include "runtime/gemma4_model.h"
#include "runtime/generate.h"

namespace attune {

// A draft head that a model was made for.
struct HeadSource {
  std::optional<Eagle3Checkpoint> checkpoint;  // none: random weights
  Eagle3Config config;
};

struct SharedModel {
  std::shared_ptr<attune_engine> engine;
  Gemma4Model model;
  std::optional<HeadSource> head;
};

}  // namespace attune

struct attune_model {
  std::shared_ptr<attune::SharedModel> shared;
};

struct attune_model_session {
  std::shared_ptr<attune::SharedModel> shared;
  attune::Gemma4Session session;
};

struct attune_generator {
  std::shared_ptr<attune::SharedModel> shared;
  attune::Stream own_stream;
  std::unique_ptr<attune::Drafter> drafter;
  attune::Generator generator;
  std::vector<std::int32_t> tokens;  // of the last run
};
