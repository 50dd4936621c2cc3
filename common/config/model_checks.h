// Checks the values of model.classifier and model.ssd. What builds a model relies on the limits
// that are checked here and in the parts that this includes. Thread-safe functions.
#ifndef PUSHPULL_COMMON_CONFIG_MODEL_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_MODEL_CHECKS_H_

#include <string>
#include <vector>

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Both functions add every problem to `checker` that prevents the model from being built or
// trained: missing messages, values out of range, and settings that contradict each other.
// Unsupported fields are left to CheckSchemaMarks.
void CheckClassifier(const config::Classifier& classifier, FieldChecker* checker);
// CheckSsd also appends a sentence to `warnings` for each field that has no effect with its type.
void CheckSsd(const config::Ssd& ssd, FieldChecker* checker, std::vector<std::string>* warnings);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_MODEL_CHECKS_H_
