// What a ps task in a process of its own must have in common with task 0. The start of such a task
// and --check_cluster compare the same. Thread-safe functions; those that read train_dir block on
// the disk.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_TASK_AGREEMENT_H_
#define PUSHPULL_PS_SERVER_RUNTIME_TASK_AGREEMENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "protos/parameter_server.pb.h"
#include "protos/pipeline.pb.h"
#include "ps_server/runtime/job_spec.h"

namespace pushpull {

// What a ps task was given by its flags.
struct TaskSettings {
  config::TrainEvalPipelineConfig config;  // valid
  bool sync = true;
  int tasks = 1;
  int task_index = 1;
  std::string train_dir = {};  // empty: unknown, so it is not compared
};

// Returns the job of an external model with the variables that task 0 has told of. Returns the
// errors of LayoutOfEntries and JobSpec::CreateExternal.
absl::StatusOr<JobSpec> ExternalJobAsTold(const ps::JobReply& told,
                                          const config::TrainEvalPipelineConfig& config, bool sync,
                                          int tasks);

// Compares the model, the number of tasks and the settings that all tasks need alike. Returns how
// task 0, which has told of `told`, differs from `job`, as the rest of a sentence about task 0.
// Empty: it does not differ. task_index: of this task, for the message.
std::string DescribeJobDifference(const ps::JobReply& told, const JobSpec& job, int task_index);

// UNAVAILABLE: train_dir is not the one of task 0, which has written its EPOCH there before it
// restores shards. No checkpoint could be complete. run_id: of task 0, 32 hex digits. task_index:
// of this task, for the message.
absl::Status CheckSharedTrainDir(FileSystem& files, const std::string& train_dir,
                                 const std::string& run_id, int task_index);

// Compares all of that, for --check_cluster. Returns the rest of a sentence about task 0, as
// DescribeJobDifference does. Empty: nothing differs.
std::string DescribeDisagreement(const ps::JobReply& told, const TaskSettings& settings,
                                 FileSystem& files);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_TASK_AGREEMENT_H_
