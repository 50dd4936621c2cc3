// Tested by tests/ps_server/runtime/server_test.cc.
// Tested by tests/ps_server/runtime/run_files_test.cc.
#include "ps_server/runtime/server_core.h"

#include <filesystem>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/model/graph_def.h"
#include "common/model/model_layout.h"
#include "ps_server/core/membership.h"
#include "ps_server/store/state_of_other_tasks.h"

namespace pushpull {
namespace {

uint64_t NewBootId() {
  absl::BitGen random;
  return absl::Uniform<uint64_t>(absl::IntervalClosed, random, 1, ~uint64_t{0});
}

}  // namespace

ServerCore::ServerCore(JobSpec job, ServerCoreOptions options, FileSystem* files, Clock* clock)
    : job_(std::move(job)),
      options_(std::move(options)),
      files_(files),
      clock_(clock),
      run_files_(files, options_.num_tasks),
      finished_run_(files, clock, options_.train_dir, options_.lease, options_.stop_requested) {}

ServerCore::~ServerCore() { StopThreads(); }

void ServerCore::StopThreads() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    end_changed_.NotifyAll();
  }
  if (drain_.joinable()) drain_.join();
  // All are stopped before any is destroyed: a thread of one shard may call another shard
  // through the coordinator.
  if (coordinator_ != nullptr) coordinator_->Stop();
  for (const auto& shard : shards_) shard->Stop();
}

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Open(JobSpec job, ServerCoreOptions options,
                                                             FileSystem* files, Clock* clock) {
  std::unique_ptr<ServerCore> core(
      new ServerCore(std::move(job), std::move(options), files, clock));
  core->pool_ = std::make_unique<ThreadPool>(core->options_.apply_threads);
  core->run_id_ = core->options_.run_id;
  if (core->IsCoordinator()) {
    PP_RETURN_IF_ERROR(core->OpenTrainDir());
    PP_RETURN_IF_ERROR(core->OpenCoordinator());
  } else {
    core->WarnOfStateOfOtherTasks();
  }
  if (!core->options_.state_dir.empty()) {
    // A shard says what is wrong with a folder that cannot be made.
    core->state_folder_ = OutputFolder::Make(files, core->options_.state_dir).value_or(nullptr);
  }
  for (int i = 0; i < core->options_.num_tasks; ++i) {
    PP_RETURN_IF_ERROR(core->OpenShard(core->options_.first_task + i));
  }
  return core;
}

absl::Status ServerCore::OpenTrainDir() {
  std::string graph;  // of an external model: unknown
  if (!job_.declared.has_value()) {
    graph = MakeGraphDef(BuildNetworkSpec(job_.config.model())).SerializeAsString();
  }
  PP_RETURN_IF_ERROR(
      options_.locked_train_dir == nullptr
          ? run_files_.OpenTrainDir(options_.train_dir, job_.config_text, std::move(graph))
          : run_files_.OpenTrainDir(options_.locked_train_dir, job_.config_text, std::move(graph)));
  run_id_ = absl::HexStringToBytes(run_files_.run_id());
  if (options_.from_checkpoint && options_.from_step.has_value()) {
    run_files_.GiveUpCheckpointsAfter(*options_.from_step);
  }
  checkpointer_ =
      std::make_unique<Checkpointer>(&job_, files_, options_.train_dir, run_files_.run_id(),
                                     options_.from_checkpoint ? options_.from_step : std::nullopt);
  monitor_ = std::make_unique<TrainingMonitor>(&job_, clock_);
  // Looking for a checkpoint now refuses a folder of another model, or one with only damaged
  // checkpoints, before anything in the folder changes.
  PP_ASSIGN_OR_RETURN(const auto found, checkpointer_->FindCheckpoint(options_.stop_requested));
  if (!found.has_value() && options_.from_checkpoint) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", options_.train_dir,
                                            " to go back to; start without --from_checkpoint to go "
                                            "on from the mapped state, or to begin "
                                            "at step 0 if there is none"));
  }
  if (options_.from_checkpoint && !job_.sync) {
    // The coordinator checks this too, but after the shards have dropped their newer versions.
    PP_RETURN_IF_ERROR(CheckNumReplicas(found->num_replicas, options_.num_replicas));
  }
  earlier_configs_.of_last_server = run_files_.last_config();
  if (found.has_value()) {
    checkpoint_step_ = found->id.version;
    run_files_.NoteEpoch(found->id.epoch);
    earlier_configs_.of_checkpoint = checkpointer_->found_config();
    earlier_configs_.checkpoint_step = found->id.version;
    earlier_configs_.num_images = found->num_images;
  }
  return CheckStateOfOtherTasks();
}

absl::StatusOr<std::vector<StateFileInfo>> ServerCore::StateOfOtherTasks() const {
  PP_ASSIGN_OR_RETURN(const StateOwner owner, StateOwnerOf(/*shard=*/0));
  absl::StatusOr<std::vector<StateFileInfo>> others =
      FindStateOfOtherTasks(*files_, options_.state_dir, owner);
  if (others.ok()) return others;
  // VariableStore::Open decides whether the server can do without the folder.
  LOG(WARNING) << "cannot look for state files of another number of tasks: "
               << others.status().message();
  return std::vector<StateFileInfo>();
}

