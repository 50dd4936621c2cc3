// Encodes the reports of a clone process to its supervisor: one line of text per report, sent over
// a socket. Pure functions.
#ifndef PUSHPULL_WORKER_TRAIN_CLONE_REPORT_CODEC_H_
#define PUSHPULL_WORKER_TRAIN_CLONE_REPORT_CODEC_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "worker/client/clone_trainer.h"

namespace pushpull {

// Returns a line that ends with a newline and is shorter than PIPE_BUF (4096 bytes). A long
// waiting_for is cut.
std::string EncodeCloneReport(const CloneReport& report);
// Decodes a line without its newline. Returns nullopt if the line is not a report.
std::optional<CloneReport> DecodeCloneReport(absl::string_view line);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_CLONE_REPORT_CODEC_H_
