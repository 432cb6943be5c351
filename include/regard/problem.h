// An attention problem out of files: which array is what, in which layout, under which rules. Part of regard::tools.
//
//     regard::io::Problem p = regard::io::LoadProblem({"layer3.npz"}, {.causal = true});
//     std::puts(p.reading.c_str());   // read as batch 2, heads 3, tokens 4, dim 8; causal; scale 1/√8
//     regard::AttentionResult r = regard::Attention(p.q, p.k, p.v, p.params);
//     regard::Tensor context = p.ToFileShape("context", r.context);
//     regard::io::WriteNpz("out.npz", {{.name = "context", .tensor = context}});
//
// Sources. Each is a file that io.h can open, or `name=file` to say what its one array is (`q=q.npy`, `v=v.bin:f32:12x128x64`).
// Several add up; two arrays for one name are an error. Keys, with other libraries' names for them (upper and lower case as
// written):
//
//     q  (Q, query, query_states)        k (K, key, key_states)         v (V, value, value_states)
//     qkv                                all three side by side, [tokens, width] or [batch, tokens, width]: blocks of num_heads heads of q,
//                                        then num_kv_heads of k, then of v
//     inputs (x, hidden_states)          w_query w_key w_value w_out [out, in], b_query b_key b_value b_out
//     mask  bias  (attn_mask: bool is mask, float is bias)              kv_lens (nonpad_kv_seqlen)
//     q_segments kv_segments (segments: both)   alibi_slopes   sinks    past_key past_value (go before k and v)
//     weights (attn_weights, attentions, pattern)   scores   capped   masked_scores   lse
//     context (Y, out, output, attn_output, z)   projected   d_context (the gradient of a loss by the context)
//     tokens, q_tokens, k_tokens         strings; in safetensors metadata a JSON list
//     scale causal q_offset window_left window_right soft_cap num_heads num_kv_heads
//                                        arrays of one element of any numeric or bool type, or safetensors metadata
//
// Other libraries' words whose values mean something else (attention_mask, sliding_window, …) are not read: a note says what to give.
//
// Any key may carry the prefix `layers.N.`: such a file holds several problems, of which LoadProblem loads one and ProblemFiles any.
//
// Three kinds of problem follow from what is there:
//     q, k and v, or qkv     attention
//     inputs                 self-attention: q, k, v by projection; without any w_… they are the inputs themselves and scale is 1
//     weights and v (or inputs, when nothing else of the first stages is there)      the third stage alone: context = weights · v
//
// Layouts, where a letter is an axis: b batch, h heads, s tokens, d dim. Rank 2 is [tokens, dim]; rank 4 is bhsd unless bshd is
// stated; inputs of rank 3 are [batch, tokens, dim]; q, k, v of rank 3 need hsd, shd or bsd stated (bsd: heads side by side along
// dim, num_heads of them). mask and bias are always [.., heads, q_len, kv_len]. Results come in the layout of the inputs
// (ToFileShape); axes that the inputs lack, they lack.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/projections.h"
#include "regard/tensor.h"

namespace regard::io {

enum class Layout : std::uint8_t { kBhsd, kBshd, kHsd, kShd, kBsd };
REGARD_API std::string_view Name(Layout layout) noexcept;                     // "bhsd", …
REGARD_API bool ParseLayout(std::string_view name, Layout* layout) noexcept;  // the inverse; false if unknown

/// q_offset as a person states it: a number, or a rule that needs the lengths.
struct QOffsetChoice {
  enum class Rule : std::uint8_t { kNumber, kTopLeft, kBottomRight };  // 0 and kv_len − q_len for the last two
  Rule rule = Rule::kNumber;
  std::int64_t number = 0;
};

/// What is stated besides the files. What is set here overrides the files, and a note says so.
struct ProblemOptions {
  std::optional<bool> causal = {};
  std::optional<QOffsetChoice> q_offset = {};
  std::optional<std::int64_t> window_left = {}, window_right = {};
  std::optional<float> scale = {}, soft_cap = {};
  std::optional<Layout> layout = {};
  std::optional<std::int64_t> num_heads = {}, num_kv_heads = {};
  std::optional<std::int64_t> layer = {};  // not set: the first one present
  std::string tokens = {};                 // a file with one token a line, or a JSON list; empty: what the files say
};

/// Labels of queries or keys, [length] for all sequences or [batch, length].
struct Tokens {
  std::int64_t length = 0;
  std::vector<std::string> values = {};

  explicit operator bool() const noexcept { return !values.empty(); }
  /// In range: 0 ≤ b < batch, 0 ≤ i < length.
  const std::string& At(std::int64_t b, std::int64_t i) const {
    const std::int64_t count = static_cast<std::int64_t>(values.size());
    return values[static_cast<std::size_t>(count == length ? i : b * length + i)];
  }
};

/// A problem and the memory it lies in; copies share that memory. Views are valid as long as any copy lives.
struct REGARD_API Problem {
  enum class Kind : std::uint8_t { kAttention, kSelfAttention, kThirdStage };
  Kind kind = Kind::kAttention;

  /// The sizes in force. In the third stage head_dim is 0 and `heads` are those of the weights.
  PlanShape shape = {};
  /// Rank 4: [batch, heads, q_len, head_dim], [batch, kv_heads, kv_len, …]; past_key and past_value already joined. Strided
  /// windows on what was read, unless projected or joined. In the third stage only v is given.
  TensorView q = {}, k = {}, v = {};
  /// Everything stated, by file or option; tensors bound. Not looked at in the third stage.
  AttentionParams params = {};
  /// The multiplier in force: params.scale, or its default.
  float scale = 1;

