// DeclarationPhase gets the variables of an external model from a clone, in the process of task 0,
// and publishes them as the checkpoint of step 0. An ordinary start then finds that checkpoint.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_DECLARATION_PHASE_H_
#define PUSHPULL_PS_SERVER_RUNTIME_DECLARATION_PHASE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/base/stop_requested.h"
#include "common/checkpoint/train_dir.h"
#include "common/model/variable_layout.h"
#include "common/wire/default_lease.h"
#include "protos/pipeline.pb.h"
#include "ps_server/core/coordinator_options.h"
#include "ps_server/runtime/declaration_handler.h"
#include "ps_server/runtime/run_files.h"

namespace pushpull {

// Returns the variables of the external model `config.model.external` as they were declared, from
// the newest readable manifest of train_dir's run, or nullopt if train_dir has no checkpoint.
// Blocks on the disk. FAILED_PRECONDITION: the checkpoint is of a model that is not external or has
// another name. Also returns the errors of ReadRunId and ReadNewestManifest.
absl::StatusOr<std::optional<VariableLayout>> ReadDeclaredVariables(
    FileSystem& files, const std::string& train_dir, const config::TrainEvalPipelineConfig& config,
    int read_attempts);

struct DeclarationPhaseOptions {
  config::TrainEvalPipelineConfig config;  // valid, with an external model
  std::string train_dir;
  std::shared_ptr<TrainDir> locked_train_dir = nullptr;  // as in SharedServerOptions
  bool sync = true;
  int tasks = 1;
  absl::Duration lease = kDefaultLease;
  // How long Run repeats the write of the checkpoint while its errors may pass, as on a full disk.
  absl::Duration disk_patience = CoordinatorOptions().disk_patience;
};

// Call order: Open, then SetAddresses once the handler is served, then Run; all from one thread.
// Destruction before the end of Run has the effect of SIGKILL.
class DeclarationPhase {
 public:
  // Creates train_dir if it is absent and locks it, unless the options have its lock. `files` and
  // `clock` must outlive the object.
  // UNAVAILABLE: another server uses train_dir, or has just published a checkpoint there.
  static absl::StatusOr<std::unique_ptr<DeclarationPhase>> Open(DeclarationPhaseOptions options,
                                                                FileSystem* files, Clock* clock);

  // The handlers of task 0 and of the other tasks in this process. They stay valid after Run, until
  // the object is destroyed.
  PsHandler* handler() { return handler_.get(); }
  PsHandler* handler_of_others() { return &others_; }
  void SetAddresses(std::vector<std::string> addresses);

  // Blocks until a clone has declared the variables and the checkpoint of step 0 is published, and
  // returns them. Nothing but LOCK changes in train_dir until all values are there. Releases a lock
  // that Open has taken. CANCELLED: stop_requested has returned true, or an administrator has
  // called Drain. Also returns the errors of writing the checkpoint; one that may pass is returned
  // after disk_patience, and clones that declare are told to wait for the next server.
  absl::StatusOr<VariableLayout> Run(const StopRequested& stop_requested);

 private:
  DeclarationPhase(DeclarationPhaseOptions options, FileSystem* files, Clock* clock);
  absl::Status Lock();
  absl::Status Publish(const DeclaredVariables& declared);
  // Repeats Publish for disk_patience as long as its errors may pass and nobody ends the server.
  absl::Status PublishPatiently(const DeclaredVariables& declared,
                                const StopRequested& stop_requested);

  const DeclarationPhaseOptions options_;
  FileSystem* const files_;
  Clock* const clock_;
  std::unique_ptr<RunFiles> run_files_;  // has the lock; null after Run
  std::unique_ptr<DeclarationHandler> handler_;
  NotReadyHandler others_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_DECLARATION_PHASE_H_
