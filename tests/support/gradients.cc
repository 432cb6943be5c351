#include "tests/support/gradients.h"

#include "tests/support/placement.h"

namespace regard::test {
namespace {

// [batch, heads, tokens, last], or as rank 2 like the problem's q.
Dims TokensShape(const TestProblem& p, std::int64_t heads, std::int64_t tokens, std::int64_t last) {
  Dims shape;
  if (p.q.rank() == 4) {
    shape.push_back(p.batch);
    shape.push_back(heads);
  }
  shape.push_back(tokens);
  shape.push_back(last);
  return shape;
}

// An output of a run: its memory, and the doubles read back from it.
class Output {
 public:
  Output(const Dims& shape, std::int64_t rows, std::int64_t columns, DType default_type, const RunOptions& options)
      : rows_(rows), columns_(columns) {
    const DType type = options.any_output_type && options.layout->Chance(0.5)
                           ? options.layout->OneOf({DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
                           : default_type;
    placed_ = options.layout != nullptr ? PlaceRandomly(*options.layout, shape, type, options.layout->Chance(0.5))
                                        : PlaceDense(shape, type);
  }
  // The gradient of an option, where there is one.
  Output(const TensorView& of, DType default_type, const RunOptions& options)
      : Output(of.shape(), of ? 1 : 0, of ? of.num_elements() : 0, default_type, options) {
    given_ = static_cast<bool>(of);
  }

  MutableTensorView view() const { return given_ ? placed_.view : MutableTensorView(); }

  Grid Read() const {
    if (!given_) return {};
    EXPECT_TRUE(GuardIntact(placed_)) << "memory beside an output was written";
    Grid grid{rows_, columns_, placed_.view.dtype(), {}};
    ForEachIndex(placed_.view.shape(), [&](const Dims& index) { grid.values.push_back(Get(placed_.view, index)); });
    return grid;
  }

 private:
  bool given_ = true;
  std::int64_t rows_, columns_;
  Placed placed_;
};

}  // namespace

GradientCase::GradientCase(std::uint64_t seed, const TestProblem& p, bool any_layout) {
  Random random(seed * 0x9E3779B97F4A7C15u + 3);
  const Dims shape = TokensShape(p, p.heads, p.q_len, p.v_dim);
  const DType type = any_layout && random.Chance(0.4) ? random.OneOf({DType::kF64, DType::kF16, DType::kBF16}) : DType::kF32;
  Placed placed =
      any_layout && random.Chance(0.5) ? PlaceRandomly(random, shape, type, random.Chance(0.5)) : PlaceDense(shape, type);
  const double size = random.OneOf({0.1, 1.0, 30.0});
  ForEachIndex(shape, [&](const Dims& index) {
    Set(placed.view, index, size * (random.Normal() + 0.5 * static_cast<double>(index[shape.size() - 1] % 3) - 0.3));
  });
  d_context = placed.view;
  memory.push_back(std::move(placed.memory));

  Dims lse_shape;
  for (int axis = 0; axis < shape.size() - 1; ++axis) lse_shape.push_back(shape[axis]);
  Tensor context_memory(DType::kF64, shape), lse_memory(DType::kF64, lse_shape);
  const Plan plan(PlanShape::Of(p.q, p.k, p.v), p.params, {.path = Path::kReference, .threads = 1});
  Workspace workspace = plan.MakeWorkspace();
  Inputs inputs{p.q, p.k, p.v};
  inputs.dropout_origin = p.dropout_origin;
  const Status status = plan.Run(inputs, {.context = context_memory.mutable_view(), .lse = lse_memory.mutable_view()}, workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  context = context_memory;
  lse = lse_memory;
  memory.push_back(std::move(context_memory));
  memory.push_back(std::move(lse_memory));
}

std::vector<std::pair<std::string, const Grid*>> GradientResult::All() const {
  return {{"d_q", &d_q},        {"d_k", &d_k}, {"d_v", &d_v}, {"d_bias", &d_bias}, {"d_alibi_slopes", &d_alibi_slopes},
          {"d_sinks", &d_sinks}};
}

bool GradientResult::SameAs(const GradientResult& other) const {
  const auto own = All(), others = other.All();
  for (std::size_t n = 0; n < own.size(); ++n) {
    if (!own[n].second->SameAs(*others[n].second)) return false;
  }
  return true;
}

GradientResult RunBackward(const PathCase& path, const TestProblem& p, const GradientCase& c, const RunOptions& options) {
  const DType type = path.path == Path::kReference ? DType::kF64 : DType::kF32;
  const std::int64_t kv_rows = p.batch * p.kv_heads * p.kv_len;
  const Output d_q(TokensShape(p, p.heads, p.q_len, p.head_dim), p.num_rows(), p.head_dim, type, options),
      d_k(TokensShape(p, p.kv_heads, p.kv_len, p.head_dim), kv_rows, p.head_dim, type, options),
      d_v(TokensShape(p, p.kv_heads, p.kv_len, p.v_dim), kv_rows, p.v_dim, type, options), d_bias(p.params.bias, type, options),
      d_alibi_slopes(p.params.alibi_slopes, type, options), d_sinks(p.params.sinks, type, options);
  const BackwardPlan plan(PlanShape::Of(p.q, p.k, p.v), p.params,
                          {.path = path.path, .isa = path.isa, .threads = options.threads > 0 ? options.threads : p.threads});
  Workspace workspace = plan.MakeWorkspace();
  Inputs forward{p.q, p.k, p.v};
  forward.dropout_origin = p.dropout_origin;
  const Status status = plan.Run({forward, c.context, c.lse, c.d_context},
                                 {.d_q = d_q.view(),
                                  .d_k = d_k.view(),
                                  .d_v = d_v.view(),
                                  .d_bias = d_bias.view(),
                                  .d_alibi_slopes = d_alibi_slopes.view(),
                                  .d_sinks = d_sinks.view()},
                                 workspace);
  EXPECT_TRUE(status.ok()) << path.Name() << ": " << status.message();
  return {d_q.Read(), d_k.Read(), d_v.Read(), d_bias.Read(), d_alibi_slopes.Read(), d_sinks.Read()};
}

}  // namespace regard::test
