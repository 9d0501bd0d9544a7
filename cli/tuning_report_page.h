// attune report as one HTML page that needs nothing else.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/html.h"
#include "cli/tuning_report.h"
#include "templates/family.h"

namespace attune {

// Complete without scripts; they sort and filter. `version` is attune's. Scripts and styles run by a
// nonce of this page alone, so that markup in a stored text could do nothing even if it got through.
std::string tuning_report_page(const TuningReport& report, const std::string& version);

// Sections of it, each for all GPUs.
Html winners_section(const TuningReport& report);
Html times_section(const TuningReport& report);
Html stale_section(const TuningReport& report);
Html missing_section(const TuningReport& report);
Html rejections_section(const TuningReport& report);

// "NVIDIA H200 (sm_90a)", as a heading.
Html gpu_heading(const ReportGpu& gpu);
Html code(const std::string& content);
// A text form that may break after each of its parts.
Html breakable_code(const std::string& text_form);
// A small label; `kind` is "good", "warn" or "bad".
Html badge(const std::string& kind, const std::string& label);
// "1-131072"
std::string kv_text(const KvRange& kv);
// Columns and cells of a measured length: time, default, floor, share of the floor.
std::vector<HtmlColumn> time_columns();
std::vector<HtmlCell> time_cells(const ReportPoint& point);

// Of the build: cli/report_page/.
std::span<const EmbeddedFile> report_page_files();

}  // namespace attune
