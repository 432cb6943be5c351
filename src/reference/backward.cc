#include "reference/backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/parallel_for.h"
#include "core/scratch.h"
#include "reference/definition.h"

namespace regard::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Layout {
  Layout(const PlanShape& s, int threads, ScratchLayout& layout)
      : query_place(layout.Add<Place>(SaturatingProduct(s.batch, s.q_len))),
        key_place(layout.Add<Place>(SaturatingProduct(s.batch, s.kv_len))),
        delta(layout.Add<double>(SaturatingProduct(s.batch, s.heads, s.q_len))),
        vectors(layout.Add<double>(SaturatingProduct(threads, 3, s.head_dim))),
        values(layout.Add<double>(SaturatingProduct(threads, 3, s.v_dim))) {}

  std::size_t query_place, key_place, delta, vectors, values;
};

// What one thread has of one pair, and a sum of each kind.
struct Scratch {
  double *q, *k, *sum;            // [head_dim]
  double *d_context, *v, *v_sum;  // [v_dim]
};

// The gradients by one pair's masked score and score.
struct PairGradient {
  double weight = 0, dropped_weight = 0;  // the second is what the context was made with; both the same without dropout
  double d_masked = 0, d_score = 0;
  double distance = 0;
};

void Store(const MutableView4& view, std::int64_t offset, double value) { StoreDouble(view.data, view.dtype, offset, value); }

double Dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += a[d] * b[d];
  return sum;
}

// The context of an empty row is 0, and then d_context may hold anything.
double DeltaOf(const double* d_context, const double* context, std::int64_t count) {
  double sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += context[d] == 0 ? 0 : d_context[d] * context[d];
  return sum;
}

class ReferenceBackward {
 public:
  ReferenceBackward(const Problem& problem, const Gradients& gradients, const ExecOptions& exec, int threads,
                    std::byte* workspace)
      : p_(problem), g_(gradients), exec_(exec), threads_(threads) {
    ScratchLayout layout;
    const Layout at({.batch = p_.batch,
                     .heads = p_.heads,
                     .kv_heads = p_.kv_heads,
                     .q_len = p_.q_len,
                     .kv_len = p_.kv_len,
                     .head_dim = p_.head_dim,
                     .v_dim = p_.v_dim},
                    threads, layout);
    query_place_ = reinterpret_cast<Place*>(workspace + at.query_place);
    key_place_ = reinterpret_cast<Place*>(workspace + at.key_place);
    delta_ = reinterpret_cast<double*>(workspace + at.delta);
    vectors_ = reinterpret_cast<double*>(workspace + at.vectors);
    values_ = reinterpret_cast<double*>(workspace + at.values);
  }

  void Run() {
    const std::int64_t queries = p_.batch * p_.heads * p_.q_len, keys = p_.batch * p_.kv_heads * p_.kv_len;
    const std::int64_t biases =
        g_.d_bias.data != nullptr ? g_.d_bias_dim[0] * g_.d_bias_dim[1] * g_.d_bias_dim[2] * g_.d_bias_dim[3] : 0;
    const bool of_keys = g_.d_k.data != nullptr || g_.d_v.data != nullptr;
    const bool of_heads = g_.d_alibi_slopes.data != nullptr || g_.d_sinks.data != nullptr;
    RunControl control(exec_, queries + (of_keys ? keys : 0) + biases + (of_heads ? p_.heads : 0));
    FindPlaces();
    const auto for_each = [&](std::int64_t count, const auto& body) {
      ParallelFor(threads_, count, [&](std::int64_t n, int thread) {
        if (control.ShouldStop()) return;
        body(n, ScratchOf(thread));
        control.TaskDone();
      });
    };
    for_each(queries, [this](std::int64_t n, Scratch s) { OfQuery(n, s); });
    if (of_keys) for_each(keys, [this](std::int64_t n, Scratch s) { OfKey(n, s); });
    for_each(biases, [this](std::int64_t n, Scratch s) { OfBias(n, s); });
    if (of_heads) for_each(p_.heads, [this](std::int64_t h, Scratch s) { OfHead(h, s); });
  }

 private:
  Scratch ScratchOf(int thread) const {
    double* const vectors = vectors_ + thread * 3 * p_.head_dim;
    double* const values = values_ + thread * 3 * p_.v_dim;
    return {vectors, vectors + p_.head_dim, vectors + 2 * p_.head_dim, values, values + p_.v_dim, values + 2 * p_.v_dim};
  }

