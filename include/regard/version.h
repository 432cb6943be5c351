// The version of the headers. CMake reads these three lines; regard::Version() tells the library's own.
#pragma once

#define REGARD_VERSION_MAJOR 0
#define REGARD_VERSION_MINOR 1
#define REGARD_VERSION_PATCH 0
