// REGARD_API marks what the shared libraries export; everything else stays hidden.
#pragma once

#if defined(_WIN32)
#define REGARD_API
#else
#define REGARD_API [[gnu::visibility("default")]]
#endif
