#include "common/config/training_length.h"

#include <algorithm>
#include <limits>

namespace pushpull {
namespace {

// Progress lines and event files hold steps as int64.
constexpr uint64_t kMaxStep = std::numeric_limits<int64_t>::max();

}  // namespace

TrainingLimits LimitsOf(const config::TrainEvalPipelineConfig& config) {
  const config::TrainConfig& train = config.train_config();
  return {.num_steps = train.num_steps(),
          .num_epochs = config.train_input_reader().num_epochs(),
          .batch_size = std::max<uint64_t>(1, train.batch_size()),
          .local_steps = std::max<uint64_t>(1, train.local_steps())};
}

bool TrainingLength::TakeNumImages(uint64_t num_images) {
  if (!counts_images() || num_images_ != 0 || num_images == 0) return false;
  num_images_ = num_images;
  return true;
}

uint64_t TrainingLength::last_step() const {
  const uint64_t num_steps = std::min(limits_.num_steps, kMaxStep);
  if (num_images_ == 0) return num_steps;
  using Wide = unsigned __int128;  // the product may have up to 96 bits
  const Wide images = static_cast<Wide>(limits_.num_epochs) * num_images_;
  const Wide images_per_step = static_cast<Wide>(limits_.batch_size) * limits_.local_steps;
  const Wide steps = (images + images_per_step - 1) / images_per_step;
  const auto of_epochs = static_cast<uint64_t>(std::min<Wide>(steps, kMaxStep));
  return num_steps == 0 ? of_epochs : std::min(num_steps, of_epochs);
}

bool TrainingLength::EndsAt(uint64_t version) const {
  const uint64_t last = last_step();
  return last > 0 && version >= last;
}

}  // namespace pushpull
