#include "ps_server/runtime/declaration_phase.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

#include "common/base/backoff.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/config/pipeline_config.h"
#include "common/model/variable_entries.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"
#include "ps_server/runtime/checkpointer.h"
#include "ps_server/runtime/job_fingerprint.h"
#include "ps_server/runtime/job_spec.h"

namespace pushpull {
namespace {

// How often Run asks whether it shall stop.
constexpr absl::Duration kStopPoll = absl::Milliseconds(100);

// Returns how many float32 the memory of this machine holds. The values of all variables lie in it
// until they are on the disk.
int64_t ElementsOfMemory() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) /
         static_cast<int64_t>(sizeof(float));
}

ps::JobReply MakeJobReply(const DeclarationPhaseOptions& options, const RunFiles& run_files) {
  const config::TrainConfig& train = options.config.train_config();
  ps::JobReply reply;
  reply.set_protocol_version(kProtocolVersion);
  reply.set_run_id(absl::HexStringToBytes(run_files.run_id()));
  reply.set_epoch(run_files.stored_epoch());
  reply.set_sync(options.sync);
  reply.set_seed(train.seed());
  reply.set_num_steps(train.num_steps());
  reply.set_tasks(options.tasks);
  google::protobuf::TextFormat::PrintToString(ConfigInMode(options.config, options.sync),
                                              reply.mutable_pipeline_config());
  reply.set_awaits_variables(true);
  reply.set_fingerprint(JobFingerprint(options.config, options.sync, options.tasks));
  reply.set_lease_milliseconds(absl::ToInt64Milliseconds(options.lease));
  return reply;
}

// Writes the shard's file of the checkpoint of step 0. The EMA begins with the weights, and every
// slot with one number (FillInitialState in common/optimizer/initial_state.h).
absl::StatusOr<ps::SnapshotReply> WriteShard(FileSystem& files, const std::string& train_dir,
                                             uint64_t epoch, const JobSpec& job, int shard,
                                             const std::vector<float>& values) {
  ShardSnapshot snapshot;
  snapshot.shard = shard;
  snapshot.tasks = job.sharding.tasks();
  snapshot.range = job.sharding.shard(shard);
  snapshot.weights = values.data() + snapshot.range.begin;
  if (job.optimizer.has_ema) snapshot.ema = snapshot.weights;
  std::vector<std::vector<float>> slots;
  for (int slot = 0; slot < job.optimizer.num_slots(); ++slot) {
    slots.emplace_back(snapshot.range.size(), job.optimizer.rule->slots()[slot].initial_value);
    snapshot.slots.push_back({std::string(job.optimizer.slot_name(slot)), slots.back().data()});
  }
  PP_ASSIGN_OR_RETURN(const CheckpointFile file,
                      WriteShardFile(files, train_dir, epoch, /*step=*/0, job.layout, snapshot));
  return MakeSnapshotReply(file);
}

std::string NameOf(const config::External& external) {
  return external.name().empty() ? std::string("the external model without a name")
                                 : absl::StrCat("the external model \"", external.name(), "\"");
}

// Returns what clones that declare are told when the checkpoint is written, or could not be.
absl::Status AnswerToClones(const absl::Status& published) {
  if (!IsPassing(published)) return published;
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::DRAINING);
  return MakeError(detail,
                   absl::StrCat("the server ends, because it could not save the variables: ",
                                published.message()));
}

}  // namespace

absl::StatusOr<std::optional<VariableLayout>> ReadDeclaredVariables(
    FileSystem& files, const std::string& train_dir, const config::TrainEvalPipelineConfig& config,
    int read_attempts) {
  RecoveryRequest request;
  PP_ASSIGN_OR_RETURN(const std::optional<std::string> run_id, ReadRunId(files, train_dir));
  request.run_id = run_id.value_or("");
  request.read_attempts = read_attempts;
  const absl::StatusOr<CheckpointManifest> manifest = ReadNewestManifest(files, train_dir, request);
  if (absl::IsNotFound(manifest.status())) return std::nullopt;
  PP_RETURN_IF_ERROR(manifest.status());
  const std::string checkpoint = JoinPath(train_dir, CheckpointName(manifest->step));
  if (!manifest->declared) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint, " is not of an external model, and the config names ",
                     NameOf(config.model().external()), "; choose another train_dir"));
  }
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig stored,
                      ParsePipelineConfig(manifest->pipeline_config, checkpoint));
  const config::External& there = stored.model().external();
  if (there.name() != config.model().external().name()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint, " is of ", NameOf(there), ", and the config names ",
                     NameOf(config.model().external()),
                     "; choose another train_dir, or correct model.external.name"));
  }
  absl::StatusOr<VariableLayout> layout = VariableLayout::Create(manifest->variables);
  absl::Status valid = layout.status();
  if (valid.ok()) valid = CheckAttributes(*layout);
  if (valid.ok()) return std::optional<VariableLayout>(*std::move(layout));
  return absl::DataLossError(absl::StrCat(checkpoint, "/MANIFEST.json: ", valid.message()));
}

