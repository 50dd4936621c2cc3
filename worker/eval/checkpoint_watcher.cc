#include "worker/eval/checkpoint_watcher.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/train_dir.h"
#include "common/config/pipeline_config.h"

namespace pushpull {
namespace {

std::string LineOf(uint64_t step, absl::string_view problem) {
  return absl::StrCat(CheckpointName(step), ": ", problem);
}

}  // namespace

CheckpointWatcher::CheckpointWatcher(FileSystem* files, std::string directory)
    : files_(files), directory_(std::move(directory)) {}

absl::Status CheckpointWatcher::Poll() {
  PP_ASSIGN_OR_RETURN(const std::vector<uint64_t> steps, ListCheckpoints(*files_, directory_));
  PP_ASSIGN_OR_RETURN(run_id_, ReadRunId(*files_, directory_));
  unreadable_.clear();
  const Entry* newest = Newest();
  std::map<uint64_t, Entry> entries;
  for (const uint64_t step : steps) {
    const auto known = entries_.find(step);
    // The stamp is older than the manifest that is read below, so no replacement is missed. The
    // newest manifest is read in any case: a file system over the network may serve old stamps.
    const std::string stamp = StampOf(step);
    if (known != entries_.end() && &known->second != newest && known->second.refusal.empty() &&
        !stamp.empty() && known->second.stamp == stamp) {
      entries[step] = known->second;
      continue;
    }
    const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(*files_, directory_, step);
    if (absl::IsNotFound(manifest.status())) continue;  // deleted since it was listed
    if (IsReadFailure(manifest.status())) {
      NoteUnreadable(step, manifest.status());
      if (known != entries_.end()) entries[step] = known->second;
      continue;
    }
    Entry& entry = entries[step];
    entry.stamp = stamp;
    if (!manifest.ok()) {
      entry.refusal = std::string(manifest.status().message());
      if (known == entries_.end() || known->second.refusal != entry.refusal) {
        LOG(WARNING) << CheckpointName(step) << " is not used: " << entry.refusal;
      }
      continue;
    }
    Describe(*manifest, &entry);
    if (known != entries_.end() && known->second.version == entry.version &&
        known->second.files == FilesOf(step)) {
      entry.refusal = known->second.refusal;
      entry.files = known->second.files;
    }
  }
  entries_ = std::move(entries);
  ReportOtherRuns();
  newest = Newest();
  if (newest != nullptr && newest->training_done) ReadLimits();
  return absl::OkStatus();
}

void CheckpointWatcher::Describe(const CheckpointManifest& manifest, Entry* entry) {
  entry->version = Version(manifest.epoch, manifest.step);
  entry->run_id = manifest.run_id;
  entry->training_done = manifest.training_done;
  entry->num_images = manifest.num_images;
}

bool CheckpointWatcher::IsTaken(const Entry& entry) const {
  return taken_.count({entry.run_id, *entry.version}) > 0;
}

bool CheckpointWatcher::IsOfOtherRun(const Entry& entry) const {
  return run_id_.has_value() && entry.version.has_value() && entry.run_id != *run_id_;
}

bool CheckpointWatcher::IsUsable(const Entry& entry) const {
  return entry.version.has_value() && entry.refusal.empty() && !IsOfOtherRun(entry);
}

std::vector<uint64_t> CheckpointWatcher::of_other_runs() const {
  std::vector<uint64_t> steps;
  for (const auto& [step, entry] : entries_) {
    if (IsOfOtherRun(entry)) steps.push_back(step);
  }
  return steps;
}

void CheckpointWatcher::ReportOtherRuns() {
  std::vector<uint64_t> others = of_other_runs();
  if (!std::includes(reported_.begin(), reported_.end(), others.begin(), others.end())) {
    LOG(WARNING) << "not evaluated, because they are of another run than " << directory_
                 << ", whose run is " << *run_id_ << ": the checkpoints of steps "
                 << absl::StrJoin(others, ", ");
  }
  reported_ = std::move(others);
}

void CheckpointWatcher::ReadLimits() {
  const std::string path = JoinPath(directory_, kTrainDirConfigName);
  const absl::StatusOr<std::string> text = ReadWholeFile(*files_, path);
  if (!text.ok()) return;
  const absl::StatusOr<config::TrainEvalPipelineConfig> config = ParsePipelineConfig(*text, path);
  if (config.ok()) limits_ = LimitsOf(*config);
}

const CheckpointWatcher::Entry* CheckpointWatcher::Newest() const {
  const Entry* newest = nullptr;
  for (const auto& [step, entry] : entries_) {
    if (!IsUsable(entry)) continue;
    if (newest == nullptr || *newest->version < *entry.version) newest = &entry;
  }
  return newest;
}

bool CheckpointWatcher::has_new() const { return !untaken().empty(); }

bool CheckpointWatcher::final_is_there() const {
  const Entry* newest = Newest();
  if (newest == nullptr || !newest->training_done) return false;
  if (!limits_.has_value()) return true;
  TrainingLength length(*limits_);
  length.TakeNumImages(newest->num_images);
  return length.EndsAt(newest->version->second);
}

bool CheckpointWatcher::final_was_taken() const { return final_is_there() && IsTaken(*Newest()); }

std::vector<uint64_t> CheckpointWatcher::untaken() const {
  std::vector<uint64_t> steps;
  for (const auto& [step, entry] : entries_) {
    if (IsUsable(entry) && !IsTaken(entry)) steps.push_back(step);
  }
  return steps;
}

std::vector<std::string> CheckpointWatcher::refusals() const {
  std::vector<std::string> reasons;
  for (const auto& [step, entry] : entries_) {
    if (!entry.refusal.empty() && !IsOfOtherRun(entry)) {
      reasons.push_back(LineOf(step, entry.refusal));
    }
  }
  return reasons;
}

std::vector<std::string> CheckpointWatcher::unreadable() const {
  std::vector<std::string> lines;
  for (const auto& [step, line] : unreadable_) lines.push_back(line);
  return lines;
}

std::vector<std::string> CheckpointWatcher::UnusableAfter(uint64_t step) const {
  std::map<uint64_t, std::string> lines(unreadable_.upper_bound(step), unreadable_.end());
  for (auto entry = entries_.upper_bound(step); entry != entries_.end(); ++entry) {
    const std::string& refusal = entry->second.refusal;
    if (!refusal.empty() && !IsOfOtherRun(entry->second))
      lines.emplace(entry->first, LineOf(entry->first, refusal));
  }
  std::vector<std::string> result;
  for (auto& [later, line] : lines) result.push_back(std::move(line));
  return result;
}

std::string CheckpointWatcher::StampOf(uint64_t step) const {
  const std::string folder = JoinPath(directory_, CheckpointName(step));
  const absl::StatusOr<std::string> identity = files_->FolderIdentity(folder);
  const absl::StatusOr<FileInfo> info = files_->GetInfo(folder);
  if (!identity.ok() || !info.ok()) return "";
  return absl::StrCat(*identity, ", ", info->modification_time);
}

std::string CheckpointWatcher::FilesOf(uint64_t step) const {
  const std::string folder = JoinPath(directory_, CheckpointName(step));
  const absl::StatusOr<std::vector<std::string>> names = files_->List(folder);
  if (!names.ok()) return "";
  std::string description;
  for (const std::string& name : *names) {
    const absl::StatusOr<FileInfo> info = files_->GetInfo(JoinPath(folder, name));
    if (!info.ok()) continue;
    absl::StrAppend(&description, name, " ", info->size_bytes, " ", info->modification_time, "\n");
  }
  return description;
}

void CheckpointWatcher::NoteUnreadable(uint64_t step, const absl::Status& status) {
  unreadable_[step] = LineOf(step, status.message());
  LOG(WARNING) << CheckpointName(step) << " cannot be read now: " << status.message();
}

void CheckpointWatcher::PutBack(const CheckpointManifest& manifest) {
  taken_.erase({manifest.run_id, Version(manifest.epoch, manifest.step)});
}

std::unique_ptr<Checkpoint> CheckpointWatcher::Take(Unreadable unreadable,
                                                    std::optional<uint64_t> first) {
  if (first.has_value() && unreadable_.count(*first) > 0) return nullptr;
  std::vector<Version> candidates;
  for (const uint64_t step : untaken()) candidates.push_back(*entries_[step].version);
  std::sort(candidates.rbegin(), candidates.rend());
  std::stable_partition(candidates.begin(), candidates.end(),
                        [&](const Version& version) { return version.second == first; });
  for (const auto& [epoch, step] : candidates) {
    const bool later_is_unreadable = unreadable_.upper_bound(step) != unreadable_.end();
    if (unreadable == Unreadable::kWait && later_is_unreadable) return nullptr;
    const std::string files = FilesOf(step);
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
        Checkpoint::Open(*files_, directory_, step);
    if (checkpoint.ok()) {
      // The checkpoint may have been replaced since the poll. The next poll sees that its stamp has
      // changed; until then its entry is that of the checkpoint that was opened.
      Entry& entry = entries_[step];
      Describe((*checkpoint)->manifest(), &entry);
      if (IsOfOtherRun(entry)) continue;
      taken_.insert({entry.run_id, *entry.version});
      return *std::move(checkpoint);
    }
    if (absl::IsNotFound(checkpoint.status())) {
      entries_.erase(step);
      continue;
    }
    if (IsReadFailure(checkpoint.status())) {
      NoteUnreadable(step, checkpoint.status());
      if (unreadable == Unreadable::kPassOver) continue;
      return nullptr;
    }
    entries_[step].refusal = std::string(checkpoint.status().message());
    entries_[step].files = files;
    LOG(WARNING) << CheckpointName(step) << " is not used: " << checkpoint.status().message();
  }
  return nullptr;
}

}  // namespace pushpull
