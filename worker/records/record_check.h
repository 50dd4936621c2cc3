// Reads every record of existing files and says what is wrong with them.
#ifndef PUSHPULL_WORKER_RECORDS_RECORD_CHECK_H_
#define PUSHPULL_WORKER_RECORDS_RECORD_CHECK_H_

#include "absl/status/statusor.h"

#include "common/thread_pool.h"
#include "worker/data/record_source.h"
#include "worker/records/record_progress.h"
#include "worker/records/record_writer.h"

namespace pushpull {

// Decodes every image on the pool's threads; `files` of the summary stays empty. CANCELLED when
// stopped. Blocks until done.
absl::StatusOr<RecordSummary> CheckRecords(const RecordSource& source,
                                           const RecordProgress& progress, ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_RECORDS_RECORD_CHECK_H_
