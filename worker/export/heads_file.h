// Makes the file beside an ONNX model with raw heads (BuildRawHeadsModel): what a program needs to
// prepare the model's input and to make boxes and scores of its outputs. Thread-safe.
#ifndef PUSHPULL_WORKER_EXPORT_HEADS_FILE_H_
#define PUSHPULL_WORKER_EXPORT_HEADS_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/file_system.h"
#include "worker/export/inference_model.h"

namespace pushpull {

// Returns the path with .heads.json in place of its ending .onnx (CHECK).
std::string HeadsFilePath(const std::string& onnx_path);

// Checks that the exporter may replace or remove the file at `path`: there is none, or
// EncodeHeadsFile has made it. FAILED_PRECONDITION: it is another file, or a folder. Otherwise
// errors as ReadWholeFile, but never NOT_FOUND. Reads the whole file.
absl::Status CheckOwnHeadsFile(FileSystem& files, const std::string& path);

// Returns the contents of the file, one JSON object, which docs/FORMATS.md describes.
// `class_names` are indexed by label (FindClassNames); empty: the names are not known.
std::string EncodeHeadsFile(const InferenceModel& model,
                            const std::vector<std::string>& class_names);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_HEADS_FILE_H_
