// What the opaque handles of runtime/attune_gemma4_c.h are. Members are declared in the order of
// what needs what: the engine goes last.
#pragma once

#include <memory>
#include <utility>

#include "runtime/c_handles.h"
#include "runtime/gemma4_attention.h"

namespace attune {

struct SharedGemma4Model {
  SharedGemma4Model(std::shared_ptr<attune_engine> of, const Gemma4Geometry& geometry,
                    const Gemma4Options& options)
      : engine(std::move(of)), attention(engine->engine, geometry, options) {}

  std::shared_ptr<attune_engine> engine;
  Gemma4Attention attention;
};

}  // namespace attune

struct attune_gemma4_geometry {
  attune::Gemma4Geometry geometry;
};

struct attune_gemma4_model {
  std::shared_ptr<attune::SharedGemma4Model> model;
};

struct attune_gemma4_session {
  std::shared_ptr<attune::SharedGemma4Model> model;
  attune::Gemma4Session session;
};

struct attune_gemma4_batch {
  std::shared_ptr<attune::SharedGemma4Model> model;
  attune::Gemma4Batch batch;
};
