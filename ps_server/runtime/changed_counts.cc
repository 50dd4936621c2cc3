#include "ps_server/runtime/changed_counts.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/config/pipeline_config.h"
#include "common/config/training_length.h"

namespace pushpull {
namespace {

uint64_t LastStep(const TrainingLimits& limits, uint64_t num_images) {
  TrainingLength length(limits);
  length.TakeNumImages(num_images);
  return length.last_step();
}

}  // namespace

std::string DescribeChangedCounts(const EarlierConfigs& earlier, const JobSpec& job,
                                  uint64_t version) {
  const bool saved = version == earlier.checkpoint_step && !earlier.of_checkpoint.empty();
  const std::string& text_before = saved ? earlier.of_checkpoint : earlier.of_last_server;
  if (version == 0 || text_before.empty()) return "";
  const auto config = ParsePipelineConfig(text_before, "earlier config");
  if (!config.ok()) return "";  // another release may have written it
  const TrainingLimits before = LimitsOf(*config);
  const TrainingLimits& now = job.limits;
  std::vector<std::string> fields;
  std::vector<std::string> counts;
  if (before.local_steps != now.local_steps) {
    fields.push_back(absl::StrCat("train_config.local_steps was ", before.local_steps, " and is ",
                                  now.local_steps, " now"));
    const uint64_t batches = version * before.local_steps;
    counts.push_back(absl::StrCat(version * now.local_steps, " mini-batches instead of ", batches));
    const float rate = job.LearningRateAt(version);
    const float expected = job.learning_rate.At(batches);
    if (rate != expected) {
      absl::StrAppend(&counts.back(), " (the next learning rate is ", rate, " instead of ",
                      expected, ")");
    }
  }
  if (before.batch_size != now.batch_size) {
    fields.push_back(absl::StrCat("train_config.batch_size was ", before.batch_size, " and is ",
                                  now.batch_size, " now"));
  }
  if (fields.empty()) return "";
  const uint64_t images_before = before.batch_size * before.local_steps;
  const uint64_t images_now = now.batch_size * now.local_steps;
  if (images_before != images_now) {
    counts.push_back(
        absl::StrCat(version * images_now, " images instead of ", version * images_before));
  }
  std::string text =
      absl::StrCat(absl::StrJoin(fields, ", "), ". The first ", version,
                   " steps count as if they had been trained with the present values: as ",
                   absl::StrJoin(counts, ", "), ".");
  TrainingLimits limits = now;
  limits.batch_size = before.batch_size;
  limits.local_steps = before.local_steps;
  const uint64_t end = LastStep(now, earlier.num_images);
  const uint64_t expected_end = LastStep(limits, earlier.num_images);
  if (end != expected_end) {
    absl::StrAppend(&text, " Training ends with step ", end, " instead of step ", expected_end,
                    ".");
  }
  return text;
}

}  // namespace pushpull
