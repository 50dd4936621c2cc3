# Cross-compiles for 64-bit ARM with Debian's g++-aarch64-linux-gnu (scripts/test_arm64.sh). PUSHPULL_ARM64_SYSROOT is a
# folder with Debian's ARM packages; the programs that run at build time (protoc and its plugin) are those of this
# machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PUSHPULL_ARM64_SYSROOT)
set(CMAKE_SYSROOT ${PUSHPULL_ARM64_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# pkg-config finds the ARM packages alone.
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${PUSHPULL_ARM64_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
    ${PUSHPULL_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${PUSHPULL_ARM64_SYSROOT}/usr/share/pkgconfig)
# The tests run in an emulator.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${PUSHPULL_ARM64_SYSROOT})
