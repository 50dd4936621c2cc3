// A table of a step's operators: milliseconds, bytes per second, and the ratio to the floor that
// memory sets.
#ifndef PUSHPULL_SCRIPTS_BENCH_STEP_OPERATOR_TABLE_H_
#define PUSHPULL_SCRIPTS_BENCH_STEP_OPERATOR_TABLE_H_

#include <string>
#include <vector>

#include "scripts/bench/step/device_step.h"

namespace pushpull {

enum class TableRows { kKind, kLayer };  // one row per kind of operator, or per kind and shape

// Sorts by time, slowest first. The floor is the number of bytes that an operator has to move
// (kernels/profiled_operators.h) divided by `bandwidth` in bytes per second.
std::string FormatOperatorTable(const std::vector<OperatorTime>& operators, TableRows rows,
                                double bandwidth);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_STEP_OPERATOR_TABLE_H_
