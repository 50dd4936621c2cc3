// Makes gRPC's timers sleep on the steady clock.
//
// gRPC keeps the times of its timers (deadlines, keepalive probes, reconnect backoff) in steady
// time. Its timer threads, however, sleep in absl::CondVar, and Abseil 20220623 sleeps until a time
// of the wall clock: setting the date back by an hour would stop all timers of the process for an
// hour. Abseil lets a program replace the function in which threads sleep, the weak symbol
// AbslInternalPerThreadSemWait. steady_timers.cc defines it for the whole process, including its
// libraries.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_STEADY_TIMERS_H_
#define PUSHPULL_COMMON_WIRE_GRPC_STEADY_TIMERS_H_

namespace pushpull {

// Does nothing, but a reference to it links the definition into the program. InitGrpcRuntime calls
// it.
void UseSteadyTimers();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_STEADY_TIMERS_H_