absl::Status ServerCore::CheckStateOfOtherTasks() {
  PP_ASSIGN_OR_RETURN(std::vector<StateFileInfo> others, StateOfOtherTasks());
  const absl::Status lost = CheckForLostSteps(others, job_.sharding.tasks(), checkpoint_step_);
  run_files_.SetStateAsideWhenRestored(std::move(others));
  return options_.from_checkpoint ? absl::OkStatus() : lost;
}

void ServerCore::WarnOfStateOfOtherTasks() const {
  const absl::StatusOr<std::vector<StateFileInfo>> others = StateOfOtherTasks();
  if (!others.ok() || options_.from_checkpoint) return;  // OpenShard returns the error too
  const absl::StatusOr<std::vector<uint64_t>> steps = ListCheckpoints(*files_, options_.train_dir);
  std::optional<uint64_t> durable_step;
  if (steps.ok() && !steps->empty()) durable_step = steps->back();
  const absl::Status lost = CheckForLostSteps(*others, job_.sharding.tasks(), durable_step);
  LOG_IF(WARNING, !lost.ok()) << "the job goes on without the state on this machine: "
                              << lost.message();
}

absl::StatusOr<StateOwner> ServerCore::StateOwnerOf(int shard) const {
  StateOwner owner;
  owner.run_id = run_id_;
  owner.shard = shard;
  owner.tasks = job_.sharding.tasks();
  owner.train_dir = std::filesystem::absolute(options_.train_dir).string();
  absl::StatusOr<std::string> identity = files_->FolderIdentity(options_.train_dir);
  // A missing folder is no error here: writing the first checkpoint will report it.
  if (!absl::IsNotFound(identity.status())) {
    PP_ASSIGN_OR_RETURN(owner.folder_identity, std::move(identity));
  }
  return owner;
}

absl::Status ServerCore::OpenShard(int shard) {
  const int tasks = job_.sharding.tasks();
  VariableStoreOptions store_options;
  store_options.state_dir = options_.state_dir;
  store_options.name = absl::StrCat(absl::BytesToHexString(run_id_), "-", shard, "-of-", tasks);
  PP_ASSIGN_OR_RETURN(store_options.owner, StateOwnerOf(shard));
  PP_ASSIGN_OR_RETURN(std::unique_ptr<VariableStore> variables,
                      VariableStore::Open(store_options, job_.layout, job_.optimizer));
  if (IsCoordinator() && !options_.from_checkpoint) {
    PP_RETURN_IF_ERROR(CheckForUnfitSteps(*variables, checkpoint_step_));
    PP_RETURN_IF_ERROR(
        checkpointer_->CheckMappedState(variables->newest().value_or(0), run_files_.last_config()));
  }
  run_files_.AddShard(variables.get());
  RestoreHooks hooks{[this] { return options_.stop_requested() || end_wanted_.load(); },
                     options_.may_restore};
  hooks.on_restored = [this, index = shard - options_.first_task] {
    TakeBackFoundEnd();
    const absl::Status adopted = run_files_.ShardRestored(index);
    LOG_IF(WARNING, !adopted.ok()) << adopted.message();
    if (adopted.ok()) options_.on_restored();
    return adopted;
  };
  hooks.opened_checkpoint = [this](const VersionId& id) {
    return IsCoordinator() ? checkpointer_->OpenedCheckpoint(id) : nullptr;
  };
  auto store = std::make_unique<ShardStore>(&job_, shard, options_.train_dir, std::move(variables),
                                            files_, pool_.get(), std::move(hooks));
  ShardOptions options;
  options.run_id = run_id_;
  options.boot_id = NewBootId();
  options.sync = job_.sync;
  options.shard = shard;
  options.tasks = tasks;
  options.chunk_elements = ChunkElements(job_.sharding, shard);
  options.held_versions = store->HeldVersions();
  ShardRuntime::CommitFn commit;
  if (shard == 0) {
    commit = [this](const ps::CommitRequest& request, PsHandler::Done<ps::CommitReply> done) {
      coordinator_->Commit(request, std::move(done));
    };
  }
  std::shared_ptr<ShardTrace> trace;
  if (options_.trace != nullptr) {
    trace = std::make_shared<ShardTrace>(options_.trace, static_cast<uint32_t>(shard), clock_);
  }
  shards_.push_back(std::make_unique<ShardRuntime>(&job_, std::move(options), std::move(store),
                                                   clock_, std::move(commit), std::move(trace)));
  const auto orders =
      IsCoordinator() ? TaskHandler::Orders::kFromThisProcess : TaskHandler::Orders::kFromPeers;
  TaskHandler::EndFn end;
  if (!IsCoordinator()) {
    end = [this](const ps::EndTaskRequest& request) { EndAsTold(request); };
  }
  handlers_.push_back(std::make_unique<TaskHandler>(&job_, run_id_, shards_.back().get(),
                                                    shard == 0 ? coordinator_.get() : nullptr,
                                                    orders, std::move(end)));
  return absl::OkStatus();
}

