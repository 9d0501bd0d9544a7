#include "cli/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace attune {
namespace {

constexpr double kWidth = 360, kLeft = 46, kRight = 16, kTop = 12, kBottom = 24;
// A square shows around a disc on top of it.
constexpr double kDiscRadius = 3, kSquareRadius = 4;
constexpr int kXTicks = 8, kLogTicks = 8, kLinearTicks = 3;

// From values to the plot's units.
struct Axis {
  double low, high;  // values, or their logarithms
  double begin, end;
  bool log;

  double at(double value) const {
    const double placed = log ? std::log2(value) : value;
    if (high <= low) return (begin + end) / 2;
    return begin + (placed - low) / (high - low) * (end - begin);
  }
};

struct Bounds {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

template <typename Take>
Bounds bounds_of(const Plot& plot, Take&& take) {
  Bounds bounds;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.line) bounds.add(take(point));
    for (const PlotPoint& point : series.single) bounds.add(take(point));
  }
  return bounds;
}

std::string number(double value) { return fmt::format("{:.1f}", value); }

Html svg_text(double x, double y, const std::string& anchor, const std::string& content) {
  return element("text", {{"x", number(x)}, {"y", number(y)}, {"text-anchor", anchor}},
                 escaped(content));
}

Html svg_line(const std::string& kind, double x1, double y1, double x2, double y2) {
  return element("line",
                 {{"class", kind},
                  {"x1", number(x1)},
                  {"y1", number(y1)},
                  {"x2", number(x2)},
                  {"y2", number(y2)}},
                 {});
}

Html svg_marker(const std::string& kind, Marker marker, double x, double y) {
  if (marker == Marker::kNone) return {};
  if (marker == Marker::kDisc) {
    return element("circle",
                   {{"class", "mark " + kind},
                    {"cx", number(x)},
                    {"cy", number(y)},
                    {"r", number(kDiscRadius)}},
                   {});
  }
  return element("rect",
                 {{"class", "mark " + kind},
                  {"x", number(x - kSquareRadius)},
                  {"y", number(y - kSquareRadius)},
                  {"width", number(2 * kSquareRadius)},
                  {"height", number(2 * kSquareRadius)}},
                 {});
}

Html svg_series(const PlotSeries& series, const Axis& x, const Axis& y) {
  std::string path;
  Html marks;
  for (const PlotPoint& point : series.line) {
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x.at(point.x), y.at(point.y));
    marks += svg_marker(series.kind, series.marker, x.at(point.x), y.at(point.y));
  }
  for (const PlotPoint& point : series.single) {
    marks += svg_marker(series.kind, series.marker, x.at(point.x), y.at(point.y));
  }
  return element("polyline", {{"class", "line " + series.kind}, {"points", path}}, {}) + marks;
}

Html svg_axes(const Plot& plot, const Axis& x, const Axis& y, const std::vector<double>& x_ticks,
              const std::vector<double>& y_ticks) {
  Html axes;
  for (const double tick : y_ticks) {
    axes += svg_line("grid", x.begin, y.at(tick), x.end, y.at(tick));
    axes += svg_text(x.begin - 6, y.at(tick) + 3.5, "end", fmt::format("{:g}", tick));
  }
  for (const double tick : x_ticks) {
    axes += svg_line("tick", x.at(tick), y.begin, x.at(tick), y.begin + 4);
    axes += svg_text(x.at(tick), y.begin + 16, "middle", length_text(tick));
  }
  axes += svg_line("axis", x.begin, y.begin, x.end, y.begin);
  return axes +
         element("text", {{"class", "label"}, {"x", "2"}, {"y", "9"}}, escaped(plot.y_label));
}

// The powers of two from `low` to `high`, thinned out to `count`.
std::vector<double> length_ticks(double low, double high, int count) {
  if (high <= low) return {low};
  const double first = std::ceil(std::log2(low)), last = std::floor(std::log2(high));
  const double step = std::max(1.0, std::ceil((last - first + 1) / count));
  std::vector<double> ticks;
  for (double power = last; power >= first; power -= step) ticks.push_back(std::exp2(power));
  if (ticks.empty()) ticks = {low, high};
  return ticks;
}

}  // namespace

std::string length_text(double kv_len) {
  if (kv_len >= 1024 && std::fmod(kv_len, 1024) == 0) return fmt::format("{:g}K", kv_len / 1024);
  return fmt::format("{:.0f}", kv_len);
}

std::vector<double> linear_ticks(double low, double high, int count) {
  if (high <= low) return {low};
  const double rough = (high - low) / count;
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * decade;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * decade >= rough) step = factor * decade;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
    ticks.push_back(i * step + 0.0);  // no -0
  }
  return ticks;
}

std::vector<double> log_ticks(double low, double high, int count) {
  std::vector<double> ticks, decades;
  for (double power = std::floor(std::log10(low)); power <= std::log10(high); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      if (tick < low * (1 - 1e-9) || tick > high * (1 + 1e-9)) continue;
      ticks.push_back(tick);
      if (factor == 1.0) decades.push_back(tick);
    }
  }
  if (ticks.size() > static_cast<std::size_t>(count) && decades.size() > 1) return decades;
  return ticks.size() > 1 ? ticks : linear_ticks(low, high, count);
}

Html svg_of(const Plot& plot) {
  const Bounds xs = bounds_of(plot, [](const PlotPoint& point) { return point.x; });
  Bounds ys = bounds_of(plot, [](const PlotPoint& point) { return point.y; });
  if (xs.high < xs.low) return {};
  const double bottom = plot.height - kBottom;
  if (!plot.log_y) {
    ys.add(0);
    ys.add(1);
  } else {  // a little room around the points
    ys.low /= 1.15;
    ys.high *= 1.15;
  }
  const Axis x{std::log2(xs.low), std::log2(xs.high), kLeft, kWidth - kRight, true};
  const Axis y = plot.log_y ? Axis{std::log2(ys.low), std::log2(ys.high), bottom, kTop + 8, true}
                            : Axis{ys.low, ys.high, bottom, kTop + 8, false};
  Html inner = element("title", escaped(plot.title)) + element("desc", escaped(plot.description));
  inner += svg_axes(plot, x, y, length_ticks(xs.low, xs.high, kXTicks),
                    plot.log_y ? log_ticks(ys.low, ys.high, kLogTicks)
                               : linear_ticks(ys.low, ys.high, kLinearTicks));
  for (const PlotSeries& series : plot.series) inner += svg_series(series, x, y);
  return element("svg",
                 {{"viewBox", fmt::format("0 0 {:.0f} {}", kWidth, plot.height)},
                  {"role", "img"},
                  {"aria-label", plot.title + ": " + plot.description}},
                 inner);
}

Html svg_sample(const std::string& kind, Marker marker) {
  return element("svg", {{"viewBox", "0 0 34 12"}, {"class", "sample"}, {"aria-hidden", "true"}},
                 element("polyline", {{"class", "line " + kind}, {"points", "1,6 33,6"}}, {}) +
                     svg_marker(kind, marker, 17, 6));
}

}  // namespace attune
