// Tested by tests/worker/eval/detections_file_test.cc.
#include "worker/eval/detections_file.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "worker/data/image_source_factory.h"
#include "worker/eval/coco_results_reader.h"
#include "worker/eval/detection_decoder.h"
#include "worker/eval/evaluation_run.h"
#include "worker/eval/metrics_set.h"

namespace pushpull {

absl::StatusOr<EvaluationReport> MeasureDetectionsFile(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    const std::string& path, FileSystem* files, const std::atomic<bool>& stop) {
  ImageSourceOptions options;
  options.data_dir = data_dir;
  options.num_classes = config.model().ssd().num_classes();
  options.annotation = Annotation::kBoxes;
  options.field_name = "eval_input_reader";
  options.stopped = [&stop] { return stop.load(); };
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<ImageSource> source,
                      OpenImageSource(config.eval_input_reader(0), options));
  const int64_t count = NumEvaluated(config.eval_config(), source->size());
  PP_ASSIGN_OR_RETURN(
      std::vector<std::vector<DetectedBox>> detections,
      ReadCocoResults(*files, path, count, options.num_classes,
                      count < source->size()
                          ? "the number of an example of eval_input_reader, of which "
                            "eval_config.num_examples says how many count"
                          : "the number of an example of eval_input_reader"));

  MetricsSet metrics(config.eval_config(), source->class_names());
  Example example;
  for (int64_t i = 0; i < count; ++i) {
    if (stop.load()) return absl::CancelledError("stopped while detections were measured");
    PP_RETURN_IF_ERROR(source->Get(i, &example));
    DetectionRecord record = MakeDetectionRecord(absl::StrCat(i), example.image.height,
                                                 example.image.width, example.boxes, {});
    record.detections = std::move(detections[i]);
    PP_RETURN_IF_ERROR(metrics.AddImage(record));
  }
  EvaluationReport report;
  metrics.Report(&report);
  report.examples = count;
  return report;
}

}  // namespace pushpull
