// Descriptors are the first thing that connections use up.
#ifndef PUSHPULL_COMMON_RPC_DESCRIPTOR_BUDGET_H_
#define PUSHPULL_COMMON_RPC_DESCRIPTOR_BUDGET_H_

namespace pushpull {

// How many connections at once each of `listeners` addresses can have, at most `wanted`. Raises the
// process's limit of open files (ulimit -n) as far as that needs and the system allows; where it
// does not allow enough, says so in the log. At least 1.
int FitConnections(int wanted, int listeners);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_DESCRIPTOR_BUDGET_H_