absl::Status ServerCore::ChooseReplicas(CoordinatorOptions* options) const {
  options->num_replicas = options_.num_replicas;
  const std::optional<uint32_t> scaled = run_files_.scaled_replicas();
  std::string source = "--num_replicas";
  std::string remedy = "lower --num_replicas";
  if (scaled.has_value() && !options->sync) {
    LOG(WARNING) << "psctl scale has set " << *scaled
                 << " replicas in this run, which has no effect in asynchronous mode";
  } else if (scaled.has_value()) {
    LOG(INFO) << "psctl scale has set " << *scaled << " replicas in this run, which count now"
              << (options_.num_replicas == 0 ? "" : " instead of --num_replicas");
    source = JoinPath(options_.train_dir, "REPLICAS");
    remedy = absl::StrCat("remove ", source);
    options->num_replicas = *scaled;
    options->scaled = true;
  }
  const uint64_t batch_size = options->limits.batch_size;
  const std::string sets = absl::StrCat(source, " sets ", options->num_replicas, " replicas");
  if (options->num_replicas > kMaxReplicas) {
    return absl::FailedPreconditionError(
        absl::StrCat(sets, ", but a job has at most ", kMaxReplicas, ": ", remedy));
  }
  if (options->sync && options->num_replicas > batch_size) {
    return absl::FailedPreconditionError(absl::StrCat(sets, ", which cannot share a batch of ",
                                                      batch_size, " samples: ", remedy,
                                                      ", or raise train_config.batch_size"));
  }
  return absl::OkStatus();
}

absl::Status ServerCore::OpenCoordinator() {
  CoordinatorOptions options = job_.MakeCoordinatorOptions();
  options.run_id = run_id_;
  PP_RETURN_IF_ERROR(ChooseReplicas(&options));
  options.lease = options_.lease;
  options.from_checkpoint = options_.from_checkpoint;
  CoordinatorListener listener;
  listener.persist_epoch = [this](uint64_t epoch) { return run_files_.PersistEpoch(epoch); };
  listener.persist_replicas = [this](uint32_t num_replicas) {
    return run_files_.PersistReplicas(num_replicas);
  };
  listener.take_over = [this](uint64_t version) {
    checkpointer_->GoOnFrom(version, run_files_.last_config());
    const absl::Status written = run_files_.JobRestored();
    monitor_->WriteTo(run_files_.events());
    return written;
  };
  listener.step_applied = [this](const coordinator_action::StepApplied& step) {
    monitor_->StepApplied(step);
  };
  listener.serving = [this](const coordinator_action::Serving& serving) {
    checkpointer_->CloseCheckpoint();  // nothing is restored any more
    LOG(INFO) << "serving version " << serving.version << " in epoch " << serving.epoch
              << (serving.rolled_back_steps > 0
                      ? absl::StrCat(", ", serving.rolled_back_steps, " steps rolled back")
                      : "");
    const EarlierConfigs earlier = std::exchange(earlier_configs_, {});
    const std::string changed = DescribeChangedCounts(earlier, job_, serving.version);
    LOG_IF(WARNING, !changed.empty()) << changed;
    on_serving_();
  };
  listener.ended = [this](const absl::Status& status) { End(status); };
  listener.end_wanted = [this] {
    NoteDrain();
    end_wanted_.store(true);
  };
  std::unique_ptr<CoordinatorTrace> trace;
  if (options_.trace != nullptr) {
    trace = std::make_unique<CoordinatorTrace>(options_.trace, job_.sync, clock_);
  }
  coordinator_ = std::make_unique<CoordinatorRuntime>(
      std::move(options), checkpointer_.get(), clock_, std::move(listener), std::move(trace));
  return absl::OkStatus();
}

void ServerCore::Start(std::vector<std::string> addresses,
                       std::vector<std::unique_ptr<ShardPeer>> remote,
                       std::function<void()> on_serving) {
  CHECK(IsCoordinator());
  on_serving_ = std::move(on_serving);
  handlers_[0]->SetAddresses(std::move(addresses));
  std::vector<std::unique_ptr<ShardPeer>> peers;
  for (const auto& shard : shards_) peers.push_back(MakeLocalShardPeer(shard.get()));
  for (auto& peer : remote) peers.push_back(std::move(peer));
  CHECK_EQ(static_cast<int>(peers.size()), job_.sharding.tasks());
  coordinator_->Start(std::move(peers), run_files_.stored_epoch());
}

ps::StatusReply ServerCore::Status() const {
  return coordinator_ != nullptr ? coordinator_->Status() : ps::StatusReply();
}

TrainingFigures ServerCore::Figures() const {
  return monitor_ != nullptr ? monitor_->Figures() : TrainingFigures();
}

LossSum ServerCore::TakeLosses() const {
  return monitor_ != nullptr ? monitor_->TakeLosses() : LossSum();
}

}  // namespace pushpull
