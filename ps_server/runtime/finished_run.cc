#include "ps_server/runtime/finished_run.h"

#include "absl/strings/escaping.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/train_dir.h"

namespace pushpull {

std::optional<EndOfRun> FinishedRun::Look(const JobSpec& job, absl::string_view run_id) {
  if (clock_->Now() < next_look_) return std::nullopt;
  next_look_ = clock_->Now() + patience_;
  // A checkpoint of another run may have been put into the folder.
  const auto found = ReadRunId(*files_, train_dir_);
  if (!found.ok() || !found->has_value()) return std::nullopt;
  if (!run_id.empty() && absl::HexStringToBytes(**found) != run_id) return std::nullopt;
  RecoveryRequest request;
  request.run_id = **found;
  request.layout = &job.layout;
  request.read_attempts = 1;
  request.stopped = stop_requested_;
  const auto is_end = [&job](const CheckpointManifest& manifest) {
    TrainingLength length(job.limits);
    length.TakeNumImages(manifest.num_images);
    return manifest.training_done && length.EndsAt(manifest.step);
  };
  // Task 0 may be away for hours, in which a checkpoint of gigabytes would be read again and again.
  const auto manifest = ReadNewestManifest(*files_, train_dir_, request);
  if (!manifest.ok() || !is_end(*manifest)) return std::nullopt;
  const auto newest = OpenNewestCheckpoint(*files_, train_dir_, request);
  if (!newest.ok() || !is_end((*newest)->manifest())) return std::nullopt;
  const CheckpointManifest& end = (*newest)->manifest();
  return EndOfRun{absl::HexStringToBytes(end.run_id), end.step, end.epoch};
}

}  // namespace pushpull
