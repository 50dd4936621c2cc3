// Warns of fields that have no effect, or a different one than in TensorFlow, because of other
// fields. Fields that never have an effect are marked (no_effect) in the schema
// (common/config/schema_marks.h). Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_EFFECT_WARNINGS_H_
#define PUSHPULL_COMMON_CONFIG_EFFECT_WARNINGS_H_

#include <string>
#include <vector>

#include "protos/pipeline.pb.h"

namespace pushpull {

// Appends one sentence to `warnings` for each field whose value asks for something that this config
// does not do, or does otherwise than some of TensorFlow's programs. A field at its default asks
// for nothing. `sync` says whether training is synchronous.
void WarnAboutEffects(const config::TrainEvalPipelineConfig& config, bool sync,
                      std::vector<std::string>* warnings);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_EFFECT_WARNINGS_H_
