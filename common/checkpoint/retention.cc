#include "common/checkpoint/retention.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/checkpoint/checkpoint_paths.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"

namespace pushpull {
namespace {

struct DatedCheckpoint {
  std::string run_id;  // empty: the manifest does not verify
  uint64_t epoch = 0;
  CheckpointAge age;
};

// Returns the age of a checkpoint, with readable = false if its manifest does not verify. Returns
// an error if the manifest cannot be read now (IsReadFailure).
absl::StatusOr<DatedCheckpoint> ReadAge(FileSystem& files, const std::string& directory,
                                        uint64_t step) {
  DatedCheckpoint result;
  result.age.step = step;
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(files, directory, step);
  if (IsReadFailure(manifest.status())) return manifest.status();
  result.age.readable = manifest.ok();
  if (!manifest.ok()) return result;
  result.run_id = manifest->run_id;
  result.epoch = manifest->epoch;
  result.age.since_start = absl::Seconds(manifest->saved_unix - manifest->run_started_unix);
  return result;
}

// Returns the ages of the run's checkpoints in the order that SelectForDeletion expects, and leaves
// those of other runs out. Sorting by epoch first makes a step that was reached again after a
// rollback newer than a higher step from before the rollback.
absl::StatusOr<std::vector<CheckpointAge>> ReadAges(FileSystem& files, const std::string& directory,
                                                    const std::vector<uint64_t>& steps,
                                                    absl::string_view run_id) {
  std::vector<DatedCheckpoint> dated;
  for (const uint64_t step : steps) {
    PP_ASSIGN_OR_RETURN(DatedCheckpoint checkpoint, ReadAge(files, directory, step));
    const bool is_of_other_run = checkpoint.age.readable && checkpoint.run_id != run_id;
    if (!is_of_other_run) dated.push_back(std::move(checkpoint));
  }
  const auto key = [](const DatedCheckpoint& checkpoint) {
    return std::make_tuple(checkpoint.age.readable, checkpoint.epoch, checkpoint.age.step);
  };
  std::sort(dated.begin(), dated.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::vector<CheckpointAge> ages;
  for (const DatedCheckpoint& checkpoint : dated) ages.push_back(checkpoint.age);
  return ages;
}

bool Contains(const std::vector<uint64_t>& steps, uint64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

// Returns the object in the file, which has an unsigned "step"; nullopt: the file does not exist.
absl::StatusOr<std::optional<nlohmann::json>> ReadStepFile(FileSystem& files,
                                                           const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(files, path);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  PP_RETURN_IF_ERROR(text.status());
  nlohmann::json body = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || !body.contains("step") || !body["step"].is_number_unsigned()) {
    return absl::DataLossError(absl::StrCat(path, R"(: expected {"step": n})"));
  }
  return body;
}

}  // namespace

std::vector<uint64_t> SelectForDeletion(const std::vector<CheckpointAge>& ages,
                                        const RetentionPolicy& policy,
                                        const std::vector<uint64_t>& pinned) {
  if (policy.max_to_keep == 0) return {};
  std::vector<uint64_t> readable;
  for (const CheckpointAge& age : ages) {
    if (age.readable) readable.push_back(age.step);
  }
  if (readable.size() < policy.max_to_keep) return {};
  const auto newest = readable.end() - static_cast<int64_t>(policy.max_to_keep);

  std::vector<uint64_t> result;
  int64_t last_period = 0;
  for (const CheckpointAge& age : ages) {
    bool first_of_period = false;
    if (age.readable && policy.keep_every < absl::InfiniteDuration() &&
        policy.keep_every > absl::ZeroDuration()) {
      absl::Duration rest;
      const int64_t period = absl::IDivDuration(age.since_start, policy.keep_every, &rest);
      first_of_period = period > last_period;
      last_period = std::max(last_period, period);
    }
    // A recent unreadable checkpoint stays, so that an administrator can look at it.
    const bool old = age.readable ? std::find(newest, readable.end(), age.step) == readable.end()
                                  : age.step < *newest;
    if (old && !first_of_period && !Contains(pinned, age.step)) result.push_back(age.step);
  }
  return result;
}

absl::StatusOr<std::optional<BestCheckpoint>> ReadBestCheckpoint(
    FileSystem& files, const std::string& eval_directory) {
  const std::string path = JoinPath(eval_directory, kBestCheckpointFile);
  PP_ASSIGN_OR_RETURN(const std::optional<nlohmann::json> read, ReadStepFile(files, path));
  if (!read.has_value()) return std::nullopt;
  const nlohmann::json& body = *read;
  if (!body.contains("metric") || !body["metric"].is_string() || !body.contains("value") ||
      !body["value"].is_number()) {
    return absl::DataLossError(
        absl::StrCat(path, R"(: expected {"step": n, "metric": name, "value": x})"));
  }
  BestCheckpoint best;
  best.step = body["step"].get<uint64_t>();
  best.metric = body["metric"].get<std::string>();
  best.value = body["value"].get<double>();
  if (const auto run_id = body.find("run_id"); run_id != body.end()) {
    if (!run_id->is_string()) {
      return absl::DataLossError(absl::StrCat(path, ": expected a string as run_id"));
    }
    best.run_id = run_id->get<std::string>();
  }
  if (const auto epoch = body.find("epoch"); epoch != body.end()) {
    if (!epoch->is_number_unsigned()) {
      return absl::DataLossError(absl::StrCat(path, ": expected a number from 0 as epoch"));
    }
    best.epoch = epoch->get<uint64_t>();
  }
  if (const auto digest = body.find("config_digest"); digest != body.end()) {
    if (!digest->is_string()) {
      return absl::DataLossError(absl::StrCat(path, ": expected a string as config_digest"));
    }
    best.config_digest = digest->get<std::string>();
  }
  return best;
}

absl::Status WriteBestCheckpoint(FileSystem& files, const std::string& eval_directory,
                                 const BestCheckpoint& best) {
  nlohmann::json body = {{"step", best.step}, {"metric", best.metric}, {"value", best.value}};
  if (!best.run_id.empty()) body["run_id"] = best.run_id;
  if (best.epoch.has_value()) body["epoch"] = *best.epoch;
  if (!best.config_digest.empty()) body["config_digest"] = best.config_digest;
  return WriteFileAtomically(files, JoinPath(eval_directory, kBestCheckpointFile),
                             JsonLine(body) + "\n");
}

absl::StatusOr<std::vector<uint64_t>> ReadPinnedSteps(FileSystem& files,
                                                      const std::string& directory) {
  const std::string eval_directory = JoinPath(directory, "eval");
  std::vector<uint64_t> pinned;
  // An evaluator that finds a checkpoint best writes best_checkpoint before it removes or replaces
  // evaluating, so reading them in the other order misses neither.
  PP_ASSIGN_OR_RETURN(const std::optional<nlohmann::json> evaluating,
                      ReadStepFile(files, JoinPath(eval_directory, kEvaluatingFile)));
  if (evaluating.has_value()) pinned.push_back((*evaluating)["step"].get<uint64_t>());
  PP_ASSIGN_OR_RETURN(const std::optional<BestCheckpoint> best,
                      ReadBestCheckpoint(files, eval_directory));
  if (best.has_value()) pinned.push_back(best->step);
  return pinned;
}

EvaluationRecord::EvaluationRecord(FileSystem* files, const std::string& eval_directory,
                                   uint64_t step)
    : files_(files), path_(JoinPath(eval_directory, kEvaluatingFile)), step_(step) {
  const nlohmann::json body = {{"step", step}};
  absl::Status written = MakeDirectories(*files, eval_directory);
  if (written.ok()) written = WriteFileAtomically(*files, path_, JsonLine(body) + "\n");
  LOG_IF(WARNING, !written.ok()) << "the checkpoint of step " << step
                                 << " is not protected from deletion while it is evaluated: "
                                 << written.message();
}

EvaluationRecord::~EvaluationRecord() {
  const absl::StatusOr<std::optional<nlohmann::json>> record = ReadStepFile(*files_, path_);
  if (record.ok() && record->has_value() && (**record)["step"] != step_) return;
  const absl::Status removed = files_->RemoveFile(path_);
  LOG_IF(WARNING, !removed.ok() && !absl::IsNotFound(removed)) << removed.message();
}

absl::Status ApplyRetention(FileSystem& files, const std::string& directory,
                            absl::string_view run_id, const RetentionPolicy& policy,
                            const StopRequested& stopped) {
  PP_ASSIGN_OR_RETURN(const std::vector<uint64_t> steps, ListCheckpoints(files, directory));
  PP_ASSIGN_OR_RETURN(const std::vector<CheckpointAge> ages,
                      ReadAges(files, directory, steps, run_id));
  if (ages.empty()) return absl::OkStatus();
  // Nothing is deleted while the pinned steps cannot be read, because it could be one of these.
  PP_ASSIGN_OR_RETURN(const std::vector<uint64_t> pinned, ReadPinnedSteps(files, directory));
  const std::vector<uint64_t> doomed = SelectForDeletion(ages, policy, pinned);
  if (doomed.empty()) return absl::OkStatus();
  PP_RETURN_IF_ERROR(Checkpoint::Open(files, directory, ages.back().step, stopped).status());
  for (const uint64_t step : doomed) {
    if (stopped()) return absl::CancelledError("stopped while old checkpoints were being deleted");
    const std::string path = JoinPath(directory, CheckpointName(step));
    const std::string trash = TrashPath(directory, path);
    PP_RETURN_IF_ERROR(files.Rename(path, trash));
    // An evaluator may have begun with this checkpoint since `pinned` was read. Before it names the
    // checkpoint as the best, it looks whether the folder is there: if it was, the evaluator's
    // record was written before the rename and is found now.
    const absl::StatusOr<std::vector<uint64_t>> pinned_now = ReadPinnedSteps(files, directory);
    if (!pinned_now.ok() || Contains(*pinned_now, step)) {
      PP_RETURN_IF_ERROR(files.Rename(trash, path));
      PP_RETURN_IF_ERROR(pinned_now.status());
      continue;
    }
    PP_RETURN_IF_ERROR(RemoveRecursively(files, trash));
    VLOG(1) << "removed " << path;
  }
  return absl::OkStatus();
}

}  // namespace pushpull
