#include "common/model/variable_entries.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

std::string Describe(const ps::VariableEntry& variable) {
  return ShapeToString({variable.shape().begin(), variable.shape().end()}) +
         (variable.moving_statistic() ? " (moving statistic)" : "");
}

}  // namespace

std::vector<ps::VariableEntry> VariableEntries(const VariableLayout& layout) {
  std::vector<ps::VariableEntry> entries;
  for (const VariableSpec& variable : layout.variables()) {
    ps::VariableEntry entry;
    entry.set_name(variable.name);
    entry.mutable_shape()->Assign(variable.shape.begin(), variable.shape.end());
    entry.set_moving_statistic(variable.kind == VariableKind::kMovingStatistic);
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string DescribeVariableDifference(const std::vector<ps::VariableEntry>& server,
                                       const std::vector<ps::VariableEntry>& worker,
                                       std::string* variable) {
  for (size_t i = 0; i < std::max(server.size(), worker.size()); ++i) {
    if (i >= worker.size()) {
      *variable = server[i].name();
      return absl::StrFormat("variable %d is %s at the server, the worker has only %d", i,
                             *variable, worker.size());
    }
    *variable = worker[i].name();
    if (i >= server.size()) {
      return absl::StrFormat("variable %d is %s at the worker, the server has only %d", i,
                             *variable, server.size());
    }
    if (server[i].name() != worker[i].name()) {
      return absl::StrFormat("variable %d is %s at the server and %s at the worker", i,
                             server[i].name(), worker[i].name());
    }
    if (Describe(server[i]) != Describe(worker[i])) {
      return absl::StrFormat("%s is %s at the server and %s at the worker", *variable,
                             Describe(server[i]), Describe(worker[i]));
    }
  }
  return "";
}

}  // namespace pushpull
