#include "worker/eval/evaluator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/output_folder.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"
#include "common/cli/print_result.h"

namespace pushpull {
namespace {

// Above this share, the initial values of the moving statistics distort the metrics noticeably.
constexpr double kUnsettledShare = 0.01;

// How often an evaluation that takes longer says how far it is.
constexpr absl::Duration kProgressPeriod = absl::Seconds(10);

// Formats the first scalars for the log.
std::string Headline(const EvaluationReport& report) {
  constexpr size_t kShown = 3;
  const size_t count = std::min(kShown, report.scalars.size());
  return absl::StrJoin(report.scalars.begin(), report.scalars.begin() + count, ", ",
                       [](std::string* out, const ScalarSummary& scalar) {
                         absl::StrAppendFormat(out, "%s %.4f", scalar.tag, scalar.value);
                       });
}

// Adds to an error of the folder for the evaluator's files what can be done about it.
absl::Status NamingEvalDir(const absl::Status& status) {
  if (status.ok()) return status;
  return Annotated(status,
                   absl::StrCat(status.message(),
                                "; --eval_dir names another folder for the evaluator's files"));
}

absl::Status Stopped() { return absl::CancelledError("stopped by a signal"); }

// Returns the error for something that did not appear within `wait`. An evaluator that waits
// expects a server to write it, which may only be late, so another start may help.
absl::Status NothingAppeared(absl::string_view problem, absl::Duration wait) {
  const std::string message =
      absl::StrCat(problem, ", after waiting for ", absl::FormatDuration(wait));
  return wait > absl::ZeroDuration() ? absl::DeadlineExceededError(message)
                                     : absl::NotFoundError(message);
}

// Calls `look` every second while it returns NOT_FOUND, for at most about `wait`, and shows the
// wait for `path`.
template <typename Look>
absl::Status WaitUntilFound(const EvaluatorContext& context, const std::string& path,
                            absl::Duration wait, const Look& look) {
  const absl::Duration deadline = context.clock->Now() + wait;
  while (true) {
    const absl::Status found = look();
    if (!absl::IsNotFound(found)) return found;
    if (context.stop->load()) return Stopped();
    if (context.clock->Now() >= deadline) {
      return NothingAppeared(absl::StrCat(path, " does not exist"), wait);
    }
    context.progress->Wait(absl::StrCat(path, " (does not exist yet)"));
    context.clock->Sleep(absl::Seconds(1));
  }
}

// FAILED_PRECONDITION: the path, or a folder on it, is a file, so that waiting cannot help.
absl::Status CheckHasNoFile(FileSystem& files, const std::string& path) {
  for (std::string part = path;;) {
    if (files.OpenForRead(part).ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(part, " is a file, expected a folder: the train_dir of ps_server"));
    }
    const std::string parent = FolderOf(part);
    if (parent == part) return absl::OkStatus();
    part = parent;
  }
}

}  // namespace

absl::Status WaitForFolder(const EvaluatorContext& context, const std::string& path,
                           absl::Duration wait) {
  return WaitUntilFound(context, path, wait, [&]() -> absl::Status {
    const absl::Status listed = context.files->List(path).status();
    if (absl::IsNotFound(listed)) PP_RETURN_IF_ERROR(CheckHasNoFile(*context.files, path));
    return listed;
  });
}

absl::Status WaitForPath(const EvaluatorContext& context, const std::string& path,
                         absl::Duration wait) {
  return WaitUntilFound(context, path, wait, [&] { return context.files->GetInfo(path).status(); });
}

Evaluator::Evaluator(EvaluatorOptions options, EvaluatorContext context, Evaluation* evaluation)
    : options_(std::move(options)),
      context_(context),
      evaluation_(evaluation),
      watcher_(context.files, options_.checkpoint_dir),
      best_(context.files, options_.checkpoint_dir, options_.eval_dir, options_.config_digest) {}

absl::Status Evaluator::CheckEvalDir() const {
  if (!options_.records_best) return absl::OkStatus();
  const absl::Status checked = CheckTakesFiles(context_.files, options_.eval_dir);
  if (!IsPassing(checked)) return NamingEvalDir(checked);
  LOG(WARNING) << "no file can be written at the moment: " << checked.message();
  return absl::OkStatus();
}

absl::Status Evaluator::Run() {
  const absl::Status status = Follow();
  FinishBest();
  if (!options_.run_once && evaluated_ > 0) LogSummary();
  return status;
}

void Evaluator::LogSummary() const {
  context_.progress->Finish();
  LOG(INFO) << "checkpoints of " << options_.checkpoint_dir << " evaluated: " << evaluated_;
  const std::optional<BestCheckpoint>& best = best_.best();
  if (!best.has_value()) return;
  LOG(INFO) << absl::StrFormat("best %s: %.4f at step %d", best->metric, best->value, best->step);
}

