// The table of a step's operators: milliseconds, bytes per second and the share of what memory
// allows.
#ifndef PUSHPULL_SCRIPTS_BENCH_STEP_OPERATOR_TABLE_H_
#define PUSHPULL_SCRIPTS_BENCH_STEP_OPERATOR_TABLE_H_

#include <string>
#include <vector>

#include "scripts/bench/step/device_step.h"

namespace pushpull {

enum class TableRows { kKind, kLayer };  // one row per kind of operator, or per kind and shape

// Slowest first. `bandwidth` in bytes per second is what the floor is computed with: the bytes an
// operator has to move (kernels/profiled_operators.h) over it.
std::string FormatOperatorTable(const std::vector<OperatorTime>& operators, TableRows rows,
                                double bandwidth);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_STEP_OPERATOR_TABLE_H_
