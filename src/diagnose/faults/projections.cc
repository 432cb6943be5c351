// Faults of the projections: F96–F98. Needs the inputs and their matrices.
#include <cmath>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

struct Matrix {
  const char* name;
  TensorView weight, bias;
  std::int64_t heads, dim;
};

// inputs·wᵀ (or inputs·w) + b as [batch, heads, tokens, dim].
std::shared_ptr<const std::vector<double>> Project(const Case& c, const Matrix& m, bool transposed, bool with_bias) {
  TensorView inputs = c.given().inputs;
  if (inputs.rank() == 2) inputs = inputs.Unsqueeze(0);
  const std::int64_t batch = inputs.dim(0), tokens = inputs.dim(1), in_dim = inputs.dim(2), out = m.heads * m.dim;
  const auto load = [](const TensorView& view) {
    const Tensor copy = Tensor::CopyOf(view);
    std::vector<double> values;
    for (std::int64_t n = 0; n < copy.num_elements(); ++n) values.push_back(LoadDouble(copy.view().data(), copy.dtype(), n));
    return values;
  };
  const std::vector<double> x = load(inputs), w = load(m.weight);
  const std::vector<double> bias = m.bias && with_bias ? load(m.bias) : std::vector<double>(static_cast<std::size_t>(out), 0);
  auto rows = std::make_shared<std::vector<double>>(static_cast<std::size_t>(batch * out * tokens));
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const double* from = x.data() + (b * tokens + t) * in_dim;
      for (std::int64_t o = 0; o < out; ++o) {
        double sum = bias[static_cast<std::size_t>(o)];
        for (std::int64_t d = 0; d < in_dim; ++d)
          sum += from[d] * w[static_cast<std::size_t>(transposed ? d * out + o : o * in_dim + d)];
        (*rows)[static_cast<std::size_t>(((b * m.heads + o / m.dim) * tokens + t) * m.dim + o % m.dim)] = sum;
      }
    }
  }
  return rows;
}

std::vector<Matrix> Matrices(const Case& c) {
  const Projections& p = c.given().projections;
  const Problem& x = c.problem();
  const bool makes_all_keys = x.kv_len == x.q_len;  // rather than the last ones, behind a cache
  return {{"query", p.w_query, p.b_query, x.heads, x.head_dim},
          {"key", makes_all_keys ? p.w_key : TensorView(), p.b_key, x.kv_heads, x.head_dim},
          {"value", makes_all_keys ? p.w_value : TensorView(), p.b_value, x.kv_heads, x.v_dim}};
}

// One of q, k, v, or all three, projected in another way.
template <typename Applies>
void Propose(const Case& c, Proposals& p, bool transposed, bool with_bias, const Applies& applies) {
  if (!c.given().inputs) return;
  const std::vector<Matrix> matrices = Matrices(c);
  for (unsigned subset = 1; subset < 8; ++subset) {
    bool all = true;
    std::string names;
    for (unsigned n = 0; n < 3; ++n) {
      if ((subset >> n & 1) == 0) continue;
      all = all && matrices[n].weight && applies(matrices[n]);
      names += (names.empty() ? "" : ", ") + std::string(matrices[n].name);
    }
    if (!all) continue;
    p.Add(
        [&c, matrices, subset, transposed, with_bias](Variant& v) {
          const auto part = [&](unsigned n) {
            return (subset >> n & 1) != 0 ? Project(c, matrices[n], transposed, with_bias) : nullptr;
          };
          v.operands = ReplaceOperands(c, part(0), part(1), part(2));
        },
        {{"of", 0, names}}, (subset & (subset - 1)) == 0 || subset == 7 ? 0 : 1);
  }
}

// slot::kOutput is where rows are written; w_out comes right after and composes with nothing that moves rows.
void ChangeOutProjection(Proposals& p, Variant::OutProjection how) {
  p.AddWithSlots(slot::kOutput, [how](Variant& v) { v.out_projection = how; }, {{"of", 0, "out"}});
}

