// One diagnosis in the making: the problem, what was observed, the rows that are compared, and how well a variant fits them.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <vector>

#include "diagnose/rounding.h"
#include "diagnose/variant.h"
#include "regard/diagnose.h"

namespace regard::internal {

/// In the order of the computation. kInputs stands for operands: layout, heads, projections, rotation.
enum class Stage : std::uint8_t { kInputs, kScores, kCapped, kMaskedScores, kWeights, kLse, kContext, kProjected };
const char* Name(Stage stage);

/// One observed tensor, seen as [batch, heads, q_len, columns]; `projected` as [batch, 1, q_len, out_dim], compared with rows of head 0.
struct ObservedStage {
  Stage stage = Stage::kContext;
  View4 view;
  std::int64_t columns = 0;
  StorageRoundoff storage = {};
  DType grid = DType::kF32;  // the narrowest type that holds all its values: storage may be wider

  double At(RowId row, std::int64_t column) const {
    return LoadDouble(view.data, view.dtype, view.Offset(row.b, row.h, row.i, column));
  }
};

/// How one variant fits observed rows.
struct Fit {
  double worst[kNumPrecisions] = {};    // largest |difference| / bound; +inf where only one side is finite
  double squares[kNumPrecisions] = {};  // Σ (difference / bound)²
  double absolute_squares = 0;          // Σ difference², finite ones
  /// Of contexts whose weights low precision leaves about as they are: Σ difference², Σ expected².
  double clear_squares = 0, clear_size = 0;
  double largest = 0;                   // largest difference
  double worst_as_stored = 0;           // as worst of kF32, but for the roundoff of the type that the file has, not of its grid
  std::int64_t cells = 0, finite_cells = 0;
  /// Least bound of bf16 over bound of f32: how much coarser low precision would have to show.
  double room = 1e300;
  bool shared = false;    // of one row: several keys share the weight, so that its results can be many things
  bool lost_row = false;  // a context of zeros that should be none
  WorstCell cell;

  void Add(const Fit& other);
  bool Matches() const { return worst[static_cast<int>(Precision::kF32)] <= 1; }
  /// Within the bounds of a precision, as sparingly as rounding does, and small beside a context that is no blur.
  bool IsRounding(Precision precision) const;
  double Rms() const;
};

/// Whether neither one key nor the sink has nearly all of a row's weight.
bool IsShared(const RowState& state);

/// The stages of one row that an observation is compared with.
class Case {
 public:
  Case(const DiagnosisProblem& problem, const ObservedTensors& observed, const DiagnoseOptions& options);

  const DiagnosisProblem& given() const { return given_; }
  const Evaluator& evaluator() const { return evaluator_; }
  const Problem& problem() const { return evaluator_.problem(); }
  const std::vector<ObservedStage>& observed() const { return observed_; }
  const ObservedStage* Find(Stage stage) const;

  /// The rows that are compared, ascending; all of them unless `sampled`.
  const std::vector<RowId>& rows() const { return rows_; }
  bool sampled() const { return sampled_; }
  /// How many there are of the sequences and heads that were chosen.
  std::int64_t all_rows() const { return all_rows_; }
  /// The sequences and heads that rows() are of, ascending.
  const std::vector<std::int64_t>& batches() const { return batches_; }
  const std::vector<std::int64_t>& heads() const { return heads_; }
  /// How the contract itself fits each of rows(), over all stages and by stage.
  const std::vector<Fit>& unedited() const { return unedited_; }
  Fit UneditedOf(Stage stage) const;
  const std::vector<Fit>& UneditedRowsOf(std::size_t observed) const { return unedited_by_stage_[observed]; }
  Fit Unedited() const;

  /// The largest finite |v| of each dim, [v_dim].
  const std::vector<double>& largest_value() const { return largest_value_; }
  /// w_out of the problem as doubles, [out_dim, heads·v_dim]; empty when not given.
  const std::vector<double>& w_out() const { return w_out_; }
  const std::vector<double>& b_out() const { return b_out_; }

  /// A few rows that stand for all: wrong ones, the worst among them, and right ones.
  const std::vector<RowId>& wrong_rows() const { return wrong_rows_; }
  const std::vector<RowId>& right_rows() const { return right_rows_; }

  Fit Compare(const Variant& variant, RowId row, RowState* state, const Stage* only = nullptr) const;
  /// Every row of rows(), over threads.
  std::vector<Fit> CompareAll(const Variant& variant) const;
  int threads() const { return threads_; }

  /// Whether somebody asked to stop: Compare then answers at once that nothing fits, so that searches end soon.
  bool stopped() const { return stop_token_.stop_requested(); }
  /// From here on CountTask() reports fractions between these two.
  void BeginPhase(double from, double to) const;
  void CountTask(std::int64_t total) const;

 private:
  static DiagnosisProblem WithStandIns(const DiagnosisProblem& given, std::vector<Tensor>* stand_ins);
  void BindObserved(const ObservedTensors& observed);
  void ChooseRows();
  void ChooseProbes();
  bool AveragesValues(const Variant& variant) const;
  void CompareProjected(const Variant& variant, RowId row, const ObservedStage& o, Fit* fit) const;
  void CompareRow(const Variant& variant, const RowState& state, RowId row, const ObservedStage& o, Fit* fit) const;

  std::vector<Tensor> stand_ins_;  // q and k of zeros where weights are given
  DiagnosisProblem given_;
  Evaluator evaluator_;
  int threads_ = 1;
  std::function<void(double)> on_progress_;
  std::stop_token stop_token_;
  mutable std::mutex progress_mutex_;
  mutable double phase_from_ = 0, phase_to_ = 0;
  mutable std::int64_t tasks_done_ = 0;
  std::vector<ObservedStage> observed_;
  std::vector<double> largest_value_;
  std::vector<double> w_out_, b_out_;  // [out_dim, heads·v_dim], [out_dim]
  std::vector<std::int64_t> batches_, heads_;
  std::vector<RowId> rows_, wrong_rows_, right_rows_;
  std::int64_t all_rows_ = 0;
  bool sampled_ = false;
  std::vector<Fit> unedited_;
  std::vector<std::vector<Fit>> unedited_by_stage_;  // [observed][row]
};

/// Binds a problem or throws Error.
Problem BindProblem(const DiagnosisProblem& given);

}  // namespace regard::internal
