// Says whether the emulation checks all accesses to memory.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_CHECKS_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_CHECKS_H_

namespace pushpull::emulation {

// Returns true. scripts/gpu/seeded_faults.py also links programs in which it returns false, to show
// which faults are found without these checks. Then accesses to shared memory and to freed memory
// are not checked, and EmulatedMachine::seed has no effect.
bool ChecksAreOn();

}  // namespace pushpull::emulation

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_CHECKS_H_
