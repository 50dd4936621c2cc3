// Process-wide settings of gRPC, malloc and Abseil that must be made before gRPC is used. The
// clients and servers of this folder make them.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_GRPC_RUNTIME_H_
#define PUSHPULL_COMMON_WIRE_GRPC_GRPC_RUNTIME_H_

namespace pushpull {

// Makes the settings. Thread-safe; only the first call does anything.
void InitGrpcRuntime();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_GRPC_RUNTIME_H_
