#include "scripts/bench/step/operator_table.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

struct Row {
  std::string label;
  int calls = 0;
  double milliseconds = 0.0;
  double flops = 0.0;
  double bytes = 0.0;
};

std::string LabelOf(const OperatorRecord& record, TableRows rows) {
  if (rows == TableRows::kKind) return record.name;
  return absl::StrFormat("%-20s %3dx%-3dx%-4d -> %3dx%-3dx%-4d k%d s%d", record.name, record.in.h,
                         record.in.w, record.in.c, record.out.h, record.out.w, record.out.c,
                         record.kernel, record.stride);
}

}  // namespace

std::string FormatOperatorTable(const std::vector<OperatorTime>& operators, TableRows rows,
                                double bandwidth) {
  std::vector<Row> table;
  std::map<std::string, size_t> index;
  Row total{"all operators"};
  for (const OperatorTime& one : operators) {
    const std::string label = LabelOf(one.record, rows);
    const auto [it, added] = index.emplace(label, table.size());
    if (added) table.push_back({label});
    for (Row* const row : {&table[it->second], &total}) {
      ++row->calls;
      row->milliseconds += one.milliseconds;
      row->flops += one.record.flops;
      row->bytes += one.record.bytes;
    }
  }
  std::stable_sort(table.begin(), table.end(),
                   [](const Row& a, const Row& b) { return a.milliseconds > b.milliseconds; });
  table.push_back(total);
  int width = 8;
  for (const Row& row : table) width = std::max(width, static_cast<int>(row.label.size()));
  std::string text = absl::StrFormat("  %-*s %5s %9s %8s %8s %9s %7s\n", width, "operator", "calls",
                                     "ms", "TFLOP/s", "GB/s", "of floor", "share");
  for (const Row& row : table) {
    const double seconds = row.milliseconds / 1e3;
    // If the clock is too coarse for the operator, there is no rate.
    const double rate = seconds > 0.0 ? 1.0 / seconds : 0.0;
    absl::StrAppendFormat(
        &text, "  %-*s %5d %9.4f %8.2f %8.0f %8.0f%% %6.1f%%\n", width, row.label, row.calls,
        row.milliseconds, row.flops * rate / 1e12, row.bytes * rate / 1e9,
        100.0 * row.bytes * rate / bandwidth,
        total.milliseconds > 0.0 ? 100.0 * row.milliseconds / total.milliseconds : 0.0);
  }
  return text;
}

}  // namespace pushpull
