// What is known of the training's progress: the progress line, the metrics and the status page read
// it.
#ifndef PUSHPULL_PS_SERVER_WATCH_TRAINING_FIGURES_H_
#define PUSHPULL_PS_SERVER_WATCH_TRAINING_FIGURES_H_

#include <cstdint>
#include <map>

namespace pushpull {

struct TrainingFigures {
  uint64_t step = 0;
  double loss = 0.0;       // of the last step, mean over its samples
  double accuracy = -1.0;  // negative: none reported
  double learning_rate = 0.0;
  double images_per_second = 0.0;  // of the last seconds
  double steps_per_second = 0.0;
  uint64_t staleness = 0;

  // Sums since the server started. The difference of two looks gives the mean between them.
  uint64_t images = 0;
  uint64_t losses = 0;    // steps with a finite loss
  double loss_sum = 0.0;  // over them
  // By worker_id: of its last contribution.
  std::map<uint32_t, double> worker_loss;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WATCH_TRAINING_FIGURES_H_
