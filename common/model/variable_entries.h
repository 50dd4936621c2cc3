// Converts a layout's variables to messages for GetJob and Register and back, and compares two
// lists of them, so that worker or server can name the first variable in which their models differ.
// Pure functions.
#ifndef PUSHPULL_COMMON_MODEL_VARIABLE_ENTRIES_H_
#define PUSHPULL_COMMON_MODEL_VARIABLE_ENTRIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"

#include "common/model/variable_layout.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Returns one entry per variable, in layout order, with all fields.
std::vector<ps::VariableEntry> VariableEntries(const VariableLayout& layout);

// Limits of a declaration. The list of variables has to fit into one message (GetJob, Register),
// and so have the norms of all variables (Apply: with LAMB 16 bytes for each).
inline constexpr int64_t kMaxEntriesBytes = 768 * 1024;
inline constexpr int64_t kMaxEntries = 32 * 1024;
inline constexpr int64_t kMaxEntryNameBytes = 512;
inline constexpr int64_t kMaxEntryRank = 64;

// Returns the layout of the variables that a clone has declared. INVALID_ARGUMENT, with the name of
// the variable: what VariableLayout::Create refuses, a name with control characters, a name, rank
// or list above the limits, or an attribute that is not finite or out of range.
absl::StatusOr<VariableLayout> LayoutOfEntries(
    const google::protobuf::RepeatedPtrField<ps::VariableEntry>& entries);

// Checks the attributes of declared variables, which may come from a clone or from a manifest.
// INVALID_ARGUMENT: l2_weight or a multiplier is negative or not finite, or moving_average_decay is
// not in [0, 1].
absl::Status CheckAttributes(const VariableLayout& layout);

// Returns "" if the two lists agree in name, shape and kind of all variables. Otherwise returns a
// sentence that says which variable differs first and how, and sets *variable to its name.
std::string DescribeVariableDifference(const std::vector<ps::VariableEntry>& server,
                                       const std::vector<ps::VariableEntry>& worker,
                                       std::string* variable);

// The same for two lists of declared variables, which must also agree in l2_weight,
// learning_rate_multiplier, frozen and moving_average_decay.
std::string DescribeDeclarationDifference(const std::vector<ps::VariableEntry>& server,
                                          const std::vector<ps::VariableEntry>& worker,
                                          std::string* variable);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_VARIABLE_ENTRIES_H_
