// Line plots as inline SVG. Series differ by stroke and marker, so they are told apart without colour.
#pragma once

#include <string>
#include <vector>

#include "cli/html.h"

namespace attune {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

enum class Marker { kNone, kDisc, kSquare };

struct PlotSeries {
  std::string kind;  // its class in the page's style: "winner", "default", "floor"
  Marker marker = Marker::kNone;
  std::vector<PlotPoint> line = {};    // joined in this order
  std::vector<PlotPoint> single = {};  // markers that no line joins
};

struct Plot {
  std::string title;        // for readers that cannot see it
  std::string description;  // what it shows, in numbers
  std::string y_label;
  bool log_y = false;  // else linear and from 0 on; x is logarithmic with powers of two
  int height = 200;
  std::vector<PlotSeries> series;
};

// Empty when there is no point.
Html svg_of(const Plot& plot);
// A short piece of a series, for legends.
Html svg_sample(const std::string& kind, Marker marker);

// Round numbers from `low` to `high`, at most about `count`; of a logarithmic axis 1, 2 and 5 of
// each decade, or their powers of ten alone where those are many.
std::vector<double> linear_ticks(double low, double high, int count);
std::vector<double> log_ticks(double low, double high, int count);

// "128K" of 131072; numbers that are no multiple of 1024 as they are.
std::string length_text(double kv_len);

}  // namespace attune
