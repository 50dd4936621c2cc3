// Checks every record in existing TFRecord files.
#ifndef PUSHPULL_WORKER_RECORDS_RECORD_CHECK_H_
#define PUSHPULL_WORKER_RECORDS_RECORD_CHECK_H_

#include "absl/status/statusor.h"

#include "common/base/thread_pool.h"
#include "worker/data/record_source.h"
#include "worker/records/record_progress.h"
#include "worker/records/record_writer.h"

namespace pushpull {

// Decodes every image on the pool's threads and counts good and bad images and boxes. Blocks until
// done. RecordSummary::files stays empty. Problems in records are in the summary and are no errors.
// Errors: CANCELLED if progress.stop was set, and the first of a record that cannot be read now but
// may be later (passing_error.h).
absl::StatusOr<RecordSummary> CheckRecords(const RecordSource& source,
                                           const RecordProgress& progress, ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_RECORDS_RECORD_CHECK_H_
