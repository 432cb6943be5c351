#include "measure/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "regard/info.h"

namespace regard::measure {
namespace {

// What a case adds, as the last word of its name and as its options say it.
struct Words {
  std::string_view name;
  std::string explanation;
};

Words WordsOf(Feature feature) {
  switch (feature) {
    case Feature::kNone:
      break;
    case Feature::kMask:
      return {"mask", "mask 1×1×q×kv, all true"};
    case Feature::kBias:
      return {"bias", "bias 1×1×q×kv"};
    case Feature::kAlibi:
      return {"alibi", "ALiBi"};
    case Feature::kWindow:
      return {"window", fmt::format("window_left {}", kWindowLeft)};
    case Feature::kSinks:
      return {"sinks", "sinks"};
    case Feature::kSoftCap:
      return {"soft-cap", fmt::format("soft_cap {}", kSoftCap)};
    case Feature::kDropout:
      return {"dropout", fmt::format("dropout {}", kDropout)};
    case Feature::kPacked:
      return {"packed", "5 packed sequences"};
    case Feature::kTokenMajor:
      return {"bshd", "bshd"};
    case Feature::kPaged:
      return {"paged", "paged cache"};
    case Feature::kPagedI8:
      return {"paged-i8", "paged cache of i8"};
    case Feature::kRising:
      return {"rising", "rising scores"};
  }
  return {};
}

Words WordsOf(Asked asked) {
  switch (asked) {
    case Asked::kNothing:
      break;
    case Asked::kFirstPass:
      return {"first-pass", "entropy, top 8, row_max"};
    case Asked::kSummaries:
      return {"summaries", "entropy, top 8, key_mass, pooled"};
    case Asked::kKeyTopK:
      return {"key-top-k", "key_top_k 8"};
    case Asked::kVisitor:
      return {"visitor", "empty visitor"};
  }
  return {};
}

constexpr bool kFull = false, kCausal = true;

BenchCase Prefill(Rank rank, std::int64_t tokens, std::int64_t dim, bool causal, std::int64_t heads) {
  BenchCase c;
  c.name = fmt::format("prefill/T{}/d{}/{}", tokens, dim, causal ? "causal" : "full");
  c.rank = rank;
  c.heads = c.kv_heads = heads;
  c.q_len = c.kv_len = tokens;
  c.dim = dim;
  c.causal = causal;
  return c;
}

// The last queries of a longer text, as a prompt comes in chunks.
BenchCase Chunk(Rank rank, std::int64_t queries, std::int64_t tokens) {
  BenchCase c;
  c.name = fmt::format("prefill/T{}/kv{}/d128/causal", queries, tokens);
  c.rank = rank;
  c.heads = 8;
  c.kv_heads = 2;
  c.q_len = queries;
  c.kv_len = tokens;
  c.dim = 128;
  c.causal = true;
  return c;
}

// The gradients of a prefill, to be compared with it.
BenchCase Backward(Rank rank, const BenchCase& forward) {
  BenchCase c = forward;
  c.name.replace(0, std::string_view("prefill").size(), "backward");
  c.baseline = forward.name;
  c.rank = rank;
  c.backward = true;
  return c;
}

// Llama-3-8B's attention at one token: 32 heads that share 8 kv heads.
BenchCase Decode(Rank rank, std::int64_t tokens) {
  BenchCase c;
  c.name = fmt::format("decode/kv{}/d128", tokens);
  c.rank = rank;
  c.heads = 32;
  c.kv_heads = 8;
  c.q_len = 1;
  c.kv_len = tokens;
  c.dim = 128;
  return c;
}

// New tokens of one sequence, or one of each of many, for a cache with the kv heads of Decode.
BenchCase Append(Rank rank, std::int64_t tokens, std::int64_t sequences) {
  BenchCase c;
  c.name = fmt::format("append/{}x{}/d128", sequences, tokens);
  c.rank = rank;
  c.heads = c.kv_heads = 8;
  c.q_len = tokens;
  c.kv_len = sequences * 1000;
  c.dim = 128;
  c.appends = true;
  c.sequences = sequences;
  return c;
}

// A case to be compared with another one, from which it differs as the last word of its name says.
BenchCase Variant(std::string_view word, Rank rank, const BenchCase& baseline) {
  BenchCase c = baseline;
  c.name += fmt::format("/{}", word);
  c.baseline = baseline.name;
  c.rank = rank;
  return c;
}

BenchCase With(Feature feature, Rank rank, const BenchCase& plain) {
  BenchCase c = Variant(WordsOf(feature).name, rank, plain);
  c.feature = feature;
  return c;
}

BenchCase Asking(Asked asked, Rank rank, const BenchCase& silent) {
  BenchCase c = Variant(WordsOf(asked).name, rank, silent);
  c.asked = asked;
  return c;
}

BenchCase Along(Path path, Rank rank, const BenchCase& fused) {
  BenchCase c = Variant(Name(path), rank, fused);
  c.exec.path = path;
  return c;
}

BenchCase On(const std::string& isa, Rank rank, const BenchCase& best) {
  BenchCase c = Variant(isa, rank, best);
  c.exec.isa = isa;
  return c;
}

// Keys, values, queries and context of another type.
BenchCase Stored(DType dtype, Rank rank, const BenchCase& f32) {
  BenchCase c = Variant(Name(dtype), rank, f32);
  c.dtype = dtype;
  return c;
}

// The same keys as those of several sequences.
BenchCase Batch(std::int64_t sequences, Rank rank, const BenchCase& one) {
  BenchCase c = Variant("batch", rank, one);
  c.sequences = sequences;
  return c;
}

BenchCase Threads(int threads, Rank rank, const BenchCase& one) {
  BenchCase c = Variant(fmt::format("{}-threads", threads), rank, one);
  c.exec.threads = threads;
  return c;
}

bool IsSecondTarget(std::string_view name) {
  const std::vector<Target> targets = Targets();
  return BestTarget() != name && std::ranges::any_of(targets, [&](const Target& t) { return t.supported && t.name == name; });
}

constexpr Rank kQuick = Rank::kQuick, kDefault = Rank::kDefault, kNamed = Rank::kOnlyWhenNamed;

// What asking about the weights costs. The baselines stand in AllCases, but for rising scores.
std::vector<BenchCase> AskingCases() {
  std::vector<BenchCase> cases;
  for (const std::int64_t dim : {64, 128}) {
    for (const std::int64_t tokens : {512, 2048, 8192}) {
      for (const bool causal : {kFull, kCausal}) {
        const BenchCase silent = Prefill(kDefault, tokens, dim, causal, tokens == 8192 ? 1 : 8);
        const Rank rank = tokens == 2048 || (dim == 64 && tokens == 512) ? kDefault : kNamed;
        const bool shortest = dim == 64 && tokens == 2048 && !causal;
        cases.push_back(Asking(Asked::kFirstPass, shortest ? kQuick : dim == 64 ? rank : kNamed, silent));
        cases.push_back(Asking(Asked::kSummaries, shortest ? kQuick : rank, silent));
      }
    }
  }
  for (const bool causal : {kFull, kCausal}) {
    const BenchCase plain = Prefill(kDefault, 2048, 64, causal, 8);
    const BenchCase rising = With(Feature::kRising, causal ? kNamed : kDefault, plain);
    cases.push_back(Asking(Asked::kKeyTopK, rising.rank, plain));
    cases.push_back(Asking(Asked::kVisitor, rising.rank, plain));
    cases.push_back(rising);
    cases.push_back(Asking(Asked::kFirstPass, rising.rank, rising));
    cases.push_back(Asking(Asked::kSummaries, rising.rank, rising));
    cases.push_back(Asking(Asked::kKeyTopK, kNamed, rising));
  }
  return cases;
}

std::vector<BenchCase> BackwardCases(const CaseSelection& selection) {
  std::vector<BenchCase> cases;
  for (const std::int64_t dim : {64, 128}) {
    for (const std::int64_t tokens : {512, 2048, 8192}) {
      for (const bool causal : {kFull, kCausal}) {
        const BenchCase forward = Prefill(kDefault, tokens, dim, causal, tokens == 8192 ? 1 : 8);
        const Rank rank = tokens == 2048 || (dim == 64 && tokens == 512) ? kDefault : kNamed;
        cases.push_back(Backward(tokens == 2048 && dim == 64 ? kQuick : rank, forward));
      }
    }
  }
  const BenchCase full = Backward(kQuick, Prefill(kQuick, 2048, 64, kFull, 8));
  cases.push_back(With(Feature::kDropout, kDefault, full));
  cases.push_back(Stored(DType::kBF16, kDefault, full));
  cases.push_back(Along(Path::kStaged, kDefault, full));
  if (selection.isa.empty() && IsSecondTarget("AVX2")) cases.push_back(On("AVX2", kDefault, full));
  if (selection.threads <= 0) cases.push_back(Threads(2, kDefault, full));
  return cases;
}

// What a loop that writes text does with its cache. Decode(…) stands in AllCases.
std::vector<BenchCase> CacheCases(const CaseSelection& selection) {
  std::vector<BenchCase> cases;
  for (const auto& [tokens, sequences] : {std::pair<std::int64_t, std::int64_t>{1, 32}, {512, 1}}) {
    const BenchCase f32 = Append(kDefault, tokens, sequences);
    cases.push_back(f32);
    cases.push_back(Stored(DType::kBF16, kDefault, f32));
    cases.push_back(With(Feature::kPagedI8, kNamed, f32));
  }
  const BenchCase chunk = Chunk(kNamed, 512, 8192);
  for (const BenchCase& c : {chunk, Stored(DType::kBF16, kNamed, chunk)}) {
    cases.push_back(c);
    cases.push_back(With(Feature::kPaged, c.dtype == DType::kBF16 ? kDefault : kNamed, c));
  }
  const BenchCase f32 = Decode(kDefault, 32768), bf16 = Stored(DType::kBF16, kQuick, f32);
  for (const BenchCase& c :
       {With(Feature::kPaged, kDefault, f32), With(Feature::kPaged, kDefault, bf16), With(Feature::kPagedI8, kDefault, f32)}) {
    cases.push_back(c);
    cases.push_back(Batch(8, c.dtype == DType::kF32 && c.feature == Feature::kPaged ? kNamed : kDefault, c));
  }
  if (selection.threads <= 0) {
    cases.push_back(Threads(2, kDefault, With(Feature::kPagedI8, kDefault, f32)));
    cases.push_back(Threads(2, kNamed, Batch(8, kDefault, With(Feature::kPagedI8, kDefault, f32))));
  }
  return cases;
}

std::vector<BenchCase> AllCases(const CaseSelection& selection) {
  std::vector<BenchCase> cases;
  const auto add = [&cases](const BenchCase& c) { cases.push_back(c); };

  // Heads are chosen so that one run takes long enough to time and the long ones not too long.
  for (const std::int64_t dim : {64, 128}) {
    add(Prefill(kDefault, 128, dim, kFull, 16));
    add(Prefill(kDefault, 128, dim, kCausal, 16));
    add(Prefill(dim == 64 ? kQuick : kDefault, 512, dim, kFull, 8));
    add(Prefill(dim == 64 ? kQuick : kDefault, 512, dim, kCausal, 8));
    add(Prefill(kQuick, 2048, dim, kFull, 8));
    add(Prefill(kQuick, 2048, dim, kCausal, 8));
    add(Prefill(kDefault, 8192, dim, kFull, 1));
    add(Prefill(dim == 64 ? kQuick : kDefault, 8192, dim, kCausal, 1));
    add(Prefill(dim == 64 ? kDefault : kNamed, 16384, dim, kFull, 1));
    add(Prefill(dim == 64 ? kDefault : kNamed, 16384, dim, kCausal, 1));
  }
  add(Decode(kDefault, 8192));
  add(Decode(kQuick, 32768));
  for (const std::int64_t tokens : {8192, 32768}) {
    const BenchCase f32 = Decode(kDefault, tokens);
    add(Stored(DType::kBF16, tokens == 32768 ? kQuick : kDefault, f32));
    add(Stored(DType::kF16, kDefault, f32));
  }

  const BenchCase full64 = Prefill(kQuick, 2048, 64, kFull, 8), causal64 = Prefill(kQuick, 2048, 64, kCausal, 8);
  const BenchCase full128 = Prefill(kQuick, 2048, 128, kFull, 8), causal128 = Prefill(kQuick, 2048, 128, kCausal, 8);
  add(With(Feature::kMask, kQuick, full64));
  add(With(Feature::kBias, kDefault, full64));
  add(With(Feature::kAlibi, kDefault, causal64));
  add(With(Feature::kWindow, kQuick, causal64));
  add(With(Feature::kSinks, kDefault, causal64));
  add(With(Feature::kSoftCap, kQuick, full64));
  add(With(Feature::kDropout, kDefault, full64));
  add(With(Feature::kDropout, kNamed, causal64));
  add(With(Feature::kDropout, kNamed, full128));
  add(With(Feature::kDropout, kNamed, Decode(kDefault, 8192)));
  add(With(Feature::kPacked, kDefault, causal64));
  add(With(Feature::kTokenMajor, kDefault, full64));
  add(With(Feature::kTokenMajor, kNamed, causal128));
  add(With(Feature::kPaged, kDefault, causal64));
  add(With(Feature::kPaged, kNamed, Decode(kDefault, 8192)));
  for (const BenchCase& c : CacheCases(selection)) add(c);
  for (const BenchCase& c : AskingCases()) add(c);
  for (const BenchCase& c : BackwardCases(selection)) add(c);
  add(Along(Path::kStaged, kQuick, full64));
  add(Along(Path::kStaged, kDefault, causal64));
  add(Along(Path::kStaged, kDefault, full128));
  add(Along(Path::kStaged, kNamed, causal128));
  for (const BenchCase& f32 : {full64, causal64, full128, causal128}) {
    const bool first = f32.name == full64.name;
    const BenchCase bf16 = Stored(DType::kBF16, first ? kQuick : kDefault, f32);
    const BenchCase f16 = Stored(DType::kF16, first ? kDefault : kNamed, f32);
    add(bf16);
    add(f16);
    if (!selection.isa.empty()) continue;
    if (BestTarget() == "AVX3_BF16") add(On("AVX3", f32.causal ? kNamed : kDefault, bf16));  // converted
    if (IsSecondTarget("AVX2")) add(On("AVX2", kNamed, bf16));
    if (IsSecondTarget("AVX2")) add(On("AVX2", kNamed, f16));
  }
  if (selection.isa.empty() && BestTarget() == "AVX3_BF16") {
    add(On("AVX3", kDefault, Stored(DType::kBF16, kDefault, Decode(kDefault, 32768))));  // converted
  }
  if (selection.isa.empty() && IsSecondTarget("AVX2")) {
    add(On("AVX2", kQuick, full64));
    add(On("AVX2", kDefault, causal64));
    add(On("AVX2", kDefault, full128));
    add(On("AVX2", kDefault, causal128));
    add(On("AVX2", kDefault, Decode(kDefault, 8192)));
  }
  if (selection.threads <= 0) {
    add(Threads(2, kQuick, full64));
    add(Threads(2, kDefault, causal64));
    add(Threads(2, kDefault, causal128));
    add(Threads(2, kDefault, Decode(kDefault, 32768)));
    add(Threads(2, kDefault, Stored(DType::kBF16, kDefault, Decode(kDefault, 32768))));
  }
  // The ratio to a sixteenth of the length tells whether time grows with the square of it.
  BenchCase longest = Prefill(kNamed, 131072, 64, kCausal, 1);
  longest.baseline = Prefill(kDefault, 8192, 64, kCausal, 1).name;
  add(longest);

  for (BenchCase& c : cases) {
    if (!selection.isa.empty() && c.exec.path == Path::kFused) c.exec.isa = selection.isa;
    if (selection.threads > 0) c.exec.threads = selection.threads;
    c.exec.threads = std::max(c.exec.threads, 1);
  }
  return cases;
}

// Each case without a baseline, those compared with it, those compared with these, …: all that have one baseline stand together.
std::vector<BenchCase> FollowersAfterBaselines(const std::vector<BenchCase>& cases) {
  std::vector<BenchCase> result;
  for (const BenchCase& root : cases) {
    if (std::ranges::find(cases, root.baseline, &BenchCase::name) != cases.end()) continue;
    std::size_t next = result.size();
    result.push_back(root);
    for (; next < result.size(); ++next) {
      const std::string baseline = result[next].name;
      std::ranges::copy_if(cases, std::back_inserter(result), [&](const BenchCase& c) { return c.baseline == baseline; });
    }
  }
  return result;
}

}  // namespace

std::string BenchCase::Options() const {
  std::string text = appends ? fmt::format("{} kv heads", kv_heads) : fmt::format("{} {}", heads, heads == 1 ? "head" : "heads");
  if (kv_heads != heads) text += fmt::format(", {} kv heads", kv_heads);
  if (sequences > 1) text += fmt::format(", {} sequences", sequences);
  if (causal) text += ", causal";
  if (backward) text += ", backward";
  if (feature != Feature::kNone) text += ", " + WordsOf(feature).explanation;
  if (asked != Asked::kNothing) text += ", " + WordsOf(asked).explanation;
  if (exec.path != Path::kFused) text += fmt::format(", {} path", regard::Name(exec.path));
  return text;
}

std::vector<BenchCase> SelectCases(const CaseSelection& selection) {
  const std::vector<BenchCase> all = AllCases(selection);
  const bool is_whole_name = std::ranges::find(all, selection.name_part, &BenchCase::name) != all.end();
  const auto is_named = [&](const std::string& name) {
    return is_whole_name ? name == selection.name_part : name.find(selection.name_part) != std::string::npos;
  };
  std::vector<bool> chosen(all.size());
  // Backwards, since a baseline stands before what names it.
  for (std::size_t i = all.size(); i-- > 0;) {
    const bool asked = selection.name_part.empty()
                           ? all[i].rank == Rank::kQuick || (all[i].rank == Rank::kDefault && !selection.quick)
                           : is_named(all[i].name);
    chosen[i] = chosen[i] || asked;
    if (!chosen[i] || all[i].baseline.empty()) continue;
    const auto baseline = std::ranges::find(all, all[i].baseline, &BenchCase::name);
    if (baseline != all.end()) chosen[static_cast<std::size_t>(baseline - all.begin())] = true;
  }
  std::vector<BenchCase> selected;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (chosen[i]) selected.push_back(all[i]);
  }
  return FollowersAfterBaselines(selected);
}

}  // namespace regard::measure
