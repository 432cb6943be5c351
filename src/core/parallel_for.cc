#include "core/parallel_for.h"

#include <algorithm>

namespace regard::internal {

int ResolveThreads(int threads) { return threads > 0 ? threads : std::max(1, omp_get_max_threads()); }

}  // namespace regard::internal
