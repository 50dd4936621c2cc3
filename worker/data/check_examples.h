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

// Calls get(i, example) for every i in [0, size) on the pool's threads and blocks until all calls
// have returned. Each thread reuses one Example. If calls fail, the error has the code of the
// failed call with the lowest index, and its message quotes the ten failures with the lowest
// indices: "<name>: 3 of 200 images cannot be read; ...". The order of the threads does not matter.
// CANCELLED: `stopped` returned true, and the rest was left out.
absl::Status CheckExamples(int64_t size, absl::string_view name, ThreadPool* pool,
                           StoppedFn stopped,
                           absl::FunctionRef<absl::Status(int64_t, Example*)> get);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_CHECK_EXAMPLES_H_