bool ObservesProjected(const Case& c) { return c.Find(Stage::kProjected) != nullptr && !c.w_out().empty(); }

void MatrixTransposed(const Case& c, Proposals& p) {
  if (ObservesProjected(c) && c.w_out().size() == c.b_out().size() * c.b_out().size())
    ChangeOutProjection(p, Variant::OutProjection::kTransposed);
  Propose(c, p, true, true, [](const Matrix& m) { return m.weight.dim(0) == m.weight.dim(1); });
}

void BiasLeftOut(const Case& c, Proposals& p) {
  if (ObservesProjected(c) && c.given().projections.b_out) ChangeOutProjection(p, Variant::OutProjection::kWithoutBias);
  Propose(c, p, false, false, [](const Matrix& m) { return static_cast<bool>(m.bias); });
}

void OutProjectionSide(const Case& c, Proposals& p) {
  if (ObservesProjected(c))
    p.Add([](Variant& v) { v.out_projection = Variant::OutProjection::kLeftOut; }, {{"observed", 0, "before w_out"}});
  const std::int64_t dim = c.problem().v_dim, in_dim = c.problem().heads * dim;
  if (c.Find(Stage::kContext) == nullptr || static_cast<std::int64_t>(c.w_out().size()) != in_dim * in_dim) return;
  // The observed context is the projected one, cut into heads.
  p.AddWithSlots(slot::kValues | slot::kOutput,
                 [&c, dim, in_dim](Variant& v) {
                   v.product = [&c, dim, in_dim](RowState& s) {
                     Variant inner = *s.variant;
                     inner.product = nullptr;
                     std::vector<double> merged, magnitude;
                     RowState head;
                     for (std::int64_t h = 0; h < c.problem().heads; ++h) {
                       s.evaluator->Evaluate(inner, {s.id.b, h, s.id.i}, &head);
                       merged.insert(merged.end(), head.context.begin(), head.context.end());
                       magnitude.insert(magnitude.end(), head.magnitude.begin(), head.magnitude.end());
                     }
                     s.context.assign(static_cast<std::size_t>(dim), 0);
                     s.magnitude = s.context;
                     for (std::int64_t d = 0; d < dim; ++d) {
                       const std::int64_t out = s.id.h * dim + d;
                       s.context[static_cast<std::size_t>(d)] = c.b_out()[static_cast<std::size_t>(out)];
                       for (std::int64_t n = 0; n < in_dim; ++n) {
                         const double w = c.w_out()[static_cast<std::size_t>(out * in_dim + n)];
                         s.context[static_cast<std::size_t>(d)] += w * merged[static_cast<std::size_t>(n)];
                         s.magnitude[static_cast<std::size_t>(d)] += std::fabs(w) * magnitude[static_cast<std::size_t>(n)];
                       }
                     }
                   };
                 },
                 {{"observed", 0, "after w_out"}});
}

constexpr Fault kFaults[] = {
    {"F96", "projection transposed", Stage::kInputs, slot::kOperands, "x·w for x·wᵀ",
     "shapes agree only because the matrix is square; matches after transposing it",
     "matrices here are [out, in]; GPT-2 and many courses store [in, out]: transpose them once", MatrixTransposed},
    {"F97", "projection bias left out", Stage::kInputs, slot::kOperands, "x·wᵀ without + b",
     "the difference of q, k or v is one vector, the same for all tokens", "add the bias", BiasLeftOut},
    {"F98", "output projection", Stage::kProjected, slot::kOutput,
     "the context before w_out for the one after it, or the reverse", "observed equals the merged heads, not their projection",
     "apply w_out after merging the heads, and compare on the same side of it", OutProjectionSide},
};

}  // namespace

std::span<const Fault> ProjectionFaults() { return kFaults; }

}  // namespace regard::internal
