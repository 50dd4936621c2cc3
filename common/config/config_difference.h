// Says how two pipeline configs differ. Thread-safe functions.
#ifndef PUSHPULL_COMMON_CONFIG_CONFIG_DIFFERENCE_H_
#define PUSHPULL_COMMON_CONFIG_CONFIG_DIFFERENCE_H_

#include <string>

#include "google/protobuf/message.h"

namespace pushpull {

// What counts as a difference between a field that is not set and one that is set to its default.
enum class UnsetFields {
  kDiffer,       // They differ, as their meaning may: see (unset_differs) in the schema.
  kAreDefaults,  // They are the same.
};

// Returns the first difference of `now` from `before`, two configs or the same part of two configs,
// such as "modified: model.ssd.num_classes: 3 -> 4". Empty: they do not differ.
std::string DescribeConfigDifference(const google::protobuf::Message& before,
                                     const google::protobuf::Message& now, UnsetFields unset);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_CONFIG_DIFFERENCE_H_