  void FindPlaces() {
    const auto find = [this](const View4& segments, std::int64_t length, Place* places) {
      for (std::int64_t b = 0; length > 0 && b < p_.batch; ++b, places += length) {
        places[0] = PlaceOf(segments, b, 0);
        for (std::int64_t t = 1; t < length; ++t) places[t] = NextPlace(segments, b, t, places[t - 1]);
      }
    };
    find(p_.q_segments, p_.q_len, query_place_);
    find(p_.kv_segments, p_.kv_len, key_place_);
    for (std::int64_t b = 0; p_.is_cached() && b < p_.batch; ++b) {
      for (std::int64_t j = 0; j < p_.KvLen(b); ++j) key_place_[b * p_.kv_len + j].position = p_.KeyPosition(b, j);
    }
  }

  double& Delta(std::int64_t b, std::int64_t h, std::int64_t i) const { return delta_[(b * p_.heads + h) * p_.q_len + i]; }
  double Lse(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return LoadDouble(g_.lse.data, g_.lse.dtype, g_.lse.Offset(b, h, i, 0));
  }
  void LoadQuery(std::int64_t b, std::int64_t h, std::int64_t i, const Scratch& s) const {
    LoadVector(p_.q, p_.q.Offset(b, h, i, 0), p_.head_dim, s.q);
    LoadVector(g_.d_context, g_.d_context.Offset(b, h, i, 0), p_.v_dim, s.d_context);
  }
  void LoadKey(std::int64_t b, std::int64_t kv_head, std::int64_t j, const Scratch& s) const {
    if (p_.is_cached() && j >= p_.KvLen(b)) return;  // a shorter sequence than others: nobody sees it
    LoadStored(p_.Key(b, kv_head, j), p_.head_dim, s.k);
    LoadStored(p_.Value(b, kv_head, j), p_.v_dim, s.v);
  }

  // Of the query and the key that are loaded; zeros when the key is not visible.
  PairGradient Pair(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, const Scratch& s) const {
    const PairScore pair = ScorePair(p_, b, h, i, j, query_place_[b * p_.q_len + i], key_place_[b * p_.kv_len + j], s.q, s.k);
    if (!pair.visible) return {};
    PairGradient gradient;
    gradient.weight = pair.masked == -kInfinity ? 0 : std::exp(pair.masked - Lse(b, h, i));
    double kept = 1;
    p_.dropout.Apply(b, h, i, j, j + 1, &kept);
    gradient.dropped_weight = kept * gradient.weight;
    gradient.d_masked = gradient.weight * (kept * Dot(s.d_context, s.v, p_.v_dim) - Delta(b, h, i));
    const double tanh = p_.soft_cap > 0 ? pair.capped / p_.soft_cap : 0;
    gradient.d_score = gradient.d_masked * (1 - tanh * tanh);
    gradient.distance = pair.distance;
    return gradient;
  }

  // d_q of one query, and its delta for all that follows.
  void OfQuery(std::int64_t n, const Scratch& s) const {
    const std::int64_t b = n / (p_.heads * p_.q_len), h = n / p_.q_len % p_.heads, i = n % p_.q_len;
    LoadQuery(b, h, i, s);
    LoadVector(g_.context, g_.context.Offset(b, h, i, 0), p_.v_dim, s.v);
    Delta(b, h, i) = DeltaOf(s.d_context, s.v, p_.v_dim);
    if (g_.d_q.data == nullptr) return;
    std::fill_n(s.sum, p_.head_dim, 0.0);
    for (std::int64_t j = 0; j < p_.kv_len; ++j) {
      LoadKey(b, h / p_.group_size, j, s);
      const PairGradient pair = Pair(b, h, i, j, s);
      if (pair.weight == 0) continue;
      for (std::int64_t d = 0; d < p_.head_dim; ++d) s.sum[d] += pair.d_score * s.k[d];
    }
    for (std::int64_t d = 0; d < p_.head_dim; ++d) Store(g_.d_q, g_.d_q.Offset(b, h, i, d), p_.scale * s.sum[d]);
  }

