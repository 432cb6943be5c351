#include "core/sink_gradient.h"

#include <cmath>
#include <limits>

namespace regard::internal {

double SinkGradient(const Problem& p, const Gradients& g, std::int64_t h, double sink) {
  if (sink == -std::numeric_limits<double>::infinity()) return 0;
  const auto load = [](const View4& view, std::int64_t offset) { return LoadDouble(view.data, view.dtype, offset); };
  double sum = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      double delta = 0;
      for (std::int64_t d = 0; d < p.v_dim; ++d) {
        const double context = load(g.context, g.context.Offset(b, h, i, d));
        // That of an empty row is 0, and then d_context may hold anything.
        if (context != 0) delta += context * load(g.d_context, g.d_context.Offset(b, h, i, d));
      }
      sum -= std::exp(sink - load(g.lse, g.lse.Offset(b, h, i, 0))) * delta;
    }
  }
  return sum;
}

}  // namespace regard::internal
