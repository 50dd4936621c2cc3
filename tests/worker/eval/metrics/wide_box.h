// Boxes for cases that are small enough to compute by hand.
#ifndef PUSHPULL_TESTS_WORKER_EVAL_METRICS_WIDE_BOX_H_
#define PUSHPULL_TESTS_WORKER_EVAL_METRICS_WIDE_BOX_H_

#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

// A box at (0, x) that is 10 pixels high.
inline PixelBox Wide(float x, float width) { return {0, x, 10, x + width}; }

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_EVAL_METRICS_WIDE_BOX_H_
