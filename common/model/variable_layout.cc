// Tested by tests/common/model/families/mobilenet_v2_test.cc.
// Tested by tests/common/model/model_layout_test.cc.
#include "common/model/variable_layout.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

// The number of elements of one variable, or of all together, padding included.
constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 64;

absl::StatusOr<int64_t> NumElements(const VariableSpec& variable) {
  int64_t elements = 1;
  for (const int64_t dimension : variable.shape) {
    if (dimension < 1) {
      return absl::InvalidArgumentError(absl::StrCat("variable ", variable.name, " has shape ",
                                                     ShapeToString(variable.shape),
                                                     ", expected dimensions of at least 1"));
    }
    // Past the limit the number stays where it is: it is refused in any case.
    elements = elements > kMaxElements / dimension ? kMaxElements : elements * dimension;
  }
  return elements;
}

std::string Describe(const VariableSpec& variable) {
  return absl::StrCat(
      variable.name, " ", ShapeToString(variable.shape),
      variable.kind == VariableKind::kTrainable ? " (trainable)" : " (moving statistic)");
}

}  // namespace

std::string ShapeToString(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<VariableLayout> VariableLayout::Create(std::vector<VariableSpec> variables) {
  VariableLayout layout;
  std::string description;
  for (VariableSpec& variable : variables) {
    if (variable.name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable ", layout.variables_.size(), " has no name"));
    }
    PP_ASSIGN_OR_RETURN(const int64_t elements, NumElements(variable));
    const int64_t padded =
        (elements + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
    if (padded > kMaxElements - layout.total_elements_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable ", variable.name, " has shape ", ShapeToString(variable.shape),
          ", which are too many elements: all variables together may have ", kMaxElements));
    }
    if (!layout.index_.emplace(variable.name, layout.num_variables()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable ", variable.name, " is declared twice"));
    }
    absl::StrAppend(&description, Describe(variable), "\n");
    layout.offsets_.push_back(layout.total_elements_);
    layout.num_elements_.push_back(elements);
    layout.total_elements_ += padded;
    layout.variables_.push_back(std::move(variable));
  }
  layout.signature_ = Sha256Hex(description);
  return layout;
}

int64_t VariableLayout::num_trainable_parameters() const {
  int64_t sum = 0;
  for (int64_t i = 0; i < num_variables(); ++i) {
    if (variables_[i].kind == VariableKind::kTrainable) sum += num_elements_[i];
  }
  return sum;
}

std::optional<int64_t> VariableLayout::Find(absl::string_view name) const {
  const auto it = index_.find(name);
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

int64_t VariableLayout::VariableAt(int64_t element) const {
  return std::upper_bound(offsets_.begin(), offsets_.end(), element) - offsets_.begin() - 1;
}

std::string VariableLayout::DescribeDifference(const VariableLayout& other) const {
  const int64_t common = std::min(num_variables(), other.num_variables());
  for (int64_t i = 0; i < common; ++i) {
    const std::string mine = Describe(variables_[i]);
    const std::string theirs = Describe(other.variables_[i]);
    if (mine != theirs) {
      return absl::StrCat("variable ", i, " differs: ", mine, " here, ", theirs, " there");
    }
  }
  if (num_variables() > common) {
    return absl::StrCat("variable ", common, " differs: ", Describe(variables_[common]),
                        " here, missing there");
  }
  if (other.num_variables() > common) {
    return absl::StrCat("variable ", common, " differs: missing here, ",
                        Describe(other.variables_[common]), " there");
  }
  return "";
}

}  // namespace pushpull
