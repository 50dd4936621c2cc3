// TrainingFigures is the progress of the training, for the progress line, the metrics and the
// status page.
#ifndef PUSHPULL_PS_SERVER_MONITORING_TRAINING_FIGURES_H_
#define PUSHPULL_PS_SERVER_MONITORING_TRAINING_FIGURES_H_

#include <cstdint>
#include <map>

namespace pushpull {

struct TrainingFigures {
  uint64_t step = 0;
  double loss = 0.0;       // mean over the samples of the last step
  double accuracy = -1.0;  // of the last step; negative: none reported
  double learning_rate = 0.0;
  double images_per_second = 0.0;  // over the last seconds
  double steps_per_second = 0.0;
  uint64_t staleness = 0;

  // Sums since the server started. A reader gets means from the differences between two reads.
  uint64_t images = 0;
  uint64_t losses = 0;    // number of steps with a finite loss
  double loss_sum = 0.0;  // over the steps that `losses` counts
  // Loss of each clone's last contribution, by worker_id.
  std::map<uint32_t, double> clone_loss;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_TRAINING_FIGURES_H_
