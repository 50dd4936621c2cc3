#include "common/model/variable_entries.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

std::string Describe(const ps::VariableEntry& variable) {
  return ShapeToString({variable.shape().begin(), variable.shape().end()}) +
         (variable.moving_statistic() ? " (moving statistic)" : "");
}

float MultiplierOf(const ps::VariableEntry& variable) {
  return variable.has_learning_rate_multiplier() ? variable.learning_rate_multiplier() : 1.0f;
}

// Returns "" if the two have the same attributes, else the first attribute that differs.
std::string DescribeAttributeDifference(const ps::VariableEntry& server,
                                        const ps::VariableEntry& worker) {
  const auto differ = [](absl::string_view attribute, auto there, auto here) {
    return absl::StrFormat("has %s %s at the server and %s at the clone", attribute, there, here);
  };
  const auto text = [](float value) { return absl::StrFormat("%.9g", value); };
  if (server.frozen() != worker.frozen()) {
    return differ("frozen", server.frozen() ? "true" : "false", worker.frozen() ? "true" : "false");
  }
  if (server.l2_weight() != worker.l2_weight()) {
    return differ("l2_weight", text(server.l2_weight()), text(worker.l2_weight()));
  }
  if (MultiplierOf(server) != MultiplierOf(worker)) {
    return differ("learning_rate_multiplier", text(MultiplierOf(server)),
                  text(MultiplierOf(worker)));
  }
  if (server.moving_average_decay() != worker.moving_average_decay()) {
    return differ("moving_average_decay", text(server.moving_average_decay()),
                  text(worker.moving_average_decay()));
  }
  return "";
}

