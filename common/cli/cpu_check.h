// Checks at start that the CPU has the instructions that the build uses. The project is compiled
// for x86-64-v2 (PUSHPULL_MARCH); an older CPU would end it by an illegal instruction without a
// message. The implementation of this header is compiled for any x86-64, so it can print the reason
// first.
#ifndef PUSHPULL_COMMON_CLI_CPU_CHECK_H_
#define PUSHPULL_COMMON_CLI_CPU_CHECK_H_

namespace pushpull {

// Ends the process with exit code 70 and a message on stderr if this CPU lacks a feature that the
// build needs. It is a constructor function that runs before the C++ static initialisers; a call
// from main makes the linker include it.
void RequireCpuFeatures();

// Returns the first feature that this CPU lacks ("AVX2"), or null.
const char* MissingCpuFeature();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_CPU_CHECK_H_
