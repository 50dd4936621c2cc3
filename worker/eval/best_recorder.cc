#include "worker/eval/best_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/train_dir.h"

namespace pushpull {
namespace {

// Says why the checkpoint that was measured does not count, because it is not there any more or not
// of the directory's run; an empty text: it counts. Returns an error if that is not known now.
absl::StatusOr<std::string> WhyGone(FileSystem& files, const std::string& directory,
                                    const BestCheckpoint& measured) {
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(files, directory, measured.step);
  if (absl::IsNotFound(manifest.status())) return "it was deleted";
  if (absl::IsDataLoss(manifest.status())) return std::string(manifest.status().message());
  PP_RETURN_IF_ERROR(manifest.status());
  if (!measured.run_id.empty() && measured.run_id != manifest->run_id) {
    return "that step is now one of another run";
  }
  if (measured.epoch.has_value() && *measured.epoch != manifest->epoch) {
    return "that step was published again later";
  }
  PP_ASSIGN_OR_RETURN(const std::optional<std::string> run_id, ReadRunId(files, directory));
  if (run_id.has_value() && manifest->run_id != *run_id) {
    return absl::StrCat("it is of another run than ", directory);
  }
  return "";
}

bool Replaces(const BestCheckpoint& measured, const std::optional<BestCheckpoint>& recorded) {
  if (!recorded.has_value() || recorded->metric != measured.metric) return true;
  return recorded->step == measured.step || measured.value > recorded->value;
}

}  // namespace

BestRecorder::BestRecorder(FileSystem* files, std::string checkpoint_dir, std::string eval_dir,
                           std::string config_digest)
    : files_(files),
      checkpoint_dir_(std::move(checkpoint_dir)),
      eval_dir_(std::move(eval_dir)),
      config_digest_(std::move(config_digest)) {}

void BestRecorder::Forget() {
  unsettled_.clear();
  best_.reset();
  waits_ = false;
}

bool BestRecorder::IsOfOtherConfig(const BestCheckpoint& recorded) const {
  return !config_digest_.empty() && !recorded.config_digest.empty() &&
         recorded.config_digest != config_digest_;
}

bool BestRecorder::MustBeMeasuredAnew(const std::optional<BestCheckpoint>& recorded) const {
  return recorded.has_value() && IsOfOtherConfig(*recorded) && recorded->step != given_up_;
}

absl::StatusOr<std::optional<uint64_t>> BestRecorder::StepToMeasureAnew() const {
  PP_ASSIGN_OR_RETURN(const std::optional<BestCheckpoint> recorded, ReadRecorded());
  if (!MustBeMeasuredAnew(recorded)) return std::nullopt;
  return recorded->step;
}

absl::Status BestRecorder::Settle() {
  waits_ = false;
  while (!unsettled_.empty()) {
    PP_ASSIGN_OR_RETURN(best_, ReadRecorded());
    auto next = unsettled_.begin();
    if (MustBeMeasuredAnew(best_)) {
      next = std::find_if(next, unsettled_.end(), [this](const BestCheckpoint& measured) {
        return measured.step == best_->step;
      });
      if (next == unsettled_.end()) {
        best_.reset();
        waits_ = true;
        return absl::OkStatus();
      }
    }
    const bool compares = best_.has_value() && !IsOfOtherConfig(*best_);
    if (!compares || Replaces(*next, best_)) {
      PP_RETURN_IF_ERROR(Record(*next));
    } else {
      PP_RETURN_IF_ERROR(AddDigest());
    }
    unsettled_.erase(next);
  }
  return absl::OkStatus();
}

absl::Status BestRecorder::AddDigest() {
  if (config_digest_.empty() || !best_->config_digest.empty()) return absl::OkStatus();
  best_->config_digest = config_digest_;
  return WriteBestCheckpoint(*files_, eval_dir_, *best_);
}

absl::StatusOr<std::optional<BestCheckpoint>> BestRecorder::ReadRecorded() const {
  absl::StatusOr<std::optional<BestCheckpoint>> recorded = ReadBestCheckpoint(*files_, eval_dir_);
  if (absl::IsDataLoss(recorded.status())) {
    LOG(WARNING) << "written anew: " << recorded.status().message();
    return std::nullopt;
  }
  PP_RETURN_IF_ERROR(recorded.status());
  if (!recorded->has_value()) return std::nullopt;
  PP_ASSIGN_OR_RETURN(const std::string gone, WhyGone(*files_, checkpoint_dir_, **recorded));
  if (gone.empty()) return recorded;
  LOG(INFO) << "the best checkpoint so far, of step " << (*recorded)->step
            << ", does not count any more: " << gone;
  return std::nullopt;
}

absl::Status BestRecorder::Record(BestCheckpoint measured) {
  // best_checkpoint protects one checkpoint from deletion, so it must not move on to one that is
  // already gone.
  PP_ASSIGN_OR_RETURN(const std::string gone, WhyGone(*files_, checkpoint_dir_, measured));
  if (!gone.empty()) {
    LOG(WARNING) << absl::StrFormat(
        "step %d has the best %s so far, %.4f, but its checkpoint cannot be kept as the best one: "
        "%s. If it was deleted during its evaluation, raise train_config.max_to_keep",
        measured.step, measured.metric, measured.value, gone);
    return absl::OkStatus();
  }
  measured.config_digest = config_digest_;
  PP_RETURN_IF_ERROR(MakeDirectories(*files_, eval_dir_));
  PP_RETURN_IF_ERROR(WriteBestCheckpoint(*files_, eval_dir_, measured));
  best_ = std::move(measured);
  return absl::OkStatus();
}

}  // namespace pushpull
