#include "ps_server/psctl/status_text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

#include "common/cli/progress_line.h"

namespace pushpull {
namespace {

using Row = std::vector<std::string>;

std::string Printable(std::string text) {
  for (char& c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  }
  return text;
}

std::string Ago(double seconds) {
  if (seconds < 10) return absl::StrFormat("%.1fs", seconds);
  return FormatTimeLeft(absl::Seconds(seconds));
}

// Formats rows of equal length. Each column is as wide as its widest cell, with two spaces
// between columns.
std::string FormatTable(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppendFormat(&line, "%-*s", static_cast<int>(widths[i] + 2), row[i]);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string StateOf(const ps::CloneStatus& clone, const ps::StatusReply& status) {
  if (clone.evicted()) return "evicted";
  const auto& late = status.late_clones();
  const bool is_late = std::count(late.begin(), late.end(), clone.worker_id()) > 0;
  if (clone.alive()) return is_late ? "late" : "alive";
  if (clone.left()) return "left";
  return clone.seconds_since_seen() < 0 ? "never seen" : "lost";
}

std::string CloneTable(const ps::StatusReply& status) {
  std::vector<Row> rows = {{"clone", "state", "replicas", "samples", "seen", "phase", "img/s",
                            "contributions", "drops", "peer"}};
  for (const ps::CloneStatus& clone : status.clones()) {
    const double seen = clone.seconds_since_seen();
    const std::string phase = clone.alive() ? clone.progress().phase() : "";
    const double speed = clone.progress().images_per_second();
    rows.push_back({absl::StrCat(clone.worker_id()), StateOf(clone, status),
                    clone.replicas().empty() ? "-" : absl::StrJoin(clone.replicas(), ","),
                    clone.samples_per_step() == 0 ? "-" : absl::StrCat(clone.samples_per_step()),
                    seen < 0 ? "-" : Ago(seen), phase.empty() ? "-" : Printable(phase),
                    clone.alive() ? absl::StrFormat("%.0f", speed) : "-",
                    absl::StrCat(clone.contributions()), absl::StrCat(clone.drops()),
                    clone.peer_name().empty() ? "-" : Printable(clone.peer_name())});
  }
  return rows.size() == 1 ? "no clone is known\n" : FormatTable(rows);
}

// Returns a line for each device that clones compute on.
std::string DevicesText(const ps::StatusReply& status) {
  std::map<std::string, std::vector<uint32_t>> clones;  // by device
  for (const ps::CloneStatus& clone : status.clones()) {
    const std::string& device = clone.arithmetic().device();
    if (!device.empty()) clones[Printable(device)].push_back(clone.worker_id());
  }
  std::string text;
  for (const auto& [device, ids] : clones) {
    absl::StrAppend(&text, ids.size() == 1 ? "clone " : "clones ", absl::StrJoin(ids, ","),
                    ids.size() == 1 ? " computes on " : " compute on ", device, "\n");
  }
  return text;
}

std::string CheckpointText(const ps::StatusReply& status) {
  std::string text = status.has_checkpoint()
                         ? absl::StrFormat("checkpoint of step %d", status.durable_step())
                         : "no checkpoint";
  if (status.seconds_since_checkpoint() >= 0) {
    absl::StrAppendFormat(&text, ", %s ago (took %.1f s)", Ago(status.seconds_since_checkpoint()),
                          status.last_checkpoint_seconds());
  }
  absl::StrAppendFormat(&text, "; %d published since the server started", status.checkpoints());
  if (status.checkpoint_failures() > 0) {
    absl::StrAppendFormat(&text, ", %d failed", status.checkpoint_failures());
  }
  return text;
}

// Returns for example "2 in 14, 3 in 1186", or an empty string if nothing was counted.
std::string HistogramText(const ps::Histogram& histogram) {
  std::vector<std::string> parts;
  for (int i = 0; i < histogram.counts_size(); ++i) {
    if (histogram.counts(i) == 0) continue;
    const bool last = i >= histogram.upper_bounds_size();
    const double low = i == 0 ? 0 : histogram.upper_bounds(i - 1) + 1;
    std::string values = absl::StrFormat("%.0f", low);
    if (last) {
      values += " and more";
    } else if (histogram.upper_bounds(i) > low) {
      absl::StrAppendFormat(&values, " to %.0f", histogram.upper_bounds(i));
    }
    parts.push_back(absl::StrFormat("%s in %d", values, histogram.counts(i)));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

std::string FormatStatus(const ps::StatusReply& status, absl::string_view address) {
  std::string text =
      absl::StrFormat("job %s at %s: %s, epoch %d\n", absl::BytesToHexString(status.run_id()),
                      address, status.sync() ? "sync" : "async", status.epoch());
  absl::StrAppendFormat(&text, "step %d", status.version());
  if (status.num_steps() > 0) {
    absl::StrAppendFormat(&text, " of %d (%.1f%%)", status.num_steps(),
                          100.0 * status.version() / status.num_steps());
  }
  absl::StrAppend(&text, "; ", CheckpointText(status), "\n");
  if (status.num_replicas() > 0)
    absl::StrAppendFormat(&text, "%d replicas\n", status.num_replicas());
  if (status.training_done()) text += "training is done\n";
  if (!status.stopped().empty()) {
    absl::StrAppend(&text, "training was stopped: ", Printable(status.stopped()), "\n");
  }
  if (!status.waiting_for().empty()) {
    absl::StrAppendFormat(&text, "waiting for %s, %s\n", Printable(status.waiting_for()),
                          Ago(status.waiting_seconds()));
  }
  text += CloneTable(status);
  text += DevicesText(status);
  const std::string contributors = HistogramText(status.contributors());
  if (!contributors.empty()) {
    absl::StrAppend(&text, "contributors: ", contributors, " steps\n");
  }
  const std::string staleness = HistogramText(status.staleness());
  if (!status.sync() && !staleness.empty()) {
    absl::StrAppend(&text, "staleness: ", staleness, " pushes\n");
  }
  absl::StrAppendFormat(
      &text, "contributions dropped %d, void %d; pushes repeated %d; steps rolled back %d\n",
      status.dropped_contributions(), status.void_contributions(), status.duplicate_pushes(),
      status.rolled_back_steps());
  return text;
}

}  // namespace pushpull
