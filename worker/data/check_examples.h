// The part of ImageSource::Check that all implementations share.
#ifndef PUSHPULL_WORKER_DATA_CHECK_EXAMPLES_H_
#define PUSHPULL_WORKER_DATA_CHECK_EXAMPLES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/base/thread_pool.h"
#include "worker/data/image_source.h"

namespace pushpull {

// Calls get(i, example) for every i in [0, source.size()) on the pool's threads and blocks until
// all calls have returned. Each thread reuses one Example. The order of the threads does not
// matter.
//
// Logs a warning that names the first damaged images that decode (ImageProblems).
//
// If calls fail, the message quotes the ten failures with the lowest indices, with the name of the
// source: "<name>: 3 of 200 images cannot be read; ...". Its code is that of the failure with the
// lowest index among those that do not pass (passing_error.h). If all failures may pass, it is that
// of the lowest index, and the error is marked as passing too.
//   INVALID_ARGUMENT: the source must have boxes (place_of_boxes), and no example has one; the
//     message says what is wrong with the first box that was left out, or where boxes are expected
//   CANCELLED: `stopped` returned true, and the rest was left out
absl::Status CheckExamples(const ImageSource& source, absl::string_view name, ThreadPool* pool,
                           StoppedFn stopped,
                           absl::FunctionRef<absl::Status(int64_t, Example*)> get);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_CHECK_EXAMPLES_H_
