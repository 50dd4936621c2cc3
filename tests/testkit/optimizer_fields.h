// OptimizerFields lists the optimizers of the config, so that a test covers those that are added.
#ifndef PUSHPULL_TESTS_TESTKIT_OPTIMIZER_FIELDS_H_
#define PUSHPULL_TESTS_TESTKIT_OPTIMIZER_FIELDS_H_

#include <vector>

#include "google/protobuf/descriptor.h"

#include "protos/pipeline.pb.h"

namespace pushpull {

// Returns the fields of the oneof in config::Optimizer.
inline std::vector<const google::protobuf::FieldDescriptor*> OptimizerFields() {
  const auto* const kinds = config::Optimizer::descriptor()->FindOneofByName("optimizer");
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  for (int i = 0; i < kinds->field_count(); ++i) fields.push_back(kinds->field(i));
  return fields;
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_OPTIMIZER_FIELDS_H_
