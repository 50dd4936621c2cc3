#include "worker/eval/detection_evaluation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "worker/data/image_encoder.h"
#include "worker/eval/coco_results_json.h"
#include "worker/eval/draw_boxes.h"
#include "worker/eval/metrics_set.h"

namespace pushpull {
namespace {

// Sums the losses of the batches to compute means over the images.
struct LossSums {
  double localization = 0.0;
  double classification = 0.0;
  int64_t images = 0;

  void Add(const StepResult& result) {
    const double samples = static_cast<double>(result.samples);
    localization += samples * result.detection.localization_loss;
    classification += samples * result.detection.classification_loss;
    images += result.samples;
  }
  void Report(EvaluationReport* report) const {
    const double count = static_cast<double>(images);
    report->scalars.push_back({"Losses/Loss/localization_loss", localization / count});
    report->scalars.push_back({"Losses/Loss/classification_loss", classification / count});
    report->examples = images;
  }
};

// Adds the field to an error of writing the export.
absl::Status NamingExportPath(const absl::Status& status) {
  return Annotated(status, absl::StrCat("eval_config.export_path: ", status.message()));
}

// Returns an error if the export cannot be written, unless that may pass.
absl::Status CheckExportPath(FileSystem* files, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status created = CocoResultsWriter::Create(files, path).status();
  if (created.ok()) return created;
  const absl::Status status = NamingExportPath(created);
  if (!IsPassing(status)) return status;
  LOG(WARNING) << "no file can be written at the moment: " << status.message();
  return absl::OkStatus();
}

// Writes the file of eval_config.export_path. After the first error it writes nothing more.
class Export {
 public:
  Export(FileSystem* files, const std::string& path) {
    if (path.empty()) return;
    absl::StatusOr<std::unique_ptr<CocoResultsWriter>> writer =
        CocoResultsWriter::Create(files, path);
    Note(writer.status());
    if (writer.ok()) writer_ = *std::move(writer);
  }
  void Add(int64_t image_id, const std::vector<DetectedBox>& detections) {
    if (writer_ != nullptr) Note(writer_->Add(image_id, detections));
  }
  // Returns the first error.
  absl::Status Finish() {
    if (writer_ != nullptr) Note(writer_->Finish());
    return status_;
  }

 private:
  void Note(const absl::Status& status) {
    if (status.ok()) return;
    status_ = NamingExportPath(status);
    writer_ = nullptr;
  }

  std::unique_ptr<CocoResultsWriter> writer_;  // null: nothing is written
  absl::Status status_;
};

}  // namespace

DetectionEvaluation::DetectionEvaluation(const config::EvalConfig& config,
                                         std::unique_ptr<EvaluationRun> run, FileSystem* files)
    : config_(config), run_(std::move(run)), files_(files), decoder_(*run_->spec().detection) {}

absl::StatusOr<std::unique_ptr<DetectionEvaluation>> DetectionEvaluation::Create(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    const ComputeOptions& compute, FileSystem* files, const std::atomic<bool>& stop) {
  PP_RETURN_IF_ERROR(CheckExportPath(files, config.eval_config().export_path()));
  PP_ASSIGN_OR_RETURN(std::unique_ptr<EvaluationRun> run,
                      EvaluationRun::Create(config, data_dir, compute, stop));
  return std::unique_ptr<DetectionEvaluation>(
      new DetectionEvaluation(config.eval_config(), std::move(run), files));
}

absl::StatusOr<EvaluationImage> DetectionEvaluation::DrawExample(
    int64_t index, const DetectionRecord& record) const {
  Example example;
  PP_RETURN_IF_ERROR(run_->source().Get(index, &example));
  DrawOptions options;
  options.min_score = config_.min_score_threshold();
  options.max_detections = config_.max_num_boxes_to_visualize();
  const Image drawn = DrawBoxes(example.image, record, run_->source().class_names(), options);
  EvaluationImage image;
  image.height = drawn.height;
  image.width = drawn.width;
  PP_RETURN_IF_ERROR(EncodePng(drawn, &image.png));
  return image;
}

absl::StatusOr<EvaluationReport> DetectionEvaluation::Run(absl::Span<const float> variables,
                                                          int64_t num_updates,
                                                          const std::atomic<bool>& stop,
                                                          const ProgressFn& progress) {
  MetricsSet metrics(config_, run_->source().class_names());
  Export results(files_, config_.export_path());
  LossSums losses;
  EvaluationReport report;
  const auto use = [&](const InputBatch& input, const StepResult& result) -> absl::Status {
    const auto detections = decoder_.Decode(run_->network().outputs(), input.windows, run_->pool());
    for (int64_t i = 0; i < input.n; ++i) {
      const int64_t index = input.samples[i].index;
      const ImageSize& size = input.original_sizes[i];
      const DetectionRecord record = MakeDetectionRecord(absl::StrCat(index), size.height,
                                                         size.width, input.boxes[i], detections[i]);
      PP_RETURN_IF_ERROR(metrics.AddImage(record));
      if (decoder_.diverged()[i]) metrics.AddDivergedImage();
      results.Add(index, record.detections);
      if (report.images.size() < config_.num_visualizations()) {
        PP_ASSIGN_OR_RETURN(EvaluationImage image, DrawExample(index, record));
        image.tag = absl::StrCat("image-", report.images.size());
        report.images.push_back(std::move(image));
      }
    }
    losses.Add(result);
    return absl::OkStatus();
  };
  PP_RETURN_IF_ERROR(run_->ForEachBatch(variables, num_updates, stop, progress, use));
  report.export_status = results.Finish();
  metrics.Report(&report);
  losses.Report(&report);
  return report;
}

}  // namespace pushpull
