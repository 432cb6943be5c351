// What `regard bench` measures: the table of cases. A case is one line here; shapes, options and names follow from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/attention.h"

namespace regard::measure {

/// What a case adds to plain attention. Each exists to be compared with the same shape without.
enum class Feature : std::uint8_t {
  kNone,
  kMask,        // bool [1, 1, q_len, kv_len], all true: every value is read, nothing is hidden
  kBias,        // f32 [1, 1, q_len, kv_len], normal
  kAlibi,       // slopes 2^(−8(h+1)/heads)
  kWindow,      // window_left 256
  kSinks,       // one logit a head
  kSoftCap,     // soft_cap 30
  kDropout,     // probability 0.1
  kPacked,      // five sequences of unequal length in one row of tokens
  kTokenMajor,  // q, k, v and context [batch, tokens, heads, dim] in memory
  kPaged,       // keys and values in a cache of the case's type, pages as long as the cache chooses
  kPagedI8,     // the same of int8
  kRising,  // scores that rise along every row, by some 30 in all: whatever looks for the largest keys finds a larger one each time
};

/// What a case asks about the weights, beside context and lse. Its inputs are plain or rising ones.
enum class Asked : std::uint8_t {
  kNothing,
  kFirstPass,  // entropy, top 8 and row_max: what the pass for the context can say
  kSummaries,  // entropy, top 8, key_mass and a pooled map of 64 × 64 bins: two passes
  kKeyTopK,    // the 8 queries that attend to each key most
  kVisitor,    // every tile, by a visitor that does nothing
};

/// When a case runs unless it is named.
enum class Rank : std::uint8_t { kQuick, kDefault, kOnlyWhenNamed };

struct BenchCase {
  std::string name;  // "prefill/T2048/d64/causal"
  Rank rank = Rank::kDefault;
  std::int64_t heads = 1, kv_heads = 1, q_len = 0, kv_len = 0;
  std::int64_t dim = 64;  // head_dim and v_dim
  bool causal = false;    // the queries are the last tokens
  bool backward = false;  // d_q, d_k and d_v after a forward run that is not timed; plain inputs
  bool appends = false;   // no attention: q_len tokens come to each of the sequences of a cache
  /// More than one: kv_len is the keys of all of them, which a cache holds. Their lengths differ, but for `appends`. One query each.
  std::int64_t sequences = 1;
  Feature feature = Feature::kNone;
  Asked asked = Asked::kNothing;
  DType dtype = DType::kF32;
  ExecOptions exec;      // path, isa, threads (at least 1)
  std::string baseline;  // the case that does the same work for each visible pair without the feature; empty: none

  /// Few queries against many keys.
  bool IsDecode() const { return q_len == 1 && !appends; }
  /// Bound by reading and writing keys and values; everything else is by multiply-adds.
  bool IsBoundByMemory() const { return IsDecode() || appends; }
  /// "32 heads, 8 kv heads, causal, mask": all that the columns of a row do not say.
  std::string Options() const;
};

inline constexpr std::int64_t kWindowLeft = 256;
inline constexpr float kSoftCap = 30;
inline constexpr float kDropout = 0.1f;

struct CaseSelection {
  bool quick = false;  // Rank::kQuick only
  /// Not empty: the case of this name, or else those whose names contain it, whatever their rank; and their baselines.
  std::string name_part = {};
  std::string isa = {};  // not empty: all cases on this target
  int threads = 0;       // > 0: all cases with so many
};

/// In the order in which they are run: a baseline comes before what is compared with it, and the cases of one baseline stand together.
/// Without a stated isa some cases are repeated on AVX2 where that is not the best target; without a stated number of threads some are
/// repeated with two.
std::vector<BenchCase> SelectCases(const CaseSelection& selection);

}  // namespace regard::measure
