// Moving statistics of checkpoints that were trained with bias_corrected_moving_statistics. Such a
// checkpoint holds them as they were updated; evaluation and export correct them each time.
// Thread-safe functions without state.
#ifndef PUSHPULL_PS_SERVER_WARM_START_CORRECTED_STATISTICS_H_
#define PUSHPULL_PS_SERVER_WARM_START_CORRECTED_STATISTICS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "common/model/statistic_correction.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Returns, by the name of the variable, how the checkpoint's moving statistics are corrected.
// INVALID_ARGUMENT: they have to be, and this release refuses the checkpoint's pipeline config.
absl::StatusOr<std::map<std::string, StatisticCorrection>> CorrectionsOf(
    const Checkpoint& checkpoint);

// Returns FAILED_PRECONDITION if training went on from the checkpoint with `model` and a batch norm
// that is frozen there would use statistics that still need a correction: frozen statistics are
// used as they are. `model` is valid. Also returns the errors of CorrectionsOf.
absl::Status CheckFrozenStatistics(const Checkpoint& checkpoint,
                                   const config::DetectionModel& model);

// Returns FAILED_PRECONDITION if training went on from the checkpoint with `model` and the
// correction of a moving statistic would be wrong. It assumes that the statistic began at its
// initial value and was updated with the decay of today ever since. So the checkpoint's config has
// to correct it too, with the same decay and not frozen, unless the initial value has less than a
// thousandth of the weight by the decay of the checkpoint and by that of `model`: then the
// correction changes nothing. `model` is valid. Also returns the errors of ParseValidConfig for the
// checkpoint's config.
absl::Status CheckCorrectionHolds(const Checkpoint& checkpoint,
                                  const config::DetectionModel& model);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_CORRECTED_STATISTICS_H_