DeclarationPhase::DeclarationPhase(DeclarationPhaseOptions options, FileSystem* files, Clock* clock)
    : options_(std::move(options)),
      files_(files),
      clock_(clock),
      run_files_(std::make_unique<RunFiles>(files, /*num_shards=*/0)),
      others_("ps task 0 waits for the variables of the external model") {}

absl::StatusOr<std::unique_ptr<DeclarationPhase>> DeclarationPhase::Open(
    DeclarationPhaseOptions options, FileSystem* files, Clock* clock) {
  std::unique_ptr<DeclarationPhase> phase(new DeclarationPhase(std::move(options), files, clock));
  PP_RETURN_IF_ERROR(phase->Lock());
  return phase;
}

absl::Status DeclarationPhase::Lock() {
  PP_RETURN_IF_ERROR(options_.locked_train_dir == nullptr
                         ? run_files_->OpenTrainDir(options_.train_dir, "", "")
                         : run_files_->OpenTrainDir(options_.locked_train_dir, "", ""));
  PP_ASSIGN_OR_RETURN(const std::vector<uint64_t> steps,
                      ListCheckpoints(*files_, options_.train_dir));
  if (!steps.empty()) {
    return absl::UnavailableError(absl::StrCat("another server has just published a checkpoint in ",
                                               options_.train_dir, "; start again"));
  }
  const ps::JobReply job = MakeJobReply(options_, *run_files_);
  DeclarationOptions declaration;
  declaration.run_id = job.run_id();
  declaration.lease = options_.lease;
  declaration.max_elements = ElementsOfMemory();
  declaration.check_layout =
      [optimizer = OptimizerSpec(options_.config.train_config())](const VariableLayout& layout) {
        return CheckVariableNames(layout, optimizer);
      };
  handler_ = std::make_unique<DeclarationHandler>(job, std::move(declaration), clock_);
  return absl::OkStatus();
}

void DeclarationPhase::SetAddresses(std::vector<std::string> addresses) {
  LOG(INFO) << "waiting at " << absl::StrJoin(addresses, ", ")
            << " for a clone that declares the variables of "
            << NameOf(options_.config.model().external());
  handler_->SetAddresses(std::move(addresses));
}

absl::StatusOr<VariableLayout> DeclarationPhase::Run(const StopRequested& stop_requested) {
  DeclarationHandler::State state = DeclarationHandler::State::kWaiting;
  while (state == DeclarationHandler::State::kWaiting) {
    if (stop_requested()) return absl::CancelledError("stopped by signal");
    state = handler_->Await(kStopPoll);
  }
  if (state == DeclarationHandler::State::kDrained) return absl::CancelledError("drained");
  const DeclaredVariables declared = handler_->Take();
  const absl::Status published = PublishPatiently(declared, stop_requested);
  run_files_.reset();
  const bool drained = handler_->Finish(AnswerToClones(published));
  if (IsPassing(published) && (drained || stop_requested())) {
    LOG(WARNING) << "the declared variables are not saved: " << published.message();
    return absl::CancelledError(drained ? "drained" : "stopped by signal");
  }
  PP_RETURN_IF_ERROR(published);
  if (drained) return absl::CancelledError("drained");
  return declared.layout;
}

absl::Status DeclarationPhase::PublishPatiently(const DeclaredVariables& declared,
                                                const StopRequested& stop_requested) {
  const absl::Duration deadline = clock_->Now() + options_.disk_patience;
  Backoff backoff({}, /*seed=*/0);
  std::string obstacle;
  for (;;) {
    const absl::Status published = Publish(declared);
    const bool is_given_up = clock_->Now() >= deadline || stop_requested() || handler_->drained();
    if (!IsPassing(published) || is_given_up) return published;
    LOG_IF(WARNING, obstacle != published.message())
        << "the declared variables cannot be saved: " << published.message()
        << "; this is tried again";
    obstacle = std::string(published.message());
    clock_->Sleep(backoff.Next());
  }
}

absl::Status DeclarationPhase::Publish(const DeclaredVariables& declared) {
  PP_ASSIGN_OR_RETURN(const JobSpec job, JobSpec::CreateExternal(options_.config, options_.sync,
                                                                 options_.tasks, declared.layout));
  coordinator_action::PublishCheckpoint order;
  order.step = 0;
  order.epoch = run_files_->stored_epoch() + 1;
  order.last_step = job.limits.num_steps;
  run_files_->NoteEpoch(order.epoch);  // a repetition needs a later one: this one may be on disk
  PP_RETURN_IF_ERROR(run_files_->PersistEpoch(order.epoch));
  for (int shard = 0; shard < options_.tasks; ++shard) {
    absl::StatusOr<ps::SnapshotReply> file =
        WriteShard(*files_, options_.train_dir, order.epoch, job, shard, declared.values);
    if (!file.ok()) {
      AbandonCheckpoint(*files_, options_.train_dir, order.epoch, order.step);
      return file.status();
    }
    order.shards.push_back(*std::move(file));
  }
  Checkpointer checkpointer(&job, files_, options_.train_dir, run_files_->run_id(), std::nullopt);
  return checkpointer.Publish(order, /*num_replicas=*/0);
}

}  // namespace pushpull