  // d_k and d_v of one key of one kv head.
  void OfKey(std::int64_t n, const Scratch& s) const {
    const std::int64_t b = n / (p_.kv_heads * p_.kv_len), kv_head = n / p_.kv_len % p_.kv_heads, j = n % p_.kv_len;
    LoadKey(b, kv_head, j, s);
    std::fill_n(s.sum, p_.head_dim, 0.0);
    std::fill_n(s.v_sum, p_.v_dim, 0.0);
    for (std::int64_t h = kv_head * p_.group_size; h < (kv_head + 1) * p_.group_size; ++h) {
      for (std::int64_t i = 0; i < p_.q_len; ++i) {
        LoadQuery(b, h, i, s);
        const PairGradient pair = Pair(b, h, i, j, s);
        if (pair.weight == 0) continue;
        for (std::int64_t d = 0; d < p_.head_dim; ++d) s.sum[d] += pair.d_score * s.q[d];
        for (std::int64_t d = 0; d < p_.v_dim; ++d) s.v_sum[d] += pair.dropped_weight * s.d_context[d];
      }
    }
    if (g_.d_k.data != nullptr) {
      for (std::int64_t d = 0; d < p_.head_dim; ++d) Store(g_.d_k, g_.d_k.Offset(b, kv_head, j, d), p_.scale * s.sum[d]);
    }
    if (g_.d_v.data != nullptr) {
      for (std::int64_t d = 0; d < p_.v_dim; ++d) Store(g_.d_v, g_.d_v.Offset(b, kv_head, j, d), s.v_sum[d]);
    }
  }

  // The d_masked of one pair, with both vectors loaded first.
  PairGradient LoadedPair(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, const Scratch& s) const {
    LoadQuery(b, h, i, s);
    LoadKey(b, h / p_.group_size, j, s);
    return Pair(b, h, i, j, s);
  }

  // One element of d_bias: the sum over all pairs that the element of the bias was added to.
  void OfBias(std::int64_t n, const Scratch& s) const {
    const std::int64_t full[4] = {p_.batch, p_.heads, p_.q_len, p_.kv_len};
    std::int64_t at[4], begin[4], end[4];
    for (int axis = 3; axis >= 0; --axis) {
      at[axis] = n % g_.d_bias_dim[axis];
      n /= g_.d_bias_dim[axis];
      const bool repeats = g_.d_bias_dim[axis] == 1;
      begin[axis] = repeats ? 0 : at[axis];
      end[axis] = repeats ? full[axis] : at[axis] + 1;
    }
    double sum = 0;
    for (std::int64_t b = begin[0]; b < end[0]; ++b) {
      for (std::int64_t h = begin[1]; h < end[1]; ++h) {
        for (std::int64_t i = begin[2]; i < end[2]; ++i) {
          for (std::int64_t j = begin[3]; j < end[3]; ++j) sum += LoadedPair(b, h, i, j, s).d_masked;
        }
      }
    }
    Store(g_.d_bias, g_.d_bias.Offset(at[0], at[1], at[2], at[3]), sum);
  }

  // d_alibi_slopes and d_sinks of one head.
  void OfHead(std::int64_t h, const Scratch& s) const {
    double d_slope = 0, d_sink = 0;
    for (std::int64_t b = 0; b < p_.batch; ++b) {
      for (std::int64_t i = 0; i < p_.q_len; ++i) {
        const double sink = SinkOf(p_, h);
        if (sink != -kInfinity) d_sink -= std::exp(sink - Lse(b, h, i)) * Delta(b, h, i);
        if (g_.d_alibi_slopes.data == nullptr) continue;
        for (std::int64_t j = 0; j < p_.kv_len; ++j) {
          const PairGradient pair = LoadedPair(b, h, i, j, s);
          d_slope -= pair.d_masked * std::fabs(pair.distance);
        }
      }
    }
    if (g_.d_alibi_slopes.data != nullptr) Store(g_.d_alibi_slopes, g_.d_alibi_slopes.Offset(0, h, 0, 0), d_slope);
    if (g_.d_sinks.data != nullptr) Store(g_.d_sinks, g_.d_sinks.Offset(0, h, 0, 0), d_sink);
  }

  const Problem& p_;
  const Gradients& g_;
  const ExecOptions& exec_;
  const int threads_;
  Place* query_place_;  // [batch, q_len]
  Place* key_place_;    // [batch, kv_len]
  double* delta_;       // [batch, heads, q_len]
  double* vectors_;     // [threads, 3, head_dim]
  double* values_;      // [threads, 3, v_dim]
};

}  // namespace

std::size_t ReferenceBackwardWorkspaceBytes(const PlanShape& capacity, int threads) {
  ScratchLayout layout;
  const Layout sizes(capacity, threads, layout);
  return layout.too_large() ? std::numeric_limits<std::size_t>::max() : layout.total();
}

void RunReferenceBackward(const Problem& problem, const Gradients& gradients, const ExecOptions& exec, int threads,
                          std::byte* workspace) noexcept {
  ReferenceBackward(problem, gradients, exec, threads, workspace).Run();
}

}  // namespace regard::internal
