// Tested by tests/ps_server/runtime/checkpoint_recovery_test.cc.
// Tested by tests/ps_server/runtime/old_checkpoints_test.cc.
#include "ps_server/runtime/checkpointer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/retention.h"
#include "common/config/pipeline_config.h"
#include "ps_server/core/replica_positions.h"

namespace pushpull {
namespace {

double UnixNow() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

// Returns FoundCheckpoint::age.
absl::Duration AgeOf(const CheckpointManifest& manifest) {
  const double seconds = UnixNow() - manifest.saved_unix;
  return seconds < 0 ? absl::InfiniteDuration() : absl::Seconds(seconds);
}

CheckpointManifest MakeManifest(const JobSpec& job,
                                const coordinator_action::PublishCheckpoint& order) {
  CheckpointManifest manifest;
  manifest.epoch = order.epoch;
  manifest.step = order.step;
  manifest.seed = job.seed;
  manifest.sync = job.sync;
  manifest.training_done = order.training_done;
  manifest.last_step = order.last_step;
  manifest.num_images = order.num_images;
  manifest.devices = order.devices;
  if (job.declared.has_value()) {
    DescribeDeclaredLayout(*job.declared, &manifest);
  } else {
    DescribeLayout(job.layout, &manifest);
  }
  for (int slot = 0; slot < job.optimizer.num_slots(); ++slot) {
    manifest.slot_names.emplace_back(job.optimizer.slot_name(slot));
  }
  manifest.has_ema = job.optimizer.has_ema;
  manifest.ema_decay = job.optimizer.ema_decay;
  manifest.pipeline_config = job.config_text;
  // These two are for people who read the manifest. Recovery computes them from the step.
  manifest.optimizer_state["step"] = absl::StrCat(order.step);
  manifest.schedule_state["learning_rate"] = absl::StrCat(job.LearningRateAt(order.step));
  for (size_t shard = 0; shard < order.shards.size(); ++shard) {
    const ps::SnapshotReply& reply = order.shards[shard];
    CheckpointFile file;
    file.name = ShardFileName(static_cast<int>(shard), static_cast<int>(order.shards.size()));
    file.size_bytes = reply.size_bytes();
    file.sha256 = reply.sha256();
    for (const auto& tensor : reply.tensors()) {
      file.tensors.push_back({tensor.name(), tensor.crc32c()});
    }
    manifest.files.push_back(std::move(file));
  }
  if (!order.shards.empty()) {
    manifest.async_state = absl::Base64Escape(order.shards[0].marks());
  }
  return manifest;
}

// Says whether two manifests are of one published checkpoint.
bool IsSameCheckpoint(const CheckpointManifest& a, const CheckpointManifest& b) {
  const auto same_file = [](const CheckpointFile& x, const CheckpointFile& y) {
    return x.name == y.name && x.sha256 == y.sha256;
  };
  return a.run_id == b.run_id && a.epoch == b.epoch && a.step == b.step &&
         std::equal(a.files.begin(), a.files.end(), b.files.begin(), b.files.end(), same_file);
}

// Returns the number of replicas whose positions the checkpoint has; 0: it has none.
uint32_t CountPositions(const CheckpointManifest& manifest) {
  std::string marks;
  if (!absl::Base64Unescape(manifest.async_state, &marks)) return 0;
  ReplicaPositions positions;
  positions.Restore(marks, manifest.step);
  return positions.num_restored();
}

}  // namespace

ps::SnapshotReply MakeSnapshotReply(const CheckpointFile& file) {
  ps::SnapshotReply reply;
  reply.set_size_bytes(file.size_bytes);
  reply.set_sha256(file.sha256);
  for (const CheckpointTensor& tensor : file.tensors) {
    ps::SnapshotReply::Tensor* entry = reply.add_tensors();
    entry->set_name(tensor.name);
    entry->set_crc32c(tensor.crc32c);
  }
  return reply;
}

Checkpointer::Checkpointer(const JobSpec* job, FileSystem* files, std::string train_dir,
                           std::string run_id, std::optional<uint64_t> from_step)
    : job_(job),
      files_(files),
      train_dir_(std::move(train_dir)),
      run_id_(std::move(run_id)),
      from_step_(from_step) {}

absl::StatusOr<std::optional<FoundCheckpoint>> Checkpointer::FindCheckpoint(
    const StopRequested& stopped) {
  // A larger step would become negative, which means the newest checkpoint.
  if (from_step_.has_value() && *from_step_ > uint64_t{INT64_MAX}) {
    return absl::NotFoundError(
        absl::StrCat("there is no checkpoint of step ", *from_step_, " in ", train_dir_));
  }
  absl::StatusOr<std::shared_ptr<const Checkpoint>> checkpoint = OpenFound(stopped);
  if (absl::IsNotFound(checkpoint.status()) && !from_step_.has_value()) return std::nullopt;
  PP_RETURN_IF_ERROR(checkpoint.status());
  PP_RETURN_IF_ERROR(CheckFits(**checkpoint));
  const CheckpointManifest& manifest = (*checkpoint)->manifest();
  run_started_unix_ = manifest.run_started_unix;
  counted_ = {manifest.step, manifest.updates};
  found_config_ = manifest.pipeline_config;
  const FoundCheckpoint found{{manifest.epoch, manifest.step},
                              manifest.training_done,
                              manifest.num_images,
                              CountPositions(manifest),
                              AgeOf(manifest)};
  absl::MutexLock lock(&mutex_);
  opened_ = *std::move(checkpoint);
  return found;
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpointer::OpenFound(
    const StopRequested& stopped) const {
  RecoveryRequest request{run_id_, &job_->layout};
  request.stopped = stopped;
  std::shared_ptr<const Checkpoint> opened;
  {
    absl::MutexLock lock(&mutex_);
    opened = opened_;
  }
  if (opened != nullptr) {
    const absl::StatusOr<CheckpointManifest> manifest =
        from_step_.has_value() ? ReadManifest(*files_, train_dir_, *from_step_)
                               : ReadNewestManifest(*files_, train_dir_, request);
    if (manifest.ok() && IsSameCheckpoint(*manifest, opened->manifest())) return opened;
  }
  PP_ASSIGN_OR_RETURN(
      opened,
      OpenCheckpoint(*files_, train_dir_,
                     from_step_.has_value() ? static_cast<int64_t>(*from_step_) : -1, request));
  LOG(INFO) << "checkpoint " << opened->path() << " verifies, step " << opened->manifest().step
            << ", published in epoch " << opened->manifest().epoch;
  return opened;
}

std::shared_ptr<const Checkpoint> Checkpointer::OpenedCheckpoint(const VersionId& id) const {
  absl::MutexLock lock(&mutex_);
  if (opened_ == nullptr) return nullptr;
  const CheckpointManifest& manifest = opened_->manifest();
  return VersionId{manifest.epoch, manifest.step} == id ? opened_ : nullptr;
}

void Checkpointer::CloseCheckpoint() {
  absl::MutexLock lock(&mutex_);
  opened_.reset();
}

absl::Status Checkpointer::Verify(uint64_t step) {
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                      Checkpoint::Open(*files_, train_dir_, step));
  return CheckFits(*checkpoint);
}

absl::Status Checkpointer::CheckFits(const Checkpoint& checkpoint) const {
  PP_RETURN_IF_ERROR(CheckRun(*files_, train_dir_, checkpoint, run_id_));
  PP_RETURN_IF_ERROR(CheckLayout(checkpoint.manifest(), job_->layout));
  PP_RETURN_IF_ERROR(CheckStatistics(StatisticsOf(checkpoint)));
  return CheckOptimizerState(checkpoint);
}

absl::Status Checkpointer::CheckStatistics(const TrainedStatistics& trained) const {
  if (job_->declared.has_value()) return absl::OkStatus();
  PP_RETURN_IF_ERROR(CheckFrozenStatistics(trained, job_->config.model()));
  return CheckCorrectionHolds(trained, job_->config.model());
}

absl::Status Checkpointer::CheckMappedState(uint64_t version,
                                            const std::string& last_config) const {
  if (version <= counted_.step || last_config.empty()) return absl::OkStatus();
  TrainedStatistics trained;
  trained.pipeline_config = last_config;
  trained.updates =
      counted_.updates + (version - counted_.step) * OfLastServer(version, last_config).local_steps;
  trained.place = absl::StrCat("the mapped state of step ", version, ", which was trained with ",
                               JoinPath(train_dir_, kTrainDirConfigName));
  return CheckStatistics(trained);
}

Checkpointer::LastServer Checkpointer::OfLastServer(uint64_t version,
                                                    const std::string& last_config) const {
  const auto config = ParsePipelineConfig(last_config, kTrainDirConfigName);
  // The file may be missing, or another release may have written what this one cannot read.
  const bool is_known = config.ok() && !last_config.empty();
  const config::TrainConfig& train = (is_known ? *config : job_->config).train_config();
  return {version, static_cast<uint64_t>(train.local_steps())};
}

void Checkpointer::GoOnFrom(uint64_t version, const std::string& last_config) {
  last_server_ = OfLastServer(version, last_config);
}

absl::Status Checkpointer::CheckOptimizerState(const Checkpoint& checkpoint) const {
  const std::string remedy =
      absl::StrCat("; put that field back, or begin a new train_dir",
                   job_->declared.has_value() ? "" : " with train_config.fine_tune_checkpoint");
  const char* const field = HasLocalSteps(job_->config.train_config())
                                ? "train_config.outer_optimizer"
                                : "train_config.optimizer";
  const std::vector<std::string>& there = checkpoint.manifest().slot_names;
  for (int slot = 0; slot < job_->optimizer.num_slots(); ++slot) {
    const absl::string_view name = job_->optimizer.slot_name(slot);
    if (std::find(there.begin(), there.end(), name) != there.end()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(field, " keeps ", name, " for each variable, but ", checkpoint.path(),
                     " was written with an optimizer that keeps ",
                     there.empty() ? "nothing" : absl::StrJoin(there, ", "), remedy));
  }
  if (job_->optimizer.has_ema && !checkpoint.manifest().has_ema) {
    return absl::FailedPreconditionError(
        absl::StrCat("train_config.optimizer has use_moving_average: true, but ", checkpoint.path(),
                     " was written without moving averages", remedy));
  }
  return absl::OkStatus();
}

uint64_t Checkpointer::UpdatesAt(uint64_t step) const {
  // With local steps a clone updates the moving statistics once per mini-batch.
  const uint64_t here = job_->config.train_config().local_steps();
  if (step <= counted_.step) return counted_.updates;
  const uint64_t begun = std::clamp(last_server_.step, counted_.step, step);
  return counted_.updates + (begun - counted_.step) * last_server_.local_steps +
         (step - begun) * here;
}

absl::Status Checkpointer::Publish(const coordinator_action::PublishCheckpoint& order,
                                   uint64_t num_replicas) {
  CheckpointManifest manifest = MakeManifest(*job_, order);
  manifest.run_id = run_id_;
  manifest.updates = UpdatesAt(order.step);
  manifest.num_replicas = num_replicas;
  manifest.saved_unix = UnixNow();
  manifest.run_started_unix = run_started_unix_.value_or(manifest.saved_unix);
  PP_RETURN_IF_ERROR(PublishCheckpoint(*files_, train_dir_, manifest));
  run_started_unix_ = manifest.run_started_unix;
  from_step_.reset();
  counted_ = {manifest.step, manifest.updates};
  LOG(INFO) << "published checkpoint " << train_dir_ << "/" << CheckpointName(order.step);
  return absl::OkStatus();
}

void Checkpointer::RemoveOld(const StopRequested& stopped) {
  const config::TrainConfig& train = job_->config.train_config();
  const RetentionPolicy policy{train.max_to_keep(),
                               absl::Hours(train.keep_checkpoint_every_n_hours())};
  const absl::Status thinned = ApplyRetention(*files_, train_dir_, run_id_, policy, stopped);
  if (thinned.ok() || absl::IsCancelled(thinned)) return;
  LOG(WARNING) << "old checkpoints stay: " << thinned.message();
}

void Checkpointer::Abandon(uint64_t epoch, uint64_t step) {
  AbandonCheckpoint(*files_, train_dir_, epoch, step);
}

}  // namespace pushpull
