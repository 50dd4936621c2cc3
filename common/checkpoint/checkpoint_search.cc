// Chooses one checkpoint of a directory: the functions of checkpoint_reader.h that deal with more
// than one checkpoint.
// Tested by tests/common/checkpoint/unreadable_checkpoint_test.cc.
// Tested by tests/common/checkpoint/checkpoint_faults_test.cc.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

#include "common/base/clock.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_paths.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"

namespace pushpull {
namespace {

// Calls `read`, and calls it again after a pause while it returns a read failure, unless the
// process has been told to end. The message of the last failure says how many attempts there were.
template <typename Read>
auto ReadWithRetries(const RecoveryRequest& request, const Read& read) -> decltype(read()) {
  for (int attempt = 1;; ++attempt) {
    auto result = read();
    if (!IsReadFailure(result.status()) || absl::IsCancelled(result.status())) return result;
    if (attempt >= request.read_attempts || request.stopped()) {
      return Annotated(result.status(),
                       absl::StrCat(result.status().message(), " (tried ", attempt, " times)"));
    }
    LOG(WARNING) << result.status().message() << "; trying again";
    SteadyClock().Sleep(request.read_pause);
  }
}

// Adds to a read failure what it means for recovery and what to do about it. Leaves an interruption
// as it is.
absl::Status CannotRecover(const absl::Status& status, const std::string& directory,
                           uint64_t step) {
  if (absl::IsCancelled(status)) return status;
  return Annotated(
      status,
      absl::StrCat(JoinPath(directory, CheckpointName(step)),
                   " cannot be read, and it may be the newest good checkpoint; repair the disk or "
                   "its mount, or move this folder away to go on without it: ",
                   status.message()));
}

// A checkpoint whose manifest verifies.
struct Candidate {
  uint64_t epoch = 0;
  uint64_t step = 0;
  std::string run_id;
};

struct Candidates {
  std::vector<Candidate> found;  // sorted by (epoch, step), newest first
  // The steps whose manifest does not verify, so that their epoch is not known, and why; the
  // highest step first.
  std::vector<std::pair<uint64_t, absl::Status>> damaged;
};

absl::StatusOr<Candidates> FindCandidates(FileSystem& files, const std::string& directory,
                                          const RecoveryRequest& request) {
  PP_ASSIGN_OR_RETURN(const std::vector<uint64_t> steps,
                      ReadWithRetries(request, [&] { return ListCheckpoints(files, directory); }));
  Candidates candidates;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const absl::StatusOr<CheckpointManifest> manifest =
        ReadWithRetries(request, [&] { return ReadManifest(files, directory, *step); });
    if (manifest.ok()) {
      candidates.found.push_back({manifest->epoch, *step, manifest->run_id});
    } else if (IsReadFailure(manifest.status())) {
      return CannotRecover(manifest.status(), directory, *step);
    } else if (!absl::IsNotFound(manifest.status())) {  // not deleted since ListCheckpoints
      candidates.damaged.emplace_back(*step, manifest.status());
    }
  }
  std::sort(candidates.found.begin(), candidates.found.end(),
            [](const Candidate& a, const Candidate& b) {
              return std::pair(a.epoch, a.step) > std::pair(b.epoch, b.step);
            });
  return candidates;
}

// Returns the error of CheckRun for a checkpoint at `path` of run `found`.
absl::Status CheckSameRun(FileSystem& files, const std::string& directory, const std::string& path,
                          const std::string& found, absl::string_view run_id) {
  if (found == run_id) return absl::OkStatus();
  const std::string file = JoinPath(directory, kRunIdFile);
  const bool is_missing = absl::IsNotFound(files.GetInfo(file).status());
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is of run ", found,
      is_missing ? absl::StrCat(", and ", file,
                                ", which names the run of this folder, is missing; to go on with "
                                "that run, write its number into the file")
                 : absl::StrCat(", but ", directory, " of run ", run_id,
                                ": move the checkpoint away, or start from it by "
                                "train_config.fine_tune_checkpoint in a new train_dir")));
}

// FAILED_PRECONDITION: the candidate is of another run than the one that is asked for.
absl::Status CheckSameRun(FileSystem& files, const std::string& directory,
                          const Candidate& candidate, const RecoveryRequest& request) {
  if (request.run_id.empty()) return absl::OkStatus();
  return CheckSameRun(files, directory, JoinPath(directory, CheckpointName(candidate.step)),
                      candidate.run_id, request.run_id);
}

std::string LineOf(uint64_t step, const absl::Status& status) {
  return absl::StrCat(CheckpointName(step), ": ", status.message());
}

void LogRefusal(uint64_t step, const absl::Status& status) {
  LOG(WARNING) << "checkpoint " << CheckpointName(step) << " is not used: " << status.message();
}

}  // namespace

absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(FileSystem& files,
                                                      const std::string& directory) {
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  std::vector<uint64_t> steps;
  for (const std::string& name : names) {
    if (const std::optional<uint64_t> step = ParseCheckpointName(name); step.has_value()) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<CheckpointManifest> ReadNewestManifest(FileSystem& files,
                                                      const std::string& directory,
                                                      const RecoveryRequest& request) {
  PP_ASSIGN_OR_RETURN(const Candidates candidates, FindCandidates(files, directory, request));
  absl::Status of_other_run;
  for (const Candidate& candidate : candidates.found) {
    const uint64_t step = candidate.step;
    if (const absl::Status same = CheckSameRun(files, directory, candidate, request); !same.ok()) {
      of_other_run.Update(same);
      continue;
    }
    absl::StatusOr<CheckpointManifest> manifest =
        ReadWithRetries(request, [&] { return ReadManifest(files, directory, step); });
    if (manifest.ok()) return manifest;
    if (IsReadFailure(manifest.status())) return CannotRecover(manifest.status(), directory, step);
    // It has been deleted since.
  }
  if (!of_other_run.ok()) {
    std::string message(of_other_run.message());
    for (const auto& [step, problem] : candidates.damaged) {
      absl::StrAppend(&message, "\n  ", LineOf(step, problem));
    }
    return absl::FailedPreconditionError(message);
  }
  if (candidates.damaged.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", directory));
  }
  return absl::DataLossError(absl::StrCat("none of the checkpoints in ", directory,
                                          " has a manifest that verifies; move them away to start "
                                          "anew, or repair them: ",
                                          candidates.damaged[0].second.message()));
}

absl::Status CheckRun(FileSystem& files, const std::string& directory, const Checkpoint& checkpoint,
                      absl::string_view run_id) {
  return CheckSameRun(files, directory, checkpoint.path(), checkpoint.manifest().run_id, run_id);
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenNewestCheckpoint(FileSystem& files,
                                                                 const std::string& directory,
                                                                 const RecoveryRequest& request) {
  PP_ASSIGN_OR_RETURN(const Candidates candidates, FindCandidates(files, directory, request));
  for (const auto& [step, problem] : candidates.damaged) LogRefusal(step, problem);
  std::vector<std::string> reasons;
  bool mismatch = false;
  for (const Candidate& candidate : candidates.found) {
    const uint64_t step = candidate.step;
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint;
    absl::Status status = CheckSameRun(files, directory, candidate, request);
    if (status.ok()) {
      checkpoint = ReadWithRetries(
          request, [&] { return Checkpoint::Open(files, directory, step, request.stopped); });
      status = checkpoint.status();
      if (absl::IsNotFound(status)) continue;  // deleted since FindCandidates
      if (IsReadFailure(status)) return CannotRecover(status, directory, step);
    }
    if (status.ok() && !request.run_id.empty()) {  // it may have been replaced since
      status = CheckRun(files, directory, **checkpoint, request.run_id);
    }
    if (status.ok() && request.layout != nullptr) {
      status = CheckLayout((*checkpoint)->manifest(), *request.layout);
    }
    if (status.ok()) {
      for (const auto& [damaged, problem] : candidates.damaged) {
        if (damaged > step) reasons.push_back(LineOf(damaged, problem));
      }
      LOG_IF(WARNING, !reasons.empty()) << "going back to " << (*checkpoint)->path()
                                        << "; skipped:\n  " << absl::StrJoin(reasons, "\n  ");
      return checkpoint;
    }
    mismatch = mismatch || absl::IsFailedPrecondition(status);
    LogRefusal(step, status);
    reasons.push_back(LineOf(step, status));
  }
  for (const auto& [step, problem] : candidates.damaged) reasons.push_back(LineOf(step, problem));
  if (reasons.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", directory));
  }
  const std::string message =
      absl::StrCat("none of the ", reasons.size(), " checkpoints in ", directory,
                   " can be used; move them away to start anew, or repair them:\n  ",
                   absl::StrJoin(reasons, "\n  "));
  return mismatch ? absl::FailedPreconditionError(message) : absl::DataLossError(message);
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(FileSystem& files,
                                                           const std::string& directory,
                                                           int64_t step,
                                                           const RecoveryRequest& request) {
  if (step < 0) return OpenNewestCheckpoint(files, directory, request);
  auto checkpoint = ReadWithRetries(request, [&] {
    return Checkpoint::Open(files, directory, static_cast<uint64_t>(step), request.stopped);
  });
  if (!absl::IsNotFound(checkpoint.status())) return checkpoint;
  PP_ASSIGN_OR_RETURN(const std::vector<uint64_t> steps, ListCheckpoints(files, directory));
  return absl::NotFoundError(
      absl::StrCat("there is no checkpoint of step ", step, " in ", directory, "; there are ",
                   steps.empty() ? "none" : "those of steps ", absl::StrJoin(steps, ", ")));
}

}  // namespace pushpull