absl::Status Evaluator::Follow() {
  const absl::Duration deadline = context_.clock->Now() + options_.wait;
  PP_RETURN_IF_ERROR(WaitForFolder(context_, options_.checkpoint_dir, options_.wait));
  PP_RETURN_IF_ERROR(CheckEvalDir());
  std::string last = "none yet";
  bool poll_failed = false;
  const auto wait = [&] {
    context_.progress->Wait(
        absl::StrCat("a checkpoint in ", options_.checkpoint_dir, " (", last, ")"));
    context_.clock->Sleep(options_.poll_interval);
  };
  while (!context_.stop->load()) {
    SettleBest();
    const bool is_late = context_.clock->Now() >= deadline;
    const absl::Status polled = watcher_.Poll();
    if (absl::IsNotFound(polled) && evaluated_ == 0) {
      // A server whose start has failed removes the folder that it has created.
      PP_RETURN_IF_ERROR(WaitForFolder(context_, options_.checkpoint_dir, options_.wait));
      continue;
    }
    const bool polled_before = !std::exchange(poll_failed, !polled.ok());
    if (IsAwaited(polled, is_late)) {
      LOG_IF(WARNING, polled_before) << polled.message() << "; trying again";
      wait();
      continue;
    }
    PP_RETURN_IF_ERROR(polled);
    // The server writes its config before its first checkpoint, so one that Poll has found and that
    // is of another config is not evaluated with this one.
    if (CheckConfig()) return absl::OkStatus();
    if (watcher_.final_was_taken()) {
      const std::vector<uint64_t> rest = watcher_.untaken();
      LOG_IF(INFO, !rest.empty()) << "training has ended; not evaluated: steps "
                                  << absl::StrJoin(rest, ", ");
      return absl::OkStatus();
    }
    PP_ASSIGN_OR_RETURN(const std::optional<uint64_t> step, EvaluateNext(is_late));
    if (step.has_value()) {
      last = absl::StrCat("last evaluated: step ", *step);
      ++evaluated_;
      if (HasEvaluatedEnough()) return absl::OkStatus();
      continue;
    }
    if (options_.run_once) PP_RETURN_IF_ERROR(CheckRunOnce(is_late));
    wait();
  }
  return Stopped();
}

bool Evaluator::CheckConfig() {
  if (context_.config == nullptr) return false;
  const std::string change = context_.config->DescribeChange();
  if (change.empty()) return false;
  context_.progress->Finish();
  LOG(WARNING) << context_.config->path() << " has changed (" << change
               << "): evaluating the existing checkpoints again with the new config";
  config_has_changed_ = true;
  return true;
}

bool Evaluator::IsAwaited(const absl::Status& status, bool is_late) const {
  return IsReadFailure(status) && !(options_.run_once && is_late);
}

absl::StatusOr<std::optional<uint64_t>> Evaluator::EvaluateNext(bool is_late) {
  while (true) {
    const std::unique_ptr<Checkpoint> checkpoint = TakeNext(is_late);
    if (checkpoint == nullptr) return std::nullopt;
    const CheckpointManifest& manifest = checkpoint->manifest();
    context_.progress->Finish();
    if (options_.run_once) WarnOfUnusable(manifest.step);
    PP_RETURN_IF_ERROR(OpenFiles(manifest));
    const absl::StatusOr<std::vector<float>> variables = ReadVariables(*checkpoint);
    if (!IsReadFailure(variables.status())) {
      PP_RETURN_IF_ERROR(variables.status());
      PP_RETURN_IF_ERROR(EvaluateOne(manifest, *variables));
      return manifest.step;
    }
    watcher_.NoteUnreadable(manifest.step, variables.status());
    next_start_ = -absl::InfiniteDuration();
    if (IsAwaited(variables.status(), is_late)) {
      watcher_.PutBack(manifest);
      return std::nullopt;
    }
    // The checkpoint stays taken, so that an older one is tried.
  }
}

std::unique_ptr<Checkpoint> Evaluator::TakeNext(bool is_late) {
  const absl::Duration now = context_.clock->Now();
  const bool may_start = now >= next_start_ || watcher_.final_is_there();
  if (!watcher_.has_new() || !may_start) return nullptr;
  const std::optional<uint64_t> first = StepToTakeFirst();
  std::unique_ptr<Checkpoint> checkpoint = watcher_.Take(HowToTake(is_late), first);
  if (checkpoint == nullptr) return nullptr;
  next_start_ = now + options_.eval_interval;
  if (!first.has_value()) return checkpoint;
  if (checkpoint->manifest().step == *first) {
    LOG(INFO) << "evaluating first the best checkpoint so far, of step " << *first
              << ", whose value is that of another config";
  } else {
    // It was refused, or its new value is undefined, so it is not compared.
    best_.GiveUp(*first);
  }
  return checkpoint;
}

