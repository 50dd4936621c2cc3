// TrainingFigures is the progress of the training, for the progress line, the metrics and the
// status page. LossSum is for the status page's history.
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

  // Counts since the server started.
  uint64_t images = 0;
  uint64_t losses = 0;  // number of steps with a finite loss
  // Loss of each clone's last contribution, by worker_id.
  std::map<uint32_t, double> clone_loss;
};

// The losses of some steps. A sum over the whole run would lose the digits of all later losses once
// it holds a very large one.
struct LossSum {
  uint64_t steps = 0;  // with a finite loss
  double sum = 0.0;    // of the losses of these steps
  void Add(const LossSum& other) {
    steps += other.steps;
    sum += other.sum;
  }
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_TRAINING_FIGURES_H_