absl::Status CheckSizes(const google::protobuf::RepeatedPtrField<ps::VariableEntry>& entries) {
  if (entries.empty()) return absl::InvalidArgumentError("the model has no variables");
  if (entries.size() > kMaxEntries) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", entries.size(), " variables, allowed are ", kMaxEntries));
  }
  int64_t bytes = 0;
  for (const ps::VariableEntry& entry : entries) {
    const std::string& name = entry.name();
    const bool has_control = std::any_of(name.begin(), name.end(), [](char c) {
      return absl::ascii_iscntrl(static_cast<unsigned char>(c));
    });
    if (has_control) {
      return absl::InvalidArgumentError(absl::StrCat("variable \"", absl::CEscape(name),
                                                     "\" has a control character in its name"));
    }
    if (static_cast<int64_t>(name.size()) > kMaxEntryNameBytes) {
      return absl::InvalidArgumentError(absl::StrCat("variable ", name.substr(0, 80),
                                                     "... has a name of ", name.size(),
                                                     " bytes, allowed are ", kMaxEntryNameBytes));
    }
    if (entry.shape_size() > kMaxEntryRank) {
      return absl::InvalidArgumentError(absl::StrCat("variable ", name, " has ", entry.shape_size(),
                                                     " dimensions, allowed are ", kMaxEntryRank));
    }
    bytes += static_cast<int64_t>(entry.ByteSizeLong());
  }
  if (bytes > kMaxEntriesBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the names and shapes of the ", entries.size(),
                                                   " variables have ", bytes,
                                                   " bytes, allowed are ", kMaxEntriesBytes));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<ps::VariableEntry> VariableEntries(const VariableLayout& layout) {
  std::vector<ps::VariableEntry> entries;
  for (const VariableSpec& variable : layout.variables()) {
    ps::VariableEntry entry;
    entry.set_name(variable.name);
    entry.mutable_shape()->Assign(variable.shape.begin(), variable.shape.end());
    entry.set_moving_statistic(variable.kind == VariableKind::kMovingStatistic);
    entry.set_l2_weight(variable.l2_weight);
    if (variable.gradient_multiplier != 1.0f) {
      entry.set_gradient_multiplier(variable.gradient_multiplier);
    }
    if (variable.learning_rate_multiplier != 1.0f) {
      entry.set_learning_rate_multiplier(variable.learning_rate_multiplier);
    }
    entry.set_frozen(variable.frozen);
    entry.set_moving_average_decay(variable.moving_average_decay);
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<VariableLayout> LayoutOfEntries(
    const google::protobuf::RepeatedPtrField<ps::VariableEntry>& entries) {
  PP_RETURN_IF_ERROR(CheckSizes(entries));
  std::vector<VariableSpec> variables;
  for (const ps::VariableEntry& entry : entries) {
    VariableSpec variable;
    variable.name = entry.name();
    variable.shape.assign(entry.shape().begin(), entry.shape().end());
    variable.kind =
        entry.moving_statistic() ? VariableKind::kMovingStatistic : VariableKind::kTrainable;
    variable.l2_weight = entry.l2_weight();
    variable.learning_rate_multiplier = MultiplierOf(entry);
    if (entry.has_gradient_multiplier()) variable.gradient_multiplier = entry.gradient_multiplier();
    variable.frozen = entry.frozen();
    variable.moving_average_decay = entry.moving_average_decay();
    variables.push_back(std::move(variable));
  }
  PP_ASSIGN_OR_RETURN(VariableLayout layout, VariableLayout::Create(std::move(variables)));
  PP_RETURN_IF_ERROR(CheckAttributes(layout));
  return layout;
}

absl::Status CheckAttributes(const VariableLayout& layout) {
  const auto bad = [](const VariableSpec& variable, absl::string_view attribute, float value,
                      absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat("variable ", variable.name, " has ", attribute,
                                                   " ", value, ", expected ", expected));
  };
  for (const VariableSpec& variable : layout.variables()) {
    if (!std::isfinite(variable.l2_weight) || variable.l2_weight < 0.0f) {
      return bad(variable, "l2_weight", variable.l2_weight, "a finite number of at least 0");
    }
    if (!std::isfinite(variable.gradient_multiplier) || variable.gradient_multiplier < 0.0f) {
      return bad(variable, "gradient_multiplier", variable.gradient_multiplier,
                 "a finite number of at least 0");
    }
    if (!std::isfinite(variable.learning_rate_multiplier) ||
        variable.learning_rate_multiplier < 0.0f) {
      return bad(variable, "learning_rate_multiplier", variable.learning_rate_multiplier,
                 "a finite number of at least 0");
    }
    if (!(variable.moving_average_decay >= 0.0f && variable.moving_average_decay <= 1.0f)) {
      return bad(variable, "moving_average_decay", variable.moving_average_decay,
                 "a number from 0 to 1");
    }
  }
  return absl::OkStatus();
}

std::string DescribeVariableDifference(const std::vector<ps::VariableEntry>& server,
                                       const std::vector<ps::VariableEntry>& worker,
                                       std::string* variable) {
  for (size_t i = 0; i < std::max(server.size(), worker.size()); ++i) {
    if (i >= worker.size()) {
      *variable = server[i].name();
      return absl::StrFormat("variable %d is %s at the server, the clone has only %d", i, *variable,
                             worker.size());
    }
    *variable = worker[i].name();
    if (i >= server.size()) {
      return absl::StrFormat("variable %d is %s at the clone, the server has only %d", i, *variable,
                             server.size());
    }
    if (server[i].name() != worker[i].name()) {
      return absl::StrFormat("variable %d is %s at the server and %s at the clone", i,
                             server[i].name(), worker[i].name());
    }
    if (Describe(server[i]) != Describe(worker[i])) {
      return absl::StrFormat("%s is %s at the server and %s at the clone", *variable,
                             Describe(server[i]), Describe(worker[i]));
    }
  }
  return "";
}

std::string DescribeDeclarationDifference(const std::vector<ps::VariableEntry>& server,
                                          const std::vector<ps::VariableEntry>& worker,
                                          std::string* variable) {
  std::string difference = DescribeVariableDifference(server, worker, variable);
  for (size_t i = 0; i < server.size() && difference.empty(); ++i) {
    difference = DescribeAttributeDifference(server[i], worker[i]);
    if (difference.empty()) continue;
    *variable = server[i].name();
    difference = absl::StrCat(*variable, " ", difference);
  }
  return difference;
}

}  // namespace pushpull
