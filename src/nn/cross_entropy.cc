#include <cmath>
#include <vector>

#include "nn/dense.h"
#include "regard/nn.h"

namespace regard::nn {
namespace {

// −ln softmax(row)[target]; fills d_row, its gradient times `share`, unless null.
template <typename T>
double RowLoss(const T* row, std::int64_t classes, std::int64_t target, double share, T* d_row) {
  // The maximum in the row's own type: GCC 12 for aarch64 ends with an internal error on one of converted numbers.
  T largest_logit = row[0];
  for (std::int64_t c = 1; c < classes; ++c) largest_logit = std::fmax(largest_logit, row[c]);
  const double largest = static_cast<double>(largest_logit);
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(row[c]) - largest);
  const double lse = largest + std::log(sum);
  for (std::int64_t c = 0; d_row != nullptr && c < classes; ++c)
    d_row[c] = static_cast<T>(share * (std::exp(static_cast<double>(row[c]) - lse) - (c == target ? 1 : 0)));
  return lse - static_cast<double>(row[target]);
}

}  // namespace

double CrossEntropy(const TensorView& logits, const TensorView& targets, Tensor* d_logits) {
  if (!logits || logits.rank() < 2)
    Fail(ErrorCode::kShapeMismatch, "logits: missing, or fewer than two axes; give [.., classes]");
  const std::int64_t classes = logits.dim(-1);
  if (logits.num_elements() == 0)
    Fail(ErrorCode::kShapeMismatch, "logits: shape " + ToString(logits.shape()) + " is empty; give one row or more");
  CheckLayerType(logits.dtype());
  const Dense dense("logits", logits, classes, logits.dtype());
  const Dims rows_shape(std::span(logits.shape().begin(), static_cast<std::size_t>(logits.rank() - 1)));
  const Dense wanted = DenseLike("targets", targets, rows_shape, DType::kI32);
  for (std::int64_t r = 0; r < dense.rows(); ++r) {
    const std::int32_t target = wanted.As<std::int32_t>()[r];
    if (target < 0 || target >= classes)
      Fail(ErrorCode::kInvalidArgument, "targets: " + std::to_string(target) + "; give 0 to " + std::to_string(classes - 1));
  }
  if (d_logits != nullptr) *d_logits = Tensor::Uninitialized(logits.dtype(), logits.shape());
  std::vector<double> losses(static_cast<std::size_t>(dense.rows()));
  WithType(logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* const d_all = d_logits != nullptr ? d_logits->MutableAs<T>() : nullptr;
    ForEachRow(dense.rows(), [&](std::int64_t r) {
      losses[static_cast<std::size_t>(r)] =
          RowLoss(dense.As<T>() + r * classes, classes, wanted.As<std::int32_t>()[r], 1 / static_cast<double>(dense.rows()),
                  d_all != nullptr ? d_all + r * classes : nullptr);
    });
  });
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum / static_cast<double>(dense.rows());
}

}  // namespace regard::nn
