// Observes the accesses of kernels to shared memory.
//
// Kernels access it by plain pointers, so the compiler has to help: with -fsanitize=thread it calls
// a function before each load and store. The sanitizer's own library is not linked; the functions
// are defined in shared_accesses.cc instead. They return at once unless the address is in the
// window that the calling thread of the host has opened. The emulation's CMakeLists.txt sets the
// option for kernels, and tests/CMakeLists.txt for the tests that define some.
//
// Not observed are the accesses of code that is compiled without the option, copies by memcpy and
// memset that the compiler does not replace by loads and stores (GCC; Clang reports them), and
// device memory. Builds with a sanitizer observe nothing.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_SHARED_ACCESSES_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_SHARED_ACCESSES_H_

#include <cstddef>

#include "kernels/cuda/emulation/access_kind.h"

namespace pushpull::emulation {

// Whether accesses are observed at all.
#ifdef PUSHPULL_EMULATION_OBSERVES
inline constexpr bool kObservesAccesses = true;
#else
inline constexpr bool kObservesAccesses = false;
#endif

// Calls CheckSharedAccess for each access of the calling thread that begins within these bytes.
// If `bytes` is 0, no access is checked.
void SetAccessWindow(const void* begin, size_t bytes);

// Reports an access that the compiler does not see, because the function that makes it has the
// attribute no_sanitize("thread").
void NoteAccess(AccessKind kind, const void* address, size_t bytes);

// Defined in thread_block.cc: ends the process if the access of the running emulated thread is an
// error.
void CheckSharedAccess(AccessKind kind, const void* address, size_t bytes);

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_SHARED_ACCESSES_H_
