#include "ps_server/runtime/shard_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/model/initializers.h"
#include "common/optimizer/initial_state.h"
#include "ps_server/runtime/checkpointer.h"

namespace pushpull {
namespace {

// How long an apply waits for pulls of the version that it overwrites. A normal pull takes tens
// of milliseconds. Leaving the buffer to the readers costs about ten milliseconds, but a wait
// for a clone that has stopped delays every other clone.
constexpr absl::Duration kPinPatience = absl::Milliseconds(250);
// How long the wait lasts if no more buffers can be left to readers, because several pulls have
// stopped. gRPC's keepalive ends the pull of a dead peer within seconds.
constexpr absl::Duration kLastPinPatience = absl::Seconds(20);

// Initial values that are drawn before the store asks again whether it is to end. They take some
// milliseconds.
constexpr int64_t kDrawnAtOnce = int64_t{1} << 16;

std::vector<GradientContribution> ToGradients(const std::vector<StagedContribution>& staged) {
  std::vector<GradientContribution> gradients;
  gradients.reserve(staged.size());
  for (const StagedContribution& contribution : staged) {
    gradients.push_back({contribution.replica, contribution.samples, contribution.chunks});
  }
  return gradients;
}

// Returns the layout whose attributes say how contributions are applied.
VariableLayout ApplyLayout(const JobSpec& job) {
  const config::TrainConfig& train = job.config.train_config();
  return HasLocalSteps(train) ? LayoutOfLocalSteps(job.layout, train.local_steps()) : job.layout;
}

}  // namespace

ShardStore::ShardStore(const JobSpec* job, int shard, std::string train_dir,
                       std::unique_ptr<VariableStore> variables, FileSystem* files,
                       ThreadPool* pool, RestoreHooks hooks)
    : job_(job),
      shard_(shard),
      train_dir_(std::move(train_dir)),
      variables_(std::move(variables)),
      files_(files),
      pool_(pool),
      hooks_(std::move(hooks)),
      apply_layout_(ApplyLayout(*job)),
      pass_(&apply_layout_, job->sharding, shard, job->optimizer, pool) {}

std::vector<VersionId> ShardStore::HeldVersions() const {
  std::vector<VersionId> versions;
  for (const HeldVersion& held : variables_->held()) {
    versions.push_back({held.epoch, held.version});
  }
  return versions;
}

absl::StatusOr<std::string> ShardStore::Restore(const shard_action::StoreRestore& order) {
  PP_RETURN_IF_ERROR(hooks_.may_restore());
  if (order.tasks != 0 && order.tasks != job_->sharding.tasks()) {
    return absl::UnavailableError(absl::StrCat("the job that orders this has ", order.tasks,
                                               " tasks, that of shard ", shard_, " has ",
                                               job_->sharding.tasks()));
  }
  PP_ASSIGN_OR_RETURN(std::string marks, RestoreVersion(order));
  PP_RETURN_IF_ERROR(hooks_.on_restored());
  return marks;
}

absl::StatusOr<std::string> ShardStore::RestoreVersion(const shard_action::StoreRestore& order) {
  DropVersion();
  if (order.source == ps::RestoreRequest::MAPPED) {
    for (const HeldVersion& held : variables_->held()) {
      if (VersionId{held.epoch, held.version} != order.id) continue;
      PP_RETURN_IF_ERROR(variables_->UseVersion(held.version));
      return held.metadata;
    }
    return absl::FailedPreconditionError(absl::StrCat("shard ", shard_, " does not hold version ",
                                                      order.id.version, " of epoch ",
                                                      order.id.epoch, " in memory"));
  }
  if (order.source == ps::RestoreRequest::INITIAL && job_->declared.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the initial values of an external model are only in its checkpoints, and ",
                     train_dir_, " has none any more"));
  }
  PP_RETURN_IF_ERROR(MakeWritable());
  PP_ASSIGN_OR_RETURN(const StateVectors to, variables_->BeginFill(order.id.version));
  std::string marks;
  const absl::Status filled = order.source == ps::RestoreRequest::CHECKPOINT
                                  ? FillFromCheckpoint(order.id, to, &marks)
                                  : FillInitial(to);
  if (!filled.ok()) {
    variables_->Abandon();
    return filled;
  }
  PP_RETURN_IF_ERROR(variables_->Commit(order.id.epoch, marks));
  return marks;
}

absl::Status ShardStore::FillFromCheckpoint(const VersionId& id, const StateVectors& to,
                                            std::string* marks) {
  if (const auto opened = hooks_.opened_checkpoint(id); opened != nullptr) {
    const absl::Status filled = FillFrom(*opened, to, marks);
    // An open file of a network file system may have become stale. Opening it anew tells.
    if (filled.ok() || absl::IsCancelled(filled)) return filled;
  }
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                      Checkpoint::Open(*files_, train_dir_, id.version, hooks_.stop_requested));
  if (checkpoint->manifest().epoch != id.epoch) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint->path(), " was published in epoch ", checkpoint->manifest().epoch,
                     ", expected ", id.epoch, ": another server has replaced it"));
  }
  return FillFrom(*checkpoint, to, marks);
}

absl::Status ShardStore::FillFrom(const Checkpoint& checkpoint, const StateVectors& to,
                                  std::string* marks) {
  const ElementRange range = job_->sharding.shard(shard_);
  PP_RETURN_IF_ERROR(checkpoint.ReadWeights(job_->layout, range, to.weights));
  for (int slot = 0; slot < job_->optimizer.num_slots(); ++slot) {
    PP_RETURN_IF_ERROR(
        checkpoint.ReadSlot(job_->layout, job_->optimizer.slot_name(slot), range, to.slots[slot]));
  }
  if (to.ema != nullptr) {
    PP_RETURN_IF_ERROR(checkpoint.ReadEma(job_->layout, range, to.ema));
  }
  if (!absl::Base64Unescape(checkpoint.manifest().async_state, marks)) {
    return absl::DataLossError(
        absl::StrCat(checkpoint.path(), "/MANIFEST.json: async_state is not base64"));
  }
  return absl::OkStatus();
}