  TensorView inputs = {};        // kSelfAttention: as in the file, [tokens, in_dim] or [batch, tokens, in_dim]
  Projections projections = {};  // those given, w_out and b_out for every kind; num_heads and num_kv_heads are set
  TensorView weights = {};       // kThirdStage: [batch, heads, q_len, kv_len]
  std::int64_t past_len = 0;     // how many of the keys came from past_key

  Tokens q_tokens = {}, k_tokens = {};  // either may be missing

  /// Results of somebody else that lie in the same files, by regard's names: "context", "weights", …. Read on demand.
  std::vector<std::string> observed = {};
  Tensor ReadObserved(std::string_view name) const;  // as in the file; Error if not in `observed`

  std::optional<std::int64_t> layer = {};  // which one this is
  std::vector<std::int64_t> layers = {};   // those present, ascending

  /// One line that says how the files were read and what was assumed. Every command shows it first.
  std::string reading = {};
  /// Whatever else a reader should know, one line each: what was overridden, ignored, is not finite, is computed in less precision than
  /// given, or may not be meant: more than 64 key heads on fewer tokens, queries that kv_lens place before the first key.
  std::vector<std::string> notes = {};

  bool HasProjections() const noexcept { return projections.w_query || projections.w_key || projections.w_value; }

  // ------------------------------------------------------------------------------------------------ results and files

  /// The shape in files of the result `name`, whose full shape is [batch, heads, …]: lse, every stage and summary without the
  /// axes that the inputs lack; "context" and "d_context" moreover in their layout: [batch, tokens, heads, v_dim] for bshd, [batch, tokens,
  /// heads·v_dim] for bsd; "projected" is [batch, tokens, out_dim] in full.
  Dims FileShape(std::string_view name, const Dims& full) const;
  /// `tensor`, shaped as FileShape says, seen in full shape; nothing is copied. So a result can be computed where it is to lie:
  ///     Tensor context(DType::kF32, p.FileShape("context", full));
  ///     outputs.context = p.FromFileShape("context", full, context.mutable_view());
  /// Error kShapeMismatch when it has another shape.
  TensorView FromFileShape(std::string_view name, const Dims& full, const TensorView& tensor) const;
  MutableTensorView FromFileShape(std::string_view name, const Dims& full, const MutableTensorView& tensor) const;
  /// A copy of a result in full shape, as it goes into files.
  Tensor ToFileShape(std::string_view name, const TensorView& full) const;

  /// Which axes the inputs have, in which order.
  struct Axes {
    bool batch = false, heads = false;
    Layout layout = Layout::kBhsd;  // of context
  };
  Axes axes = {};

  struct Storage;
  std::shared_ptr<const Storage> storage = {};
};

/// Reads what the sources hold and binds it. Throws Error: what io.h says about files; kInvalidArgument for keys that are
/// missing, doubled or hold the wrong kind of value; kShapeMismatch for axes that do not fit. What depends on values across
/// tensors (kv_lens, segments, mask shapes) is left to the Plan, whose messages are as good.
REGARD_API Problem LoadProblem(const std::vector<std::string>& sources, const ProblemOptions& options = {});

class ProblemSources;  // in src/io

/// The files of problems, opened once, for files with several layers:
///     const regard::io::ProblemFiles files({"model.safetensors"});
///     for (const std::int64_t layer : files.layers()) Use(files.Load({.layer = layer}));
/// Opening reads headers only. Problems share the files that they came from: one thread at a time loads, or reads what was observed.
class REGARD_API ProblemFiles {
 public:
  explicit ProblemFiles(const std::vector<std::string>& sources);
  /// Those that keys are prefixed with, ascending.
  const std::vector<std::int64_t>& layers() const noexcept;
  /// As LoadProblem does.
  Problem Load(const ProblemOptions& options = {}) const;
  /// Whether the files list the same arrays in the same shapes for both layers, so that their problems have the same sizes. Reads nothing.
  bool HaveSameShapes(std::int64_t layer_a, std::int64_t layer_b) const;

 private:
  std::shared_ptr<const ProblemSources> sources_;
};

/// regard's name of a key that may be another library's: "q" for "query_states". Empty if unknown; a `layers.N.` prefix is
/// unknown. For attn_mask it is "attn_mask", since its element type decides.
REGARD_API std::string_view CanonicalName(std::string_view key) noexcept;

/// A list of indices as a person writes it: `0,3-5`. Empty stands for all.
class REGARD_API Selection {
 public:
  Selection() = default;
  /// `name` is what messages call it, such as "--row". Error kInvalidArgument unless the text is a list of numbers and ranges.
  static Selection Parse(std::string_view name, std::string_view text);

  bool all() const noexcept { return ranges_.empty(); }
  /// The indices below `size`, as given, without repetitions. Error kInvalidArgument when one is not below it.
  std::vector<std::int64_t> Indices(std::int64_t size) const;
  /// The same out of indices with gaps, `present`, which ascend. Error when one that is chosen is not among them.
  std::vector<std::int64_t> Among(std::span<const std::int64_t> present) const;

 private:
  std::string name_;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;  // first, last
};

}  // namespace regard::io
