// Makes every pthread_create of the process wait for memory. gRPC 1.51 ignores that a thread could
// not be started and hands work to it all the same: calls then never end, their pulls pin versions
// of the variables, and the server cannot shut down.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_PATIENT_THREADS_H_
#define PUSHPULL_COMMON_WIRE_GRPC_PATIENT_THREADS_H_

namespace pushpull {

// The replacement is part of each program that calls this function, which does nothing itself.
// While pthread_create fails for lack of memory or threads (EAGAIN) it is repeated; after half a
// minute the process aborts with a message, as a restarted process can go on and one without the
// thread cannot. In builds with a sanitizer, which replaces pthread_create itself, nothing changes.
void UsePatientThreads();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_PATIENT_THREADS_H_
