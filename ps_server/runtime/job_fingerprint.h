// The fingerprint of what a clone computes by. A server that comes back with another one has to
// refuse the clones of the earlier one, because they would compute other losses, or push in a way
// that the new server does not understand. Pure functions.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_JOB_FINGERPRINT_H_
#define PUSHPULL_PS_SERVER_RUNTIME_JOB_FINGERPRINT_H_

#include <string>

#include "protos/pipeline.pb.h"

namespace pushpull {

// Removes the fields that no clone computes by, because only the server or the evaluator reads
// them. They may change while workers run. A field that the list in the source does not name stays.
config::TrainEvalPipelineConfig WithoutServersPart(config::TrainEvalPipelineConfig config);

// Returns a SHA-256 digest (32 bytes) of the mode, the seed, the number of ps tasks and
// WithoutServersPart(config).
std::string JobFingerprint(const config::TrainEvalPipelineConfig& config, bool sync, int tasks);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_JOB_FINGERPRINT_H_
