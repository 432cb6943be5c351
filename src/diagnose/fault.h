// A known mistake: what it is called, what it computes instead, how it shows, what to change; and the edits of a Variant that make it.
//
// Faults are grouped by what they touch in src/diagnose/faults/. To add one, write its entry and its edit there, and its test in
// tests/diagnose; docs/diagnosis.md walks through an example.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "diagnose/case.h"
#include "diagnose/variant.h"

namespace regard::internal {

/// What an edit changes. Two mistakes compose when they change different things.
using Slots = std::uint32_t;
namespace slot {
inline constexpr Slots kOperands = 1u << 0, kScale = 1u << 1, kScore = 1u << 2, kCap = 1u << 3, kBias = 1u << 4,
                       kCausal = 1u << 5, kWindow = 1u << 6, kPadding = 1u << 7, kSegments = 1u << 8, kMask = 1u << 9,
                       kMasking = 1u << 10, kSoftmax = 1u << 11, kSink = 1u << 12, kReweigh = 1u << 13, kValues = 1u << 14,
                       kOutput = 1u << 15, kEmpty = 1u << 16;
/// Every rule of visibility.
inline constexpr Slots kRules = kCausal | kWindow | kPadding | kSegments | kMask;
}  // namespace slot

struct Fault;

/// A mistake with all its constants.
struct Hypothesis {
  const Fault* fault = nullptr;
  Slots slots = 0;
  std::function<void(Variant&)> edit;
  std::vector<ExplanationParam> params;
  /// What a constant cost: of two that fit alike, the one with the lower number is the simpler explanation. Named constants are 0,
  /// enumerated ones 1, solved ones 2, several solved ones 3; −1 where the inputs themselves (a NaN) point to the mistake.
  int complexity = 0;
};

/// A mistake with one unknown constant, to be solved for.
struct Family {
  const Fault* fault = nullptr;
  Slots slots = 0;
  std::function<void(Variant&, double)> edit;
  std::vector<double> starts;  // where to look first, ascending
  /// What the solved constant means; empty: it is nothing sensible, or has a name of its own.
  std::function<std::vector<ExplanationParam>(double)> describe;
};

/// What a fault proposes for one case.
struct Proposals {
  std::vector<Hypothesis> hypotheses;
  std::vector<Family> families;
  const Fault* current = nullptr;

  void Add(std::function<void(Variant&)> edit, std::vector<ExplanationParam> params = {}, int complexity = 0);
  void AddWithSlots(Slots slots, std::function<void(Variant&)> edit, std::vector<ExplanationParam> params = {},
                    int complexity = 0);
  void AddFamily(std::function<void(Variant&, double)> edit, std::vector<double> starts,
                 std::function<std::vector<ExplanationParam>(double)> describe);
};

struct Fault {
  const char* id;
  const char* name;
  Stage stage;  // the first that it changes
  Slots slots;
  const char* formula;                       // what is computed instead
  const char* tell_tale;                     // what to look for
  const char* advice;                        // what to change
  void (*propose)(const Case&, Proposals&);  // null: found by evidence (evidence.cc), not by an edit
  bool is_variant = false;                   // a legal other convention, not a mistake
  bool whole_heads = false;                  // one row takes all rows of its head: costly, so paired with named faults only
};

std::span<const Fault> ScaleFaults();
std::span<const Fault> LayoutFaults();
std::span<const Fault> HeadFaults();
std::span<const Fault> PositionFaults();
std::span<const Fault> MaskFaults();
std::span<const Fault> SoftmaxFaults();
std::span<const Fault> CapAndSinkFaults();
std::span<const Fault> ContextFaults();
std::span<const Fault> CacheFaults();
std::span<const Fault> ProjectionFaults();
std::span<const Fault> RunFaults();
std::span<const Fault> BiasFaults();
std::span<const Fault> BatchFaults();

/// All of them, by id.
const std::vector<const Fault*>& Catalogue();
const Fault* FindFault(std::string_view id);

/// Everything that could be wrong with this case.
Proposals ProposeAll(const Case& c);

/// Ids that one context cannot tell apart; a tie among them is complete, however long.
bool SameGroup(std::string_view id_a, std::string_view id_b);

// ------------------------------------------------------------------------------------------------- for writing faults

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline double Number(std::int64_t n) { return static_cast<double>(n); }

/// Operands whose rows are taken from elsewhere; t = −1: a row of zeros.
struct RowSource {
  enum class From : std::uint8_t { kQ, kK, kV } from;
  std::int64_t b, head, t;
};
using RowMap = std::function<RowSource(std::int64_t b, std::int64_t head, std::int64_t t)>;
/// A null map leaves a tensor as it is. Dot products of the case's probes are kept.
std::shared_ptr<const Operands> GatherOperands(const Case& c, const RowMap& q, const RowMap& k, const RowMap& v);
/// Operands with other numbers in q, k or v (null: unchanged).
std::shared_ptr<const Operands> ReplaceOperands(const Case& c, std::shared_ptr<const std::vector<double>> q,
                                                std::shared_ptr<const std::vector<double>> k,
                                                std::shared_ptr<const std::vector<double>> v);

/// from·(to/from)^(n/(count−1)): evenly spaced on a logarithmic scale.
std::vector<double> LogSpaced(double from, double to, int count);
std::vector<double> Spaced(double from, double to, int count);

/// Which of q and k a mistake is in. In one alone it is tried last, and not in pairs: complexity 2.
struct QueriesOrKeys {
  const char* name;
  bool of_q, of_k;
};
inline constexpr QueriesOrKeys kQueriesOrKeys[] = {{"q and k", true, true}, {"q", true, false}, {"k", false, true}};

/// 1, 2, 4, … below `limit`, and the sizes that kernels use (24, 48, 80, 96, 160, 192, …).
std::vector<std::int64_t> BlockSizes(std::int64_t limit);

/// For every head (&RowId::h) or sequence (&RowId::b) the first of `options` variants that explains rows of it which are wrong, −1 where
/// none does or none is wrong. `only`: looks at this stage alone. All −1 when trying would take too long.
std::vector<std::int64_t> SolveEach(const Case& c, std::int64_t RowId::* axis, std::int64_t size, std::int64_t options,
                                    const std::function<Variant(std::int64_t option)>& variant, const Stage* only = nullptr);

/// "2,0,1"
std::string ListText(const std::vector<std::int64_t>& list);

}  // namespace regard::internal
