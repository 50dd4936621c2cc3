// Checks the values of model.ssd.feature_extractor. Thread-safe functions.
#ifndef PUSHPULL_COMMON_CONFIG_EXTRACTOR_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_EXTRACTOR_CHECKS_H_

#include <string>
#include <vector>

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Returns the number of feature maps that the predictors read, or 0 if the levels of the config's
// feature pyramid do not exist.
int NumFeatureMaps(const config::Ssd& ssd);

// Adds every problem of the feature extractor to `checker`, also where it does not fit the size of
// the image, and a sentence to `warnings` for each field that has no effect with its type.
void CheckExtractor(const config::Ssd& ssd, FieldChecker* checker,
                    std::vector<std::string>* warnings);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_EXTRACTOR_CHECKS_H_
