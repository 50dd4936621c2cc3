// Says what a run counts differently after train_config.local_steps or train_config.batch_size have
// changed.
//
// The learning rate, the place in the training data and the end of training by num_epochs are
// functions of the version. They count every step as local_steps mini-batches of batch_size images
// by the present config, even the steps that were trained with an earlier config.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_CHANGED_COUNTS_H_
#define PUSHPULL_PS_SERVER_RUNTIME_CHANGED_COUNTS_H_

#include <cstdint>
#include <string>

#include "ps_server/runtime/job_spec.h"

namespace pushpull {

// The configs with which a run was trained so far, as protobuf text. An empty text is not known.
struct EarlierConfigs {
  std::string of_checkpoint;  // of the newest checkpoint
  uint64_t checkpoint_step = 0;
  uint64_t num_images = 0;  // training images, as in FoundCheckpoint; 0: not known
  // The config of the server that served last, which made newer mapped state.
  std::string of_last_server;
};

// Compares the config of `job` with the one that made `version`, from which the job goes on.
// Returns which counts differ by it: mini-batches, the next learning rate, images, and the step
// with which training ends, in whole sentences for the log. Returns an empty string if none
// differs, or if the config that made the version is not known. Thread-safe.
std::string DescribeChangedCounts(const EarlierConfigs& earlier, const JobSpec& job,
                                  uint64_t version);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_CHANGED_COUNTS_H_