absl::Status ShardStore::FillInitial(const StateVectors& to) {
  // A process that found checkpoints when it started has not read the warm start. The coordinator
  // orders the initial values all the same if the checkpoints have been moved away since.
  std::vector<float> read;
  if (job_->initial_values.empty()) {
    PP_ASSIGN_OR_RETURN(read, job_->ReadWarmStart(files_));
  }
  const std::vector<float>& given = read.empty() ? job_->initial_values : read;
  absl::Status drawn;
  FillInitialState(
      job_->layout, job_->sharding.shard(shard_), job_->optimizer,
      [&](int64_t variable, int64_t first, int64_t count, float* out) {
        if (!given.empty()) {
          const float* from = given.data() + job_->layout.offset(variable) + first;
          std::memcpy(out, from, count * sizeof(float));
        } else if (drawn.ok()) {
          drawn = Draw(variable, first, count, out);
        }
      },
      to);
  return drawn;
}

absl::Status ShardStore::Draw(int64_t variable, int64_t first, int64_t count, float* out) const {
  const VariableSpec& spec = job_->layout.variables()[variable];
  InitialValues values(spec, job_->seed);
  std::vector<float> of_other_shards(std::min(first, kDrawnAtOnce));
  for (int64_t at = 0; at < first + count;) {
    if (hooks_.stop_requested()) {
      return absl::CancelledError(
          absl::StrCat("stopped while the initial values of ", spec.name, " were being drawn"));
    }
    const bool here = at >= first;
    const int64_t part = std::min((here ? first + count : first) - at, kDrawnAtOnce);
    values.Next(absl::MakeSpan(here ? out + (at - first) : of_other_shards.data(), part));
    at += part;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> ShardStore::Measure(const shard_action::StoreMeasure& order) {
  PP_ASSIGN_OR_RETURN(const PinnedVersion pinned, variables_->Pin(order.step - 1));
  return pass_.MeasureNorms(order.step, ToGradients(order.contributions), pinned.vectors);
}

absl::Status ShardStore::MakeWritable() {
  return variables_->MakeWritable(kPinPatience, kLastPinPatience);
}

absl::Status ShardStore::BeginVersion(uint64_t step) {
  if (ahead_.has_value() && ahead_->buffers().version == step) return absl::OkStatus();
  DropVersion();
  PP_ASSIGN_OR_RETURN(const VariableStore::ApplyBuffers buffers, variables_->BeginApply());
  if (buffers.version != step) {
    variables_->Abandon();
    return absl::InternalError(
        absl::StrCat("the store makes version ", buffers.version, ", expected ", step));
  }
  ahead_.emplace(buffers, job_->sharding.num_chunks(shard_));
  return absl::OkStatus();
}

void ShardStore::DropVersion() {
  if (!ahead_.has_value()) return;
  ahead_.reset();
  variables_->Abandon();
}

absl::Status ShardStore::ApplyAhead(const shard_action::StoreApplyAhead& order) {
  PP_RETURN_IF_ERROR(BeginVersion(order.step));
  std::vector<GradientContribution> gradients;
  for (const StagedChunk& contribution : order.contributions) {
    GradientContribution gradient{contribution.replica, contribution.samples, {}};
    gradient.chunks.resize(job_->sharding.num_chunks(shard_));
    gradient.chunks[order.chunk] = contribution.chunk;
    gradients.push_back(std::move(gradient));
  }
  const int chunk = static_cast<int>(order.chunk);
  PP_RETURN_IF_ERROR(pass_.Run(order.step, gradients, {}, absl::MakeConstSpan(&chunk, 1),
                               ahead_->buffers().from, ahead_->buffers().to));
  ahead_->NoteMade(order);
  return absl::OkStatus();
}

absl::Status ShardStore::Apply(const shard_action::StoreApply& order) {
  if (!ahead_.has_value()) PP_RETURN_IF_ERROR(MakeWritable());
  PP_RETURN_IF_ERROR(BeginVersion(order.step));
  const absl::Status made = pass_.Run(
      order.step, ToGradients(order.contributions), order.variable_squared_norms,
      ahead_->ChunksToMake(order.contributions), ahead_->buffers().from, ahead_->buffers().to);
  if (!made.ok()) {
    DropVersion();
    return made;
  }
  ahead_.reset();
  return variables_->Commit(order.epoch, order.marks);
}

absl::StatusOr<ps::SnapshotReply> ShardStore::WriteSnapshot(PinnedVersion pinned, uint64_t epoch,
                                                            const std::string& marks) {
  ShardSnapshot snapshot;
  snapshot.shard = shard_;
  snapshot.tasks = job_->sharding.tasks();
  snapshot.range = job_->sharding.shard(shard_);
  snapshot.weights = pinned.vectors.weights;
  for (int slot = 0; slot < job_->optimizer.num_slots(); ++slot) {
    snapshot.slots.push_back(
        {std::string(job_->optimizer.slot_name(slot)), pinned.vectors.slots[slot]});
  }
  snapshot.ema = pinned.vectors.ema;
  PP_ASSIGN_OR_RETURN(
      const CheckpointFile file,
      WriteShardFile(*files_, train_dir_, epoch, pinned.version, job_->layout, snapshot));
  ps::SnapshotReply reply = MakeSnapshotReply(file);
  reply.set_marks(marks);
  return reply;
}

}  // namespace pushpull
