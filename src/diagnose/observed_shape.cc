#include "diagnose/observed_shape.h"

#include <string>

#include "regard/error.h"

namespace regard::internal {
namespace {

// With exactly `rank` axes, as far as axes of length 1 in front can be added or taken away.
TensorView WithRank(TensorView view, int rank) {
  while (view.rank() < rank) view = view.Unsqueeze(0);
  while (view.rank() > rank && view.dim(0) == 1) view = view.Select(0, 0);
  return view;
}

[[noreturn]] void FailShape(const char* name, const TensorView& view, const std::string& expected, const std::string& hint = {}) {
  throw Error(ErrorCode::kShapeMismatch,
              std::string("observed ") + name + ": shape " + ToString(view.shape()) + "; give " + expected + hint);
}

// What fits when heads and tokens of the inputs are taken for each other.
constexpr const char* kOtherLayout =
    "; it fits inputs that lie as [batch, tokens, heads, dim]: --layout bshd, or exchange their axes";

}  // namespace

TensorView ContextInFullShape(const TensorView& given, const Problem& p) {
  const Dims bhsd{p.batch, p.heads, p.q_len, p.v_dim}, bshd{p.batch, p.q_len, p.heads, p.v_dim};
  const Dims packed{p.batch, p.q_len, p.heads * p.v_dim}, flat{p.batch * p.q_len, p.heads * p.v_dim};
  const TensorView four = WithRank(given, 4), three = WithRank(given, 3);
  if (four.shape() == bhsd) return four;
  if (four.shape() == bshd) return four.Transpose(1, 2);
  const auto unpack = [&](const TensorView& x, std::int64_t batch_stride, std::int64_t row_stride, std::int64_t stride) {
    return TensorView(x.data(), x.dtype(), bshd, {batch_stride, row_stride, p.v_dim * stride, stride}).Transpose(1, 2);
  };
  if (three.shape() == packed) return unpack(three, three.stride(0), three.stride(1), three.stride(2));
  if (given.shape() == flat) return unpack(given, p.q_len * given.stride(0), given.stride(0), given.stride(1));
  std::string hint;
  if (four.shape() == Dims{p.batch, p.heads, p.v_dim, p.q_len}) hint = "; its last two axes look exchanged";
  if (four.rank() == 4 && four.dim(0) != p.batch && p.batch == 1) hint = "; choose one of its sequences";
  FailShape("context", given,
            "[batch, heads, q_len, v_dim] " + ToString(bhsd) + ", [batch, q_len, heads, v_dim] " + ToString(bshd) +
                " or packed " + ToString(packed) + hint);
}

TensorView StageInFullShape(const char* name, const TensorView& given, const Problem& p) {
  const Dims full{p.batch, p.heads, p.q_len, p.kv_len};
  const TensorView four = WithRank(given, 4);
  if (four.shape() == full) return four;
  std::string hint;
  if (p.heads > 1 && WithRank(given, 3).shape() == Dims{p.batch, p.q_len, p.kv_len})
    hint = "; a mean over heads? dump them per head (average_attn_weights=False)";
  if (p.q_len != p.kv_len && four.shape() == Dims{p.batch, p.heads, p.kv_len, p.q_len})
    hint = "; its last two axes look exchanged";
  if (four.shape() == Dims{p.batch, p.q_len, p.heads, p.kv_heads}) hint = kOtherLayout;
  FailShape(name, given, "[batch, heads, q_len, kv_len] " + ToString(full), hint);
}

TensorView LseInFullShape(const TensorView& given, const Problem& p) {
  const Dims full{p.batch, p.heads, p.q_len};
  const TensorView three = WithRank(given, 3), four = WithRank(given, 4);
  if (three.shape() == full) return three.Unsqueeze(3);
  if (four.shape() == Dims{p.batch, p.heads, p.q_len, 1}) return four;
  FailShape("lse", given, "[batch, heads, q_len] " + ToString(full),
            three.shape() == Dims{p.batch, p.q_len, p.heads} ? kOtherLayout : "");
}

TensorView ProjectedInFullShape(const TensorView& given, const Problem& p, std::int64_t out_dim) {
  const Dims full{p.batch, p.q_len, out_dim};
  const TensorView three = WithRank(given, 3);
  if (three.shape() == full) return three.Unsqueeze(1);
  FailShape("projected", given, "[batch, q_len, out_dim] " + ToString(full));
}

}  // namespace regard::internal
