// Moving statistics of checkpoints that were trained with bias_corrected_moving_statistics. Such a
// checkpoint holds them as they were updated; evaluation and export correct them each time.
// Thread-safe functions without state.
#ifndef PUSHPULL_PS_SERVER_WARM_START_CORRECTED_STATISTICS_H_
#define PUSHPULL_PS_SERVER_WARM_START_CORRECTED_STATISTICS_H_

#include <cstdint>
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

// Moving statistics from which a run goes on.
struct TrainedStatistics {
  std::string pipeline_config;  // with which they were trained, as text
  uint64_t updates = 0;         // of each statistic
  std::string place;            // for messages, such as the path of the checkpoint that holds them
};

// Returns what is known of the checkpoint's statistics.
TrainedStatistics StatisticsOf(const Checkpoint& checkpoint);

// Checks that training may go on from `trained` with `model`, which is valid. FAILED_PRECONDITION:
// `model` freezes a batch norm whose statistics still need a correction; frozen statistics are used
// as they are. INVALID_ARGUMENT: this release refuses trained.pipeline_config although it corrects
// statistics.
absl::Status CheckFrozenStatistics(const TrainedStatistics& trained,
                                   const config::DetectionModel& model);

// Checks that training may go on from `trained` with `model`. FAILED_PRECONDITION: the correction
// of a moving statistic would be wrong. A correction assumes that the statistic began at its
// initial value and was updated with the decay of today ever since. So trained.pipeline_config has
// to correct it too, with the same decay and not frozen, unless the initial value has less than a
// thousandth of the weight by the decay there and by that of `model`: then the correction changes
// nothing. `model` is valid. INVALID_ARGUMENT: as for CheckFrozenStatistics.
absl::Status CheckCorrectionHolds(const TrainedStatistics& trained,
                                  const config::DetectionModel& model);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_CORRECTED_STATISTICS_H_
