#include "ps_server/runtime/task_agreement.h"

#include <cstdint>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/train_dir.h"
#include "common/config/pipeline_config.h"
#include "common/model/variable_entries.h"
#include "ps_server/runtime/job_fingerprint.h"

namespace pushpull {

absl::StatusOr<JobSpec> ExternalJobAsTold(const ps::JobReply& told,
                                          const config::TrainEvalPipelineConfig& config, bool sync,
                                          int tasks) {
  PP_ASSIGN_OR_RETURN(const VariableLayout layout, LayoutOfEntries(told.variables()));
  return JobSpec::CreateExternal(config, sync, tasks, layout);
}

std::string DescribeJobDifference(const ps::JobReply& told, const JobSpec& job, int task_index) {
  if (told.layout_signature() != job.layout.signature() ||
      static_cast<int>(told.tasks()) != job.sharding.tasks()) {
    return absl::StrCat("trains another model or has ", told.tasks(), " tasks, this task ",
                        task_index, " was told ", job.sharding.tasks(),
                        "; give all tasks the same config and --tasks");
  }
  const absl::StatusOr<config::TrainEvalPipelineConfig> there =
      ParsePipelineConfig(told.pipeline_config(), "the config of ps task 0");
  if (!there.ok()) {
    return absl::StrCat("has a config that this program cannot read: ", there.status().message());
  }
  const std::string difference = DescribeTaskDifference(*there, job.config);
  if (difference.empty()) return "";
  return absl::StrCat("trains with other settings than this task ", task_index,
                      " was given (there -> here): ", difference,
                      "; give all tasks the same config and --sync");
}

absl::Status CheckSharedTrainDir(FileSystem& files, const std::string& train_dir,
                                 const std::string& run_id, int task_index) {
  const absl::StatusOr<uint64_t> epoch = ReadEpoch(files, train_dir);
  if (!epoch.ok()) return absl::UnavailableError(epoch.status().message());
  const absl::StatusOr<std::optional<std::string>> found = ReadRunId(files, train_dir);
  const bool is_of_other_run = found.ok() && found->has_value() && **found != run_id;
  if (*epoch > 0 && !is_of_other_run) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "train_dir ", train_dir, " of ps task ", task_index,
      is_of_other_run ? " belongs to another run" : " has no EPOCH",
      ", but task 0 has begun this run: give all ps tasks one train_dir, on a file system that "
      "they share"));
}

std::string DescribeDisagreement(const ps::JobReply& told, const TaskSettings& settings,
                                 FileSystem& files) {
  const absl::StatusOr<JobSpec> job =
      settings.config.model().has_external()
          ? ExternalJobAsTold(told, settings.config, settings.sync, settings.tasks)
          : JobSpec::Create(settings.config, settings.sync, settings.tasks);
  if (!job.ok()) {
    return absl::StrCat("has variables that this task ", settings.task_index,
                        " cannot train: ", job.status().message());
  }
  std::string difference = DescribeJobDifference(told, *job, settings.task_index);
  // Task 0 writes EPOCH when its first epoch begins.
  if (!difference.empty() || settings.train_dir.empty() || told.epoch() == 0) return difference;
  const absl::Status shared = CheckSharedTrainDir(
      files, settings.train_dir, absl::BytesToHexString(told.run_id()), settings.task_index);
  return shared.ok() ? "" : absl::StrCat("uses another train_dir: ", shared.message());
}

}  // namespace pushpull
