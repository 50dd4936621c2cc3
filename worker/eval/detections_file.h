// Measures the detections of another program by the metrics of the evaluator.
//
// Thread rule: a function without shared state.
#ifndef PUSHPULL_WORKER_EVAL_DETECTIONS_FILE_H_
#define PUSHPULL_WORKER_EVAL_DETECTIONS_FILE_H_

#include <atomic>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "protos/pipeline.pb.h"
#include "worker/eval/evaluation.h"

namespace pushpull {

// Compares the detections in the file `path` with the boxes of eval_input_reader. The file has
// COCO's results format (coco_results_reader.h) and counts the examples of the reader from 0. Like
// an evaluation of a checkpoint it uses the first eval_config.num_examples examples, or all. The
// report has the metrics of eval_config.metrics_set and an explanation, but neither losses nor
// images.
//
// `config` must be valid and its model a detector, of which only num_classes is used. Decodes all
// images, one after the other, for their sizes, and blocks until that is done.
// INVALID_ARGUMENT: the file is bad, as ReadCocoResults says. CANCELLED: `stop` became true; it is
// read while the data set is opened and before each image. Other errors as OpenImageSource, and of
// the file system.
absl::StatusOr<EvaluationReport> MeasureDetectionsFile(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    const std::string& path, FileSystem* files, const std::atomic<bool>& stop);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DETECTIONS_FILE_H_
