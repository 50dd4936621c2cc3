#include "ps_server/runtime/run_files.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/config/pipeline_config.h"
#include "common/trace/event_files.h"
#include "ps_server/store/state_of_other_tasks.h"

namespace pushpull {

absl::Status RunFiles::OpenTrainDir(const std::string& path, std::string config_text,
                                    std::string graph_def) {
  PP_ASSIGN_OR_RETURN(std::shared_ptr<TrainDir> train_dir, TrainDir::Open(files_, path));
  return OpenTrainDir(std::move(train_dir), std::move(config_text), std::move(graph_def));
}

absl::Status RunFiles::OpenTrainDir(std::shared_ptr<TrainDir> train_dir, std::string config_text,
                                    std::string graph_def) {
  train_dir_ = std::move(train_dir);
  config_text_ = std::move(config_text);
  graph_def_ = std::move(graph_def);
  PP_ASSIGN_OR_RETURN(const std::optional<std::string> run_id,
                      ReadRunId(*files_, train_dir_->path()));
  run_id_is_new_ = !run_id.has_value();
  run_id_ = run_id.has_value() ? *run_id : NewRunId();
  PP_ASSIGN_OR_RETURN(stored_epoch_, ReadEpoch(*files_, train_dir_->path()));
  PP_ASSIGN_OR_RETURN(scaled_replicas_, train_dir_->ReadReplicas());
  absl::StatusOr<std::string> config =
      ReadWholeFile(*files_, JoinPath(train_dir_->path(), kTrainDirConfigName));
  if (absl::IsNotFound(config.status())) return absl::OkStatus();
  PP_RETURN_IF_ERROR(config.status());
  last_config_ = *std::move(config);
  return absl::OkStatus();
}

void RunFiles::AddShard(VariableStore* store) { stores_.push_back(store); }

absl::Status RunFiles::PersistEpoch(uint64_t epoch) {
  absl::MutexLock lock(&mutex_);
  // A server that has lost its lock while it was frozen must not write here: a higher epoch would
  // end the server that has taken over.
  PP_ASSIGN_OR_RETURN(const uint64_t stored, ReadEpoch(*files_, train_dir_->path()));
  if (stored >= epoch) {
    return absl::AbortedError(absl::StrCat(train_dir_->path(), "/EPOCH holds ", stored,
                                           ", expected less than ", epoch,
                                           "; another server has taken the folder over"));
  }
  train_dir_->MakeRoom(epoch);
  if (run_id_is_new_) {
    PP_RETURN_IF_ERROR(train_dir_->WriteRunId(run_id_));
    run_id_is_new_ = false;
  }
  PP_RETURN_IF_ERROR(train_dir_->WriteEpoch(epoch));
  persisted_epoch_ = epoch;
  const absl::Status removed = train_dir_->RemovePendingBefore(epoch);
  if (removed.ok()) return removed;
  return Annotated(removed, absl::StrCat("what older epochs have not published cannot be removed: ",
                                         removed.message()));
}

absl::Status RunFiles::PersistReplicas(uint32_t num_replicas) {
  absl::MutexLock lock(&mutex_);
  PP_ASSIGN_OR_RETURN(const uint64_t stored, ReadEpoch(*files_, train_dir_->path()));
  if (stored != persisted_epoch_) {
    return absl::FailedPreconditionError(absl::StrCat(train_dir_->path(), "/EPOCH holds ", stored,
                                                      ", expected ", persisted_epoch_,
                                                      "; another server has written it"));
  }
  return train_dir_->WriteReplicas(num_replicas);
}

absl::Status RunFiles::ShardRestored(int shard) {
  absl::MutexLock lock(&mutex_);
  PP_RETURN_IF_ERROR(Carry(state_.Handle(run_state_event::ShardRestored{shard})));
  return Carry(state_.Handle(run_state_event::StateFileAdopted{shard}));
}

absl::Status RunFiles::JobRestored() {
  absl::MutexLock lock(&mutex_);
  return Carry(state_.Handle(run_state_event::JobRestored{}));
}

void RunFiles::End(std::optional<uint64_t> verified_step) {
  absl::MutexLock lock(&mutex_);
  run_state_event::Ending ending;
  ending.verified_step = verified_step;
  for (const VariableStore* store : stores_) ending.newest_versions.push_back(store->newest());
  const absl::Status carried = Carry(state_.Handle(ending));
  LOG_IF(WARNING, !carried.ok()) << carried.message();
  if (events_ == nullptr) return;
  const absl::Status closed = events_->Close();
  LOG_IF(WARNING, !closed.ok()) << closed.message();
}

bool RunFiles::all_restored() const {
  absl::MutexLock lock(&mutex_);
  return state_.all_restored();
}

EventWriter* RunFiles::events() const {
  absl::MutexLock lock(&mutex_);
  return events_.get();
}

absl::Status RunFiles::Carry(const std::vector<RunStateAction>& actions) {
  for (const RunStateAction& action : actions) {
    switch (action.kind) {
      case RunStateAction::Kind::kAdoptStateFile:
        PP_RETURN_IF_ERROR(stores_[action.shard]->AdoptFile());
        break;
      case RunStateAction::Kind::kWriteTrainDir:
        PP_RETURN_IF_ERROR(WriteTrainDir());
        break;
      case RunStateAction::Kind::kRemoveStateFiles:
        RemoveStateFiles();
        break;
      case RunStateAction::Kind::kKeepStateFiles:
        LogKept(action.reason);
        break;
    }
  }
  return absl::OkStatus();
}

void RunFiles::LogKept(const std::string& reason) const {
  const bool in_files = std::all_of(stores_.begin(), stores_.end(),
                                    [](const auto* store) { return store->is_file(); });
  if (in_files) {
    LOG(INFO) << "mapped state stays for the next start: " << reason;
  } else if (!state_.all_restored()) {
    LOG(INFO) << "mapped state of an earlier server, if there is any, stays: " << reason;
  } else {
    LOG(WARNING) << "the variables are lost with this process, because they are in anonymous "
                 << "memory, and the next server goes back to the newest checkpoint: " << reason;
  }
}

absl::Status RunFiles::RenameGivenUp() {
  if (!last_step_.has_value()) return absl::OkStatus();
  PP_ASSIGN_OR_RETURN(const std::vector<uint64_t> steps,
                      ListCheckpoints(*files_, train_dir_->path()));
  for (const uint64_t step : steps) {
    if (step <= *last_step_) continue;
    const std::string from = JoinPath(train_dir_->path(), CheckpointName(step));
    std::string to = absl::StrCat(from, ".given-up");
    for (int i = 2; files_->GetInfo(to).ok(); ++i) to = absl::StrCat(from, ".given-up-", i);
    PP_RETURN_IF_ERROR(files_->Rename(from, to));
    LOG(WARNING) << "the checkpoint of step " << step << " is given up and kept as " << to;
  }
  return files_->SyncDirectory(train_dir_->path());
}

void RunFiles::WarnOfLostSteps() const {
  const bool begins_at_0 = std::all_of(stores_.begin(), stores_.end(), [](const auto* store) {
    return store->newest().value_or(0) == 0;
  });
  const std::string& folder = train_dir_->path();
  const auto checkpoints = ListCheckpoints(*files_, folder);
  if (!begins_at_0 || !checkpoints.ok() || !checkpoints->empty()) return;
  const std::string events = FindTrainedEvents(*files_, folder);
  if (events.empty()) return;
  LOG(WARNING)
      << "a run has trained in " << folder << ", as " << events << " shows, but there is "
      << "neither a checkpoint of it nor mapped state, so training begins at step 0. To go "
      << "on with it instead, stop this server, bring back its ckpt-* folders, or start "
      << "with its --state_dir on its machine";
}

absl::Status RunFiles::WriteTrainDir() {
  train_dir_->Sweep();
  WarnOfLostSteps();
  PP_RETURN_IF_ERROR(RenameGivenUp());  // also a checkpoint that Sweep has put back
  PP_RETURN_IF_ERROR(SetStateAside(*files_, state_of_other_tasks_));
  PP_RETURN_IF_ERROR(WriteFileAtomically(*files_, JoinPath(train_dir_->path(), kTrainDirConfigName),
                                         config_text_));
  events_ = EventWriter::CreateAtFirstFlush(files_, train_dir_->path());
  if (!graph_def_.empty()) events_->AddGraph(graph_def_);
  events_->Flush().IgnoreError();  // logged there; training does not need the file
  return absl::OkStatus();
}

void RunFiles::RemoveStateFiles() {
  for (VariableStore* store : stores_) {
    const absl::Status removed = store->RemoveFile();
    LOG_IF(WARNING, !removed.ok()) << removed.message();
  }
}

}  // namespace pushpull
