// Finds the state files that a run has kept with another number of ps tasks, or with other
// settings. A server cannot continue from them, because each holds another part of the variables,
// or other vectors. Thread-safe, without state.
#ifndef PUSHPULL_PS_SERVER_STORE_STATE_OF_OTHER_TASKS_H_
#define PUSHPULL_PS_SERVER_STORE_STATE_OF_OTHER_TASKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "ps_server/store/state_file.h"
#include "ps_server/store/state_folder.h"
#include "ps_server/store/variable_store.h"

namespace pushpull {

// Returns the files in `folder` that are of the owner's run and folder, but of another number of
// tasks than owner.tasks, and that a server with that number could still use. owner.shard does not
// matter. Returns the errors of ListStateFiles.
absl::StatusOr<std::vector<StateFileInfo>> FindStateOfOtherTasks(FileSystem& files,
                                                                 const std::string& folder,
                                                                 const StateOwner& owner);

// A whole version of all variables.
struct WholeState {
  int tasks = 0;
  uint64_t version = 0;  // the newest one that every shard has reached
};

// Returns the newest version of which `infos` have all shards; nullopt: there is none.
std::optional<WholeState> NewestWholeState(const std::vector<StateFileInfo>& infos);

// FAILED_PRECONDITION: the files that FindStateOfOtherTasks has returned hold steps that are in no
// checkpoint. They have all shards of such a version, or some, because the other tasks ran on other
// machines. The message says how to keep the steps and how to give them up.
// tasks: their number now. checkpoint_step: of the newest checkpoint; nullopt: there is none.
absl::Status CheckForLostSteps(const std::vector<StateFileInfo>& infos, int tasks,
                               std::optional<uint64_t> checkpoint_step);

// FAILED_PRECONDITION: the shard's own file holds steps that are in no checkpoint and does not fit,
// because the optimizer or the model is another one. The message says how to keep the steps and how
// to give them up. checkpoint_step: as above.
absl::Status CheckForUnfitSteps(const VariableStore& store,
                                std::optional<uint64_t> checkpoint_step);

// Renames the files, so that no server continues from them, as StateMapping does with a file that
// does not fit. Leaves files that another process uses, and logs what it does.
// On an error it returns that of FileSystem::Rename, with the mark of one that may pass
// (IsPassing); the message names the file that cannot be renamed.
absl::Status SetStateAside(FileSystem& files, const std::vector<StateFileInfo>& infos);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_STATE_OF_OTHER_TASKS_H_
