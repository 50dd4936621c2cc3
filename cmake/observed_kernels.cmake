# PUSHPULL_OBSERVED_KERNEL_OPTIONS: compiles a file of emulated kernels so that it reports its accesses to memory to
# kernels/cuda/emulation/shared_accesses.cc. It is empty in builds with a sanitizer. GCC's macro is taken back, because
# headers of libraries would expect the sanitizer's library, and loops stay loops, because GCC does not report accesses
# by memset and memcpy.
set(PUSHPULL_OBSERVED_KERNEL_OPTIONS)
if(NOT PUSHPULL_SANITIZE)
  set(PUSHPULL_OBSERVED_KERNEL_OPTIONS -fsanitize=thread -U__SANITIZE_THREAD__)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND PUSHPULL_OBSERVED_KERNEL_OPTIONS
         --param=tsan-instrument-func-entry-exit=0 -fno-tree-loop-distribute-patterns)
  endif()
endif()