std::optional<uint64_t> Evaluator::StepToTakeFirst() const {
  if (!options_.records_best || options_.run_once) return std::nullopt;
  return best_.StepToMeasureAnew().value_or(std::nullopt);
}

bool Evaluator::HasEvaluatedEnough() const {
  if (options_.run_once) return true;
  if (evaluated_ != options_.max_evals) return false;
  LOG_IF(WARNING, !watcher_.final_was_taken())
      << "eval_config.max_evals is " << options_.max_evals
      << ", so the evaluator ends before training does, and does not evaluate the last "
         "checkpoint. Remove max_evals to evaluate all";
  return true;
}

CheckpointWatcher::Unreadable Evaluator::HowToTake(bool is_late) const {
  if (!options_.run_once) return CheckpointWatcher::Unreadable::kRetry;
  // The single evaluation should go to the newest checkpoint, which is whole, because the server
  // publishes it by a rename. So an error of the file system is given time to pass.
  return is_late ? CheckpointWatcher::Unreadable::kPassOver : CheckpointWatcher::Unreadable::kWait;
}

void Evaluator::WarnOfUnusable(uint64_t step) const {
  const std::vector<std::string> newer = watcher_.UnusableAfter(step);
  LOG_IF(WARNING, !newer.empty()) << CheckpointName(step) << " is evaluated, because no newer "
                                  << "checkpoint can be used:\n  " << absl::StrJoin(newer, "\n  ");
}

absl::Status Evaluator::CheckRunOnce(bool is_late) const {
  // A checkpoint that cannot be read may be good, whatever is wrong with others.
  const std::vector<std::string> unreadable = watcher_.unreadable();
  if (!unreadable.empty()) {
    if (!is_late) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("no checkpoint in ", options_.checkpoint_dir,
                                               " can be read:\n  ",
                                               absl::StrJoin(unreadable, "\n  ")));
  }
  const std::vector<std::string> refusals = watcher_.refusals();
  if (!refusals.empty()) {
    return absl::DataLossError(absl::StrCat("no checkpoint in ", options_.checkpoint_dir,
                                            " can be used:\n  ", absl::StrJoin(refusals, "\n  ")));
  }
  if (!is_late) return absl::OkStatus();
  std::string problem = absl::StrCat("there is no checkpoint in ", options_.checkpoint_dir);
  if (const std::vector<uint64_t> others = watcher_.of_other_runs(); !others.empty()) {
    absl::StrAppend(&problem, " of the run that its run_id file names; those of steps ",
                    absl::StrJoin(others, ", "), " are of another run");
  }
  return NothingAppeared(problem, options_.wait);
}

absl::StatusOr<std::vector<float>> Evaluator::ReadVariables(const Checkpoint& checkpoint) const {
  const VariableLayout& layout = evaluation_->layout();
  const ElementRange all = {0, layout.total_elements()};
  std::vector<float> variables(all.size());
  PP_RETURN_IF_ERROR(options_.use_moving_averages
                         ? checkpoint.ReadEma(layout, all, variables.data())
                         : checkpoint.ReadWeights(layout, all, variables.data()));
  return variables;
}

absl::Status Evaluator::EvaluateOne(const CheckpointManifest& manifest,
                                    const std::vector<float>& variables) {
  const int64_t updates = static_cast<int64_t>(manifest.updates);
  if (const double share = evaluation_->UnsettledShare(updates); share > kUnsettledShare) {
    LOG(WARNING) << absl::StrFormat(
        "step %d: after %d updates the moving statistics of batch normalisation still hold %.1f%% "
        "of their initial values. Unless a warm start brought these, the metrics are too low; "
        "train longer, lower batch_norm.decay, or begin a new train_dir with "
        "batch_norm.bias_corrected_moving_statistics: true",
        manifest.step, updates, 100.0 * share);
  }
  const absl::Duration start = context_.clock->Now();
  const auto show_progress = [this, step = manifest.step, shown = start](int64_t done,
                                                                         int64_t total) mutable {
    const absl::Duration now = context_.clock->Now();
    if (done == total || now - shown < kProgressPeriod) return;
    shown = now;
    LOG(INFO) << "evaluating step " << step << ": " << done << " of " << total << " examples";
  };
  PP_ASSIGN_OR_RETURN(const EvaluationReport report,
                      evaluation_->Run(variables, updates, *context_.stop, show_progress));
  LOG(INFO) << absl::StrFormat(
      "step %d: %s over %d examples in %s", manifest.step, Headline(report), report.examples,
      absl::FormatDuration(absl::Trunc(context_.clock->Now() - start, absl::Milliseconds(100))));
  LOG_IF(WARNING, !report.explanation.empty())
      << "step " << manifest.step << ": " << report.explanation;
  Report(manifest, report);
  if (options_.run_once) {
    PP_RETURN_IF_ERROR(PrintJson(manifest.step, report));
    return report.export_status;
  }
  LOG_IF(ERROR, !report.export_status.ok())
      << "step " << manifest.step
      << ": the detections are not exported: " << report.export_status.message();
  return absl::OkStatus();
}

