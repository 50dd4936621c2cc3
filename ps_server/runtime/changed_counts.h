// Says what a run counts differently after train_config.local_steps or train_config.batch_size have
// changed.
//
// The learning rate, the place in the training data and the end of training by num_epochs are
// functions of the version. They take each step for local_steps mini-batches of batch_size images
// by the present config, also a step that was trained with another one.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_CHANGED_COUNTS_H_
#define PUSHPULL_PS_SERVER_RUNTIME_CHANGED_COUNTS_H_

#include <cstdint>
#include <string>

#include "ps_server/runtime/job_spec.h"

namespace pushpull {

// What is known of the configs with which a run was trained so far, as protobuf text. Empty: not
// known.
struct EarlierConfigs {
  std::string of_checkpoint;  // of the newest checkpoint
  uint64_t checkpoint_step = 0;
  uint64_t num_images = 0;     // training images, as in FoundCheckpoint; 0: not known
  std::string of_last_server;  // of the server that served last, which made newer mapped state
};

// Returns what moves where `job` goes on from `version`, in whole sentences for the log. Empty: its
// config counts as the one with which that version was made, or that one is not known.
// Thread-safe.
std::string DescribeChangedCounts(const EarlierConfigs& earlier, const JobSpec& job,
                                  uint64_t version);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_CHANGED_COUNTS_H_
