// Walks through a config. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_SET_VALUES_H_
#define PUSHPULL_COMMON_CONFIG_SET_VALUES_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace pushpull {

// A value that a config sets: of a field, or an element of a repeated field. Never a message.
struct SetValue {
  const google::protobuf::Message& message;  // to which the field belongs
  const google::protobuf::FieldDescriptor& field;
  int index;                // of the element; 0 if the field is not repeated
  const std::string& path;  // "train_config.batch_size", "data_augmentation_options[2].scale"
};

// Visits the values that are set in `message` and in the messages in it, in the order of the
// schema. `enter` is called for each field that is set, with its path without an index. If it
// returns false, the field and what is in it are skipped.
void ForEachSetValue(
    const google::protobuf::Message& message,
    absl::FunctionRef<bool(const google::protobuf::Message& message,
                           const google::protobuf::FieldDescriptor& field, const std::string& path)>
        enter,
    absl::FunctionRef<void(const SetValue&)> visit);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_SET_VALUES_H_
