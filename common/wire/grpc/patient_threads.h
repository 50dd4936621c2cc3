// Makes every pthread_create of the process wait for memory. gRPC 1.51 ignores that a thread could
// not be started and hands work to it all the same: calls then never end, their pulls pin versions
// of the variables, and the server cannot shut down.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_PATIENT_THREADS_H_
#define PUSHPULL_COMMON_WIRE_GRPC_PATIENT_THREADS_H_

namespace pushpull {

// Does nothing when it runs: a call of it links the replacement into the program. While
// pthread_create fails for lack of memory or threads (EAGAIN), the replacement repeats it. After
// half a minute it aborts the process with a message, because a restarted process can go on, but
// this one cannot go on without the thread. Builds with a sanitizer have no replacement, because
// the sanitizer replaces pthread_create itself.
void UsePatientThreads();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_PATIENT_THREADS_H_
