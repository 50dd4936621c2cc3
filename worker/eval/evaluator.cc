#include "worker/eval/evaluator.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"

namespace pushpull {
namespace {

// Above this share, the initial values of the moving statistics distort the metrics noticeably.
constexpr double kUnsettledShare = 0.01;

// Formats the first scalars for the log.
std::string Headline(const EvaluationReport& report) {
  constexpr size_t kShown = 3;
  const size_t count = std::min(kShown, report.scalars.size());
  return absl::StrJoin(report.scalars.begin(), report.scalars.begin() + count, ", ",
                       [](std::string* out, const ScalarSummary& scalar) {
                         absl::StrAppendFormat(out, "%s %.4f", scalar.tag, scalar.value);
                       });
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

}  // namespace

absl::Status WaitForPath(const EvaluatorContext& context, const std::string& path,
                         absl::Duration wait) {
  const absl::Duration deadline = context.clock->Now() + wait;
  while (true) {
    const absl::StatusOr<FileInfo> info = context.files->GetInfo(path);
    if (!absl::IsNotFound(info.status())) return info.status();
    if (context.stop->load()) return Stopped();
    if (context.clock->Now() >= deadline) {
      return NothingAppeared(absl::StrCat(path, " does not exist"), wait);
    }
    context.progress->Wait(absl::StrCat(path, " (does not exist yet)"));
    context.clock->Sleep(absl::Seconds(1));
  }
}

Evaluator::Evaluator(EvaluatorOptions options, EvaluatorContext context, Evaluation* evaluation)
    : options_(std::move(options)),
      context_(context),
      evaluation_(evaluation),
      watcher_(context.files, options_.checkpoint_dir) {}

absl::Status Evaluator::Run() {
  const absl::Status status = Follow();
  if (!options_.run_once && evaluated_ > 0) LogSummary();
  return status;
}

void Evaluator::LogSummary() const {
  context_.progress->Finish();
  LOG(INFO) << "checkpoints of " << options_.checkpoint_dir << " evaluated: " << evaluated_;
  if (!best_.has_value()) return;
  LOG(INFO) << absl::StrFormat("best %s: %.4f at step %d", best_->metric, best_->value,
                               best_->step);
}

absl::Status Evaluator::Follow() {
  const absl::Duration deadline = context_.clock->Now() + options_.wait;
  PP_RETURN_IF_ERROR(WaitForPath(context_, options_.checkpoint_dir, options_.wait));
  absl::Duration next_start = -absl::InfiniteDuration();
  std::string last = "none yet";
  while (!context_.stop->load()) {
    PP_RETURN_IF_ERROR(watcher_.Poll());
    if (watcher_.final_was_taken()) {
      const std::vector<uint64_t> rest = watcher_.untaken();
      LOG_IF(INFO, !rest.empty()) << "training has ended; not evaluated: steps "
                                  << absl::StrJoin(rest, ", ");
      return absl::OkStatus();
    }
    std::unique_ptr<Checkpoint> checkpoint;
    // With run_once, waits if a checkpoint cannot be read at the moment: the single evaluation
    // should not go to an older one.
    const bool spared = options_.run_once && !watcher_.unreadable().empty();
    if (watcher_.has_new() && !spared &&
        (context_.clock->Now() >= next_start || watcher_.final_is_there())) {
      next_start = context_.clock->Now() + options_.eval_interval;
      checkpoint = watcher_.Take();
    }
    if (checkpoint != nullptr) {
      context_.progress->Finish();
      PP_RETURN_IF_ERROR(EvaluateOne(*checkpoint));
      last = absl::StrCat("last evaluated: step ", checkpoint->manifest().step);
      ++evaluated_;
      if (options_.run_once || evaluated_ == options_.max_evals) return absl::OkStatus();
      continue;
    }
    if (options_.run_once) PP_RETURN_IF_ERROR(CheckRunOnce(deadline));
    context_.progress->Wait(
        absl::StrCat("a checkpoint in ", options_.checkpoint_dir, " (", last, ")"));
    context_.clock->Sleep(options_.poll_interval);
  }
  return Stopped();
}

absl::Status Evaluator::CheckRunOnce(absl::Duration deadline) {
  const std::vector<std::string> refusals = watcher_.refusals();
  if (!refusals.empty()) {
    return absl::DataLossError(absl::StrCat("no checkpoint in ", options_.checkpoint_dir,
                                            " can be used:\n  ", absl::StrJoin(refusals, "\n  ")));
  }
  if (context_.clock->Now() < deadline) return absl::OkStatus();
  if (!watcher_.unreadable().empty()) {
    return absl::UnavailableError(absl::StrCat("a checkpoint in ", options_.checkpoint_dir,
                                               " cannot be read: ", watcher_.unreadable()));
  }
  return NothingAppeared(absl::StrCat("there is no checkpoint in ", options_.checkpoint_dir),
                         options_.wait);
}

absl::Status Evaluator::EvaluateOne(const Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest();
  const EvaluationRecord record(context_.files, options_.eval_dir, manifest.step);
  const VariableLayout& layout = evaluation_->layout();
  const ElementRange all = {0, layout.total_elements()};
  std::vector<float> variables(all.size());
  PP_RETURN_IF_ERROR(options_.use_moving_averages
                         ? checkpoint.ReadEma(layout, all, variables.data())
                         : checkpoint.ReadWeights(layout, all, variables.data()));
  const int64_t updates = static_cast<int64_t>(manifest.updates);
  if (const double share = evaluation_->UnsettledShare(updates); share > kUnsettledShare) {
    LOG(WARNING) << absl::StrFormat(
        "step %d: after %d updates the moving statistics of batch normalisation still hold %.1f%% "
        "of their initial values. Unless a warm start brought these, the metrics are too low; "
        "train longer, lower batch_norm.decay, or set "
        "batch_norm.bias_corrected_moving_statistics",
        manifest.step, updates, 100.0 * share);
  }
  const absl::Duration start = context_.clock->Now();
  PP_ASSIGN_OR_RETURN(const EvaluationReport report,
                      evaluation_->Run(variables, updates, *context_.stop));
  LOG(INFO) << absl::StrFormat(
      "step %d: %s over %d examples in %s", manifest.step, Headline(report), report.examples,
      absl::FormatDuration(absl::Trunc(context_.clock->Now() - start, absl::Milliseconds(100))));
  LOG_IF(WARNING, !report.explanation.empty())
      << "step " << manifest.step << ": " << report.explanation;
  return Report(manifest, report);
}

absl::Status Evaluator::OpenEvents() {
  if (events_ != nullptr) return absl::OkStatus();
  PP_ASSIGN_OR_RETURN(events_, EventWriter::Create(context_.files, options_.eval_dir));
  const absl::StatusOr<std::optional<BestCheckpoint>> best =
      ReadBestCheckpoint(*context_.files, options_.eval_dir);
  LOG_IF(WARNING, !best.ok()) << "written anew: " << best.status().message();
  // Keeps the recorded best only if its checkpoint exists; otherwise it may be from another run.
  if (best.ok() && best->has_value() &&
      context_.files->GetInfo(JoinPath(options_.checkpoint_dir, CheckpointName((*best)->step)))
          .ok()) {
    best_ = **best;
  }
  return absl::OkStatus();
}

absl::Status Evaluator::Report(const CheckpointManifest& manifest, const EvaluationReport& report) {
  PP_RETURN_IF_ERROR(OpenEvents());
  const int64_t step = static_cast<int64_t>(manifest.step);
  std::vector<ScalarSummary> defined;
  for (const ScalarSummary& scalar : report.scalars) {
    if (!std::isnan(scalar.value)) defined.push_back(scalar);
  }
  events_->AddScalars(step, defined);
  for (const EvaluationImage& image : report.images) {
    events_->AddImage(step, image.tag, image.height, image.width, 3, image.png);
  }
  PP_RETURN_IF_ERROR(events_->Flush());
  KeepBest(manifest.step, report.scalars.front());
  if (options_.run_once) {
    nlohmann::ordered_json result = {{"step", manifest.step}};
    // An undefined metric (NaN) becomes null.
    for (const ScalarSummary& scalar : report.scalars) result[scalar.tag] = scalar.value;
    result["examples"] = report.examples;
    *context_.results << JsonLine(result) << std::endl;
  }
  return absl::OkStatus();
}

void Evaluator::KeepBest(uint64_t step, const ScalarSummary& metric) {
  if (std::isnan(metric.value)) return;
  if (best_.has_value() && best_->metric == metric.tag && best_->value >= metric.value) return;
  // best_checkpoint protects one checkpoint from deletion, so it must not move on to one that is
  // already gone.
  const std::string folder = JoinPath(options_.checkpoint_dir, CheckpointName(step));
  if (absl::IsNotFound(context_.files->GetInfo(folder).status())) {
    LOG(WARNING) << absl::StrFormat(
        "step %d has the best %s so far, %.4f, but its checkpoint was deleted during the "
        "evaluation and cannot be kept as the best one; raise train_config.max_to_keep",
        step, metric.tag, metric.value);
    return;
  }
  best_ = BestCheckpoint{step, metric.tag, metric.value};
  const absl::Status written = WriteBestCheckpoint(*context_.files, options_.eval_dir, *best_);
  LOG_IF(WARNING, !written.ok()) << "the best checkpoint is not protected from deletion: "
                                 << written.message();
}

}  // namespace pushpull
