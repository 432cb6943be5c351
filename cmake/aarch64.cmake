# For scripts/test_aarch64.sh: Debian's cross compiler, libraries unpacked at REGARD_SYSROOT, and qemu to run what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES REGARD_SYSROOT)
set(CMAKE_FIND_ROOT_PATH ${REGARD_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${REGARD_SYSROOT}/usr/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,-rpath-link,${REGARD_SYSROOT}/usr/lib/aarch64-linux-gnu")
# The loader of the same glibc as the libraries: they share data.
set(CMAKE_CROSSCOMPILING_EMULATOR
    "qemu-aarch64;-L;${REGARD_SYSROOT};-E;LD_LIBRARY_PATH=${REGARD_SYSROOT}/usr/lib/aarch64-linux-gnu:${REGARD_SYSROOT}/lib/aarch64-linux-gnu")
