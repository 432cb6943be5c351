// REGARD_INTERNAL_API marks the few functions in namespace internal that the tools library calls in the library: exported, since the two
// are linked apart, but in no public header and with no promise to anybody else. The linker refuses a tools library that calls one
// without the mark (-Wl,--no-undefined in src/CMakeLists.txt).
#pragma once

#include "regard/export.h"

#define REGARD_INTERNAL_API REGARD_API
