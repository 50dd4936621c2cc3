// Compares the settings of the processes of a job. Pure functions.
//
// The fingerprint of a job covers everything that decides what its clones compute. If a server is
// started again and the fingerprint is another one, it has to refuse the clones of the earlier
// server: they would compute other losses, or push in a way that this server does not understand.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_JOB_FINGERPRINT_H_
#define PUSHPULL_PS_SERVER_RUNTIME_JOB_FINGERPRINT_H_

#include <string>

#include "protos/pipeline.pb.h"

namespace pushpull {

// Removes the fields that do not change what clones compute, because only the server or the
// evaluator reads them. They may change while workers run. Every field that the source does not
// list stays.
config::TrainEvalPipelineConfig WithoutServerFields(config::TrainEvalPipelineConfig config);

// Returns a SHA-256 digest (32 bytes) of the mode, the seed, the number of ps tasks and
// WithoutServerFields(config).
std::string JobFingerprint(const config::TrainEvalPipelineConfig& config, bool sync, int tasks);

// Returns the first difference between the configs of two ps tasks in a field that all tasks of a
// job need alike, because each of them updates a part of the variables: "modified:
// train_config.seed: 1 -> 2" where `there` has 1 and `here` has 2. Empty: there is none.
std::string DescribeTaskDifference(const config::TrainEvalPipelineConfig& there,
                                   const config::TrainEvalPipelineConfig& here);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_JOB_FINGERPRINT_H_