absl::Status Evaluator::OpenFiles(const CheckpointManifest& manifest) {
  if (run_id_ != manifest.run_id) {
    if (!run_id_.empty()) {
      LOG(WARNING) << options_.checkpoint_dir << " now has checkpoints of another run, "
                   << manifest.run_id << " instead of " << run_id_
                   << ": its metrics go into a new event file, and no best checkpoint is known";
    }
    events_.reset();
    best_.Forget();
    run_id_ = manifest.run_id;
  }
  if (options_.records_best) {
    // The old record must not remove the file of a new one of the same step.
    evaluating_.reset();
    evaluating_ =
        std::make_unique<EvaluationRecord>(context_.files, options_.eval_dir, manifest.step);
  }
  if (events_ != nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<EventWriter>> events =
      EventWriter::Create(context_.files, options_.eval_dir);
  if (events.ok()) {
    events_ = *std::move(events);
    return absl::OkStatus();
  }
  if (!options_.records_best) {
    LOG(WARNING) << "no event file is written: " << events.status().message();
    return absl::OkStatus();
  }
  if (!IsPassing(events.status())) return NamingEvalDir(events.status());
  LOG(WARNING) << "no event file can be created at the moment, trying again: "
               << events.status().message();
  events_ = EventWriter::CreateAtFirstFlush(context_.files, options_.eval_dir);
  return absl::OkStatus();
}

absl::Status Evaluator::PrintJson(uint64_t step, const EvaluationReport& report) {
  nlohmann::ordered_json result = {{"step", step}};
  // An undefined metric (NaN) becomes null.
  for (const ScalarSummary& scalar : report.scalars) result[scalar.tag] = scalar.value;
  result["examples"] = report.examples;
  return PrintResult(*context_.results, absl::StrCat(JsonLine(result), "\n"));
}

void Evaluator::Report(const CheckpointManifest& manifest, const EvaluationReport& report) {
  const ScalarSummary& metric = report.scalars.front();
  if (options_.records_best && !std::isnan(metric.value)) {
    best_.Add({manifest.step, metric.tag, metric.value, manifest.run_id, manifest.epoch});
  }
  SettleBest();
  if (events_ == nullptr) return;
  const int64_t step = static_cast<int64_t>(manifest.step);
  std::vector<ScalarSummary> defined;
  for (const ScalarSummary& scalar : report.scalars) {
    if (!std::isnan(scalar.value)) defined.push_back(scalar);
  }
  events_->AddScalars(step, defined);
  // The folder is missing if the disk was full when the evaluator began.
  MakeDirectories(*context_.files, options_.eval_dir).IgnoreError();
  // The writer logs a failure, keeps the events and writes them later. All images together may be
  // more than it keeps.
  events_->Flush().IgnoreError();
  for (const EvaluationImage& image : report.images) {
    events_->AddImage(step, image.tag, image.height, image.width, 3, image.png);
    events_->Flush().IgnoreError();
  }
}

void Evaluator::SettleBest() {
  const absl::Status settled = best_.Settle();
  LOG_IF(WARNING, !settled.ok() && !best_failed_)
      << "the best checkpoint is not protected from deletion yet, trying again: "
      << settled.message();
  best_failed_ = !settled.ok();
  if (settled.ok()) evaluating_.reset();
}

void Evaluator::FinishBest() {
  constexpr int kAttempts = 10;
  for (int i = 0; i < kAttempts && !best_.settled(); ++i) {
    SettleBest();
    if (best_.settled() || context_.stop->load()) break;
    context_.clock->Sleep(options_.poll_interval);
  }
  LOG_IF(ERROR, !best_.settled())
      << "the best checkpoint could not be recorded in " << options_.eval_dir
      << "; evaluate the last checkpoint again before the server deletes it";
}

}  // namespace pushpull
