// Makes the timers of gRPC run on the steady clock.
//
// gRPC keeps its timers (deadlines of calls, probes of connections, pauses before it connects
// again) in steady time, but its timer threads sleep in absl::CondVar, and Abseil 20220623 sleeps
// until a point of the wall clock. Somebody who sets the date back by an hour would stop all timers
// of the process for an hour. Abseil leaves the function in which a thread sleeps to the program
// (the weak symbol AbslInternalPerThreadSemWait); steady_timers.cc defines it anew for the whole
// process, the libraries included.
#ifndef PUSHPULL_COMMON_RPC_STEADY_TIMERS_H_
#define PUSHPULL_COMMON_RPC_STEADY_TIMERS_H_

namespace pushpull {

// Links the definition into the program; does nothing else. InitGrpcRuntime calls it.
void UseSteadyTimers();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_STEADY_TIMERS_H_
