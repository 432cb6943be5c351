#include "core/bind.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

#include "core/kv_cache.h"
#include "core/overlap.h"
#include "core/scratch.h"
#include "core/sequences.h"
#include "core/shape_text.h"

namespace regard::internal {
namespace {

using enum ErrorCode;

// Beyond this, sums of positions, offsets and windows could overflow; no sequence is that long.
constexpr std::int64_t kMaxOffset = std::int64_t{1} << 60;

// Threads that anybody states: more than any machine of today has, and few enough to be started (OpenMP ends the process when it cannot).
constexpr int kMaxThreads = 4096;

const char* DTypeText(DType dtype) { return Name(dtype).data(); }

bool IsIndexType(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }

// ------------------------------------------------------------------------------------------------------------- q, k, v

Status BindOperand(const char* name, const TensorView& view, DType dtype, bool strided_dim, View4* out, std::int64_t dims[4]) {
  if (!view) return Status::Failure(kInvalidArgument, "%s: missing; pass q, k and v", name);
  if (view.rank() != 4 && view.rank() != 2) {
    return Status::Failure(kShapeMismatch, "%s: shape %s has %d %s; give [batch, heads, tokens, dim] or [tokens, dim]", name,
                           ShapeText(view.shape()).text, view.rank(), AxisWord(view.rank()));
  }
  if (!IsFloat(view.dtype())) {
    return Status::Failure(kInvalidArgument, "%s: element type %s is not a float type; convert it to f32, f16, bf16 or f64", name,
                           DTypeText(view.dtype()));
  }
  if (view.dtype() != dtype) {
    return Status::Failure(kInvalidArgument, "%s: element type %s, but the plan was made for %s; make a plan with %s_dtype = %s",
                           name, DTypeText(view.dtype()), DTypeText(dtype), name, DTypeText(view.dtype()));
  }
  const int missing = 4 - view.rank();
  *out = {view.data(), view.dtype(), {}};
  for (int axis = 0; axis < 4; ++axis) {
    dims[axis] = axis < missing ? 1 : view.shape()[axis - missing];
    out->stride[axis] = axis < missing ? 0 : view.strides()[axis - missing];
  }
  if (out->stride[3] != 1 && dims[3] > 1 && !strided_dim) {
    return Status::Failure(kInvalidArgument,
                           "%s: stride %" PRId64 " along dim, but the plan expects 1; make a plan with strided_dim = true", name,
                           out->stride[3]);
  }
  return {};
}

Status Expect(const char* name, const char* axis, std::int64_t value, std::int64_t expected, const char* expected_name) {
  if (value == expected) return {};
  return Status::Failure(kShapeMismatch, "%s: %s=%" PRId64 ", expected %s=%" PRId64 "; check the axis order", name, axis, value,
                         expected_name, expected);
}

Status ExpectAtMost(const char* name, const char* axis, std::int64_t value, std::int64_t capacity) {
  if (value <= capacity) return {};
  return Status::Failure(kShapeMismatch, "%s: %s=%" PRId64 " exceeds the plan's %" PRId64 "; make a plan with a larger %s", name,
                         axis, value, capacity, axis);
}

// What holds for keys and values of either kind, once q and the lengths are known.
Status BindSizes(const PlanShape& capacity, const std::int64_t q[4], std::int64_t kv_heads, std::int64_t kv_len,
                 std::int64_t v_dim, Problem* p) {
  Status s;
  if (!(s = Expect("q", "heads", q[1], capacity.heads, "the plan's heads")).ok()) return s;
  if (!(s = Expect("k", "kv_heads", kv_heads, capacity.kv_heads, "the plan's kv_heads")).ok()) return s;
  if (!(s = Expect("q", "head_dim", q[3], capacity.head_dim, "the plan's head_dim")).ok()) return s;
  if (!(s = Expect("v", "v_dim", v_dim, capacity.v_dim, "the plan's v_dim")).ok()) return s;
  if (!(s = ExpectAtMost("q", "batch", q[0], capacity.batch)).ok()) return s;
  if (!(s = ExpectAtMost("q", "q_len", q[2], capacity.q_len)).ok()) return s;
  if (!(s = ExpectAtMost("k", "kv_len", kv_len, capacity.kv_len)).ok()) return s;
  p->batch = q[0];
  p->heads = q[1];
  p->kv_heads = kv_heads;
  p->group_size = p->heads / p->kv_heads;
  p->q_len = q[2];
  p->kv_len = kv_len;
  p->head_dim = q[3];
  p->v_dim = v_dim;
  return {};
}

Status ExpectStoredType(const char* name, DType stored, DType planned) {
  if (stored == planned) return {};
  return Status::Failure(kInvalidArgument, "cache: holds %s as %s, but the plan was made for %s; make a plan with %s_dtype = %s",
                         name, DTypeText(stored), DTypeText(planned), name, DTypeText(stored));
}

// q as a tensor, k and v as sequences of a cache.
Status BindCached(const PlanShape& capacity, const Inputs& in, Problem* p) {
  if (in.k || in.v) {
    return Status::Failure(kInvalidArgument, "%s: given beside a cache; leave it out, or the cache", in.k ? "k" : "v");
  }
  std::int64_t q[4];
  Status s;
  if (!(s = BindOperand("q", in.q, capacity.q_dtype, capacity.strided_dim, &p->q, q)).ok()) return s;
  const KvCache::Impl& cache = in.cache->impl();
  const KvCacheOptions& o = cache.options;
  if (!(s = Expect("sequences", "size", static_cast<std::int64_t>(in.sequences.size()), q[0], "q's batch")).ok()) return s;
  if (!(s = Expect("cache", "head_dim", o.head_dim, q[3], "q's head_dim")).ok()) return s;
  if (!(s = ExpectStoredType("k", o.k_dtype, capacity.k_dtype)).ok()) return s;
  if (!(s = ExpectStoredType("v", o.v_dtype, capacity.v_dtype)).ok()) return s;
  std::int64_t longest = 0;
  for (std::size_t b = 0; b < in.sequences.size(); ++b) {
    const CachedSequence* const sequence = cache.Find(in.sequences[b]);
    if (sequence == nullptr) {
      return Status::Failure(kInvalidArgument,
                             "sequences: sequences[%zu] is not in the cache; give ids that NewSequence or Fork "
                             "returned and Drop has not ended",
                             b);
    }
    longest = std::max(longest, sequence->length);
  }
  if (!(s = BindSizes(capacity, q, o.kv_heads, longest, o.v_dim, p)).ok()) return s;
  p->k.dtype = o.k_dtype;
  p->v.dtype = o.v_dtype;
  p->cached = {&cache, in.sequences.data()};
  return {};
}

Status BindQkv(const PlanShape& capacity, const Inputs& in, Problem* p) {
  if (in.cache != nullptr) return BindCached(capacity, in, p);
  if (!in.sequences.empty()) {
    return Status::Failure(kInvalidArgument, "sequences: given without a cache; give cache too");
  }
  if (in.q && in.k && in.v && (in.q.rank() != in.k.rank() || in.q.rank() != in.v.rank())) {
    return Status::Failure(kShapeMismatch, "q, k, v: %d, %d and %d axes; give all three alike", in.q.rank(), in.k.rank(),
                           in.v.rank());
  }
  std::int64_t q[4], k[4], v[4];
  Status s;
  if (!(s = BindOperand("q", in.q, capacity.q_dtype, capacity.strided_dim, &p->q, q)).ok()) return s;
  if (!(s = BindOperand("k", in.k, capacity.k_dtype, capacity.strided_dim, &p->k, k)).ok()) return s;
  if (!(s = BindOperand("v", in.v, capacity.v_dtype, capacity.strided_dim, &p->v, v)).ok()) return s;
  if (!(s = Expect("k", "batch", k[0], q[0], "q's batch")).ok()) return s;
  if (!(s = Expect("v", "batch", v[0], q[0], "q's batch")).ok()) return s;
  if (!(s = Expect("v", "kv_heads", v[1], k[1], "k's kv_heads")).ok()) return s;
  if (!(s = Expect("v", "kv_len", v[2], k[2], "k's kv_len")).ok()) return s;
  if (!(s = Expect("k", "head_dim", k[3], q[3], "q's head_dim")).ok()) return s;
  return BindSizes(capacity, q, k[1], k[2], v[3], p);
}

// ------------------------------------------------------------------------------------------------- tensors of the options

// What a run uses of one option: its own tensor, else the plan's. A run may not bring an option the plan does not know.
Status Choose(const char* name, const TensorView& own, const TensorView& planned, TensorView* chosen) {
  if (own && !planned) {
    return Status::Failure(kInvalidArgument, "%s: given to the run but not to the plan; put it into the plan's params", name);
  }
  if (own && own.dtype() != planned.dtype()) {
    return Status::Failure(kInvalidArgument, "%s: element type %s, but the plan was made with %s; keep one type", name,
                           DTypeText(own.dtype()), DTypeText(planned.dtype()));
  }
  *chosen = own ? own : planned;
  return {};
}

bool Broadcasts(std::int64_t dim, std::int64_t full) { return dim == full || dim == 1; }

// [batch, kv_len] and [batch, q_len, kv_len], as other libraries store masks of whole sequences: where the axes that they lack are to stand.
const char* AxesBehindBatch(const Dims& shape, const std::int64_t full[4], Dims* with_all) {
  const int rank = shape.size();
  if (rank != 2 && rank != 3) return nullptr;
  if (shape[0] != full[0] || !Broadcasts(shape[rank - 1], full[3]) || (rank == 3 && !Broadcasts(shape[1], full[2])))
    return nullptr;
  *with_all = {shape[0], 1, rank == 3 ? shape[1] : 1, shape[rank - 1]};
  return rank == 3 ? "[batch, 1, q_len, kv_len]" : "[batch, 1, 1, kv_len]";
}

// mask and bias: right-aligned broadcast to [batch, heads, q_len, kv_len].
Status BindBroadcast(const char* name, const TensorView& view, const TensorView& planned, const Problem& p, View4* out) {
  const std::int64_t full[4] = {p.batch, p.heads, p.q_len, p.kv_len};
  const int missing = 4 - view.rank();
  bool fits = missing >= 0;
  *out = {view.data(), view.dtype(), {}};
  for (int axis = std::max(missing, 0); fits && axis < 4; ++axis) {
    const std::int64_t dim = view.shape()[axis - missing];
    fits = Broadcasts(dim, full[axis]);
    out->stride[axis] = dim == 1 ? 0 : view.strides()[axis - missing];
    const int planned_axis = axis - (4 - planned.rank());
    if (fits && dim != 1 && (planned_axis < 0 || (planned.shape()[planned_axis] == 1 && full[axis] != 1))) {
      return Status::Failure(kShapeMismatch,
                             "%s: shape %s is longer than the plan's %s on axis %d; make a plan with the full shape", name,
                             ShapeText(view.shape()).text, ShapeText(planned.shape()).text, axis);
    }
  }
  if (fits) return {};
  const ShapeText given(view.shape()), wanted({p.batch, p.heads, p.q_len, p.kv_len});
  Dims meant;
  if (const char* const axes = AxesBehindBatch(view.shape(), full, &meant)) {
    return Status::Failure(
        kShapeMismatch,
        "%s: shape %s does not broadcast to [batch, heads, q_len, kv_len] = %s; if it is one for each sequence, give %s = %s",
        name, given.text, wanted.text, axes, ShapeText(meant).text);
  }
  return Status::Failure(
      kShapeMismatch,
      "%s: shape %s does not broadcast to [batch, heads, q_len, kv_len] = %s; right-align it, with 1 where it repeats", name,
      given.text, wanted.text);
}

Status BindMaskAndBias(const AttentionParams& params, const Inputs& in, Problem* p) {
  TensorView mask, bias;
  Status s;
  if (!(s = Choose("mask", in.mask, params.mask, &mask)).ok()) return s;
  if (!(s = Choose("bias", in.bias, params.bias, &bias)).ok()) return s;
  if (mask && !(s = BindBroadcast("mask", mask, params.mask, *p, &p->mask)).ok()) return s;
  if (bias && !(s = BindBroadcast("bias", bias, params.bias, *p, &p->bias)).ok()) return s;
  return {};
}

// kv_lens, q_offset, segments: i32 or i64 with the given length along axis 3, or [batch] when length is 1.
Status BindIndex(const char* name, const TensorView& view, std::int64_t batch, std::int64_t length, View4* out) {
  if (!IsIndexType(view.dtype())) {
    return Status::Failure(kInvalidArgument, "%s: element type %s; give i32 or i64", name, DTypeText(view.dtype()));
  }
  *out = {view.data(), view.dtype(), {}};
  const bool per_batch = length == -1;
  bool fits = false;
  if (per_batch && view.rank() == 1) {
    fits = view.shape()[0] == batch;
    out->stride[0] = view.strides()[0];
  } else if (!per_batch && view.rank() == 2) {
    fits = view.shape()[1] == length && (view.shape()[0] == batch || view.shape()[0] == 1);
    out->stride[0] = view.shape()[0] == 1 ? 0 : view.strides()[0];
    out->stride[3] = view.strides()[1];
  } else if (!per_batch && view.rank() == 1) {
    fits = view.shape()[0] == length;
    out->stride[3] = view.strides()[0];
  }
  if (fits) return {};
  if (per_batch) {
    return Status::Failure(kShapeMismatch, "%s: shape %s; give [batch] = [%" PRId64 "]", name, ShapeText(view.shape()).text,
                           batch);
  }
  return Status::Failure(kShapeMismatch, "%s: shape %s; give [batch, tokens] = %" PRId64 "×%" PRId64, name,
                         ShapeText(view.shape()).text, batch, length);
}

Status BindLengths(const AttentionParams& params, const Inputs& in, Problem* p) {
  TensorView kv_lens;
  Status s;
  if (!(s = Choose("kv_lens", in.kv_lens, params.kv_lens, &kv_lens)).ok()) return s;
  if (kv_lens && p->is_cached()) {
    return Status::Failure(kUnsupported, "kv_lens: given with a cache, which knows its lengths; leave it out");
  }
  if (kv_lens) {
    if (!(s = BindIndex("kv_lens", kv_lens, p->batch, -1, &p->kv_lens)).ok()) return s;
    for (std::int64_t b = 0; b < p->batch; ++b) {
      const std::int64_t length = p->KvLen(b);
      if (length < 0 || length > p->kv_len) {
        return Status::Failure(kInvalidArgument,
                               "kv_lens: kv_lens[%" PRId64 "]=%" PRId64 " is outside 0…kv_len=%" PRId64
                               "; give the number of valid keys",
                               b, length, p->kv_len);
      }
    }
  }
  const QOffset& offset = in.q_offset.is_stated() ? in.q_offset : params.q_offset;
  p->scalar_q_offset = offset.value().value_or(0);
  if (offset.per_sequence() && !(s = BindIndex("q_offset", offset.per_sequence(), p->batch, -1, &p->q_offset)).ok()) return s;
  p->q_offset_from_kv_lens = kv_lens && !offset.is_stated();
  p->q_offset_from_cache = p->is_cached() && !offset.is_stated();
  for (std::int64_t b = 0; b < (p->q_offset.data != nullptr ? p->batch : 1); ++b) {
    if (p->batch > 0 && (p->QOffset(b) < -kMaxOffset || p->QOffset(b) > kMaxOffset)) {
      return Status::Failure(kInvalidArgument, "q_offset: %" PRId64 " is beyond ±2^60; give the number of keys before query 0",
                             p->QOffset(b));
    }
  }
  return {};
}

// ------------------------------------------------------------------------------------------------------------- segments

// Every number but −1 forms one run. Ascending numbers, the usual case, are seen to do so in one pass.
Status CheckRuns(const char* name, const View4& segments, std::int64_t batch, std::int64_t length) {
  const std::int64_t rows = segments.stride[0] == 0 ? std::min<std::int64_t>(batch, 1) : batch;
  for (std::int64_t b = 0; b < rows; ++b) {
    const auto number = [&](std::int64_t i) { return LoadInt(segments, b * segments.stride[0] + i * segments.stride[3]); };
    bool ascending = true;
    std::int64_t largest = -1;
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t n = number(i);
      if (n < -1) {
        return Status::Failure(kInvalidArgument,
                               "%s: number %" PRId64 " at [%" PRId64 ", %" PRId64 "]; use 0 or more, −1 for padding", name, n, b,
                               i);
      }
      if (n == -1 || (i > 0 && n == number(i - 1))) continue;
      ascending = ascending && n > largest;
      largest = std::max(largest, n);
    }
    for (std::int64_t i = 1; !ascending && i < length; ++i) {
      if (number(i) == -1 || number(i) == number(i - 1)) continue;
      for (std::int64_t j = 0; j < i; ++j) {
        if (number(j) == number(i)) {
          return Status::Failure(kInvalidArgument,
                                 "%s: number %" PRId64 " at token %" PRId64 " continues after a gap (first at token %" PRId64
                                 ", sequence %" PRId64 "); number each contiguous run differently",
                                 name, number(i), i, j, b);
        }
      }
    }
  }
  return {};
}

Status BindSegments(const AttentionParams& params, const Inputs& in, Problem* p) {
  TensorView q, kv;
  Status s;
  if (!(s = Choose("q_segments", in.q_segments, params.q_segments, &q)).ok()) return s;
  if (!(s = Choose("kv_segments", in.kv_segments, params.kv_segments, &kv)).ok()) return s;
  if (!q && !kv) return {};
  if (p->is_cached()) {
    return Status::Failure(kUnsupported, "%s: given with a cache, which holds one text a sequence; make a sequence of each",
                           q ? "q_segments" : "kv_segments");
  }
  if (!q || !kv) {
    return Status::Failure(kInvalidArgument, "%s: missing while %s is given; give both", q ? "kv_segments" : "q_segments",
                           q ? "q_segments" : "kv_segments");
  }
  if (!(s = BindIndex("q_segments", q, p->batch, p->q_len, &p->q_segments)).ok()) return s;
  if (!(s = BindIndex("kv_segments", kv, p->batch, p->kv_len, &p->kv_segments)).ok()) return s;
  if (!(s = CheckRuns("q_segments", p->q_segments, p->batch, p->q_len)).ok()) return s;
  return CheckRuns("kv_segments", p->kv_segments, p->batch, p->kv_len);
}

Status BindPositions(const AttentionParams& params, const Inputs& in, const Problem& p) {
  const char* reader = p.causal                          ? "causal"
                       : p.window_left || p.window_right ? "a window"
                       : params.alibi_slopes             ? "alibi_slopes"
                                                         : nullptr;
  if (reader == nullptr) return {};
  return CheckPositions(reader, in.q_offset.is_stated() ? in.q_offset : params.q_offset, p);
}

// ----------------------------------------------------------------------------------------------------- slopes and sinks

// Kernels take them times log2 e in f32, which has to be finite.
constexpr double kLargestPerHead = 0x1p127;

// minus_infinity: it is allowed, and with it what is so far below that f32 takes it for the same.
Status BindPerHead(const char* name, const TensorView& view, std::int64_t heads, bool minus_infinity, View4* out) {
  if (view.rank() != 1 || view.shape()[0] != heads) {
    return Status::Failure(kShapeMismatch, "%s: shape %s; give [heads] = [%" PRId64 "]", name, ShapeText(view.shape()).text,
                           heads);
  }
  *out = {view.data(), view.dtype(), {0, view.strides()[0], 0, 0}};
  for (std::int64_t h = 0; h < heads; ++h) {
    const double value = LoadDouble(view.data(), view.dtype(), h * view.strides()[0]);
    const bool allowed = std::isfinite(value) || (minus_infinity && value < 0);
    if (!allowed) {
      return Status::Failure(kInvalidArgument, "%s: %s[%" PRId64 "]=%g; give finite numbers%s", name, name, h, value,
                             minus_infinity ? ", or −inf for no sink" : "");
    }
    if (value > kLargestPerHead || (!minus_infinity && value < -kLargestPerHead)) {
      return Status::Failure(kInvalidArgument, "%s: %s[%" PRId64 "]=%g is more than f32 computes with; give 1.7e38 at most", name,
                             name, h, value);
    }
  }
  return {};
}

Status BindHeadTensors(const AttentionParams& params, const Inputs& in, Problem* p) {
  TensorView slopes, sinks;
  Status s;
  if (!(s = Choose("alibi_slopes", in.alibi_slopes, params.alibi_slopes, &slopes)).ok()) return s;
  if (!(s = Choose("sinks", in.sinks, params.sinks, &sinks)).ok()) return s;
  if (slopes && !(s = BindPerHead("alibi_slopes", slopes, p->heads, false, &p->alibi_slopes)).ok()) return s;
  if (sinks && !(s = BindPerHead("sinks", sinks, p->heads, true, &p->sinks)).ok()) return s;
  return {};
}

Status BindDropout(const AttentionParams& params, const Inputs& in, Problem* p) {
  if (params.dropout == 0) return {};
  p->dropout = Dropout(params.dropout, in.dropout_seed.value_or(params.dropout_seed), in.dropout_origin);
  return CheckDropoutOrigin(in.dropout_origin, {p->batch, p->heads, p->q_len, p->kv_len});
}

// -------------------------------------------------------------------------------------------------------------- outputs

// full: the four rank-4 dimensions; an output has the first two only when q has rank 4, and the last only when has_last.
Status BindOutput(const char* name, const MutableTensorView& view, int q_rank, const std::int64_t full[4], bool has_last,
                  MutableView4* out) {
  if (!view) return {};
  Dims expected;
  for (int axis = 4 - q_rank; axis < (has_last ? 4 : 3); ++axis) expected.push_back(full[axis]);
  if (!(view.shape() == expected)) {
    return Status::Failure(kShapeMismatch, "%s: shape %s; give %s", name, ShapeText(view.shape()).text, ShapeText(expected).text);
  }
  if (!IsFloat(view.dtype())) {
    return Status::Failure(kInvalidArgument, "%s: element type %s; give a float type", name, DTypeText(view.dtype()));
  }
  *out = {view.mutable_data(), view.dtype(), {}};
  for (int axis = 0; axis < expected.size(); ++axis) out->stride[axis + 4 - q_rank] = view.strides()[axis];
  return {};
}

Status BindOutputs(const Outputs& outputs, int q_rank, const Problem& p, Results* r) {
  const std::int64_t context[4] = {p.batch, p.heads, p.q_len, p.v_dim};
  const std::int64_t stage[4] = {p.batch, p.heads, p.q_len, p.kv_len};
  Status s;
  if (!(s = BindOutput("context", outputs.context, q_rank, context, true, &r->context)).ok()) return s;
  if (!(s = BindOutput("lse", outputs.lse, q_rank, context, false, &r->lse)).ok()) return s;
  if (!(s = BindOutput("scores", outputs.scores, q_rank, stage, true, &r->scores)).ok()) return s;
  if (!(s = BindOutput("capped", outputs.capped, q_rank, stage, true, &r->capped)).ok()) return s;
  if (!(s = BindOutput("masked_scores", outputs.masked_scores, q_rank, stage, true, &r->masked_scores)).ok()) return s;
  return BindOutput("weights", outputs.weights, q_rank, stage, true, &r->weights);
}

Status CheckWindow(const char* name, const std::optional<std::int64_t>& window) {
  if (!window || *window >= 0) return {};
  return Status::Failure(kInvalidArgument, "%s: %" PRId64 " is negative; give 0 or more, or leave it out for unlimited", name,
                         *window);
}

Status CheckFloatTensor(const char* name, const TensorView& view, const char* hint) {
  if (!view || IsFloat(view.dtype())) return {};
  return Status::Failure(kInvalidArgument, "%s: element type %s, expected a float type; %s", name, DTypeText(view.dtype()), hint);
}

// Tensors that no memory can hold, counted with at least one of everything, so that no product of these numbers overflows anywhere.
Status CheckElements(const PlanShape& s) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 59;  // 8 bytes each, and room for sums
  const auto at_least_one = [](std::int64_t n) { return std::max<std::int64_t>(n, 1); };
  const std::int64_t batch = at_least_one(s.batch), q_len = at_least_one(s.q_len), kv_len = at_least_one(s.kv_len);
  const std::pair<const char*, Dims> tensors[] = {{"q", {batch, s.heads, q_len, s.head_dim}},
                                                  {"k", {batch, s.kv_heads, kv_len, s.head_dim}},
                                                  {"v", {batch, s.kv_heads, kv_len, s.v_dim}},
                                                  {"context", {batch, s.heads, q_len, s.v_dim}}};
  for (const auto& [name, dims] : tensors) {
    if (SaturatingProduct(dims[0], dims[1], dims[2], dims[3]) <= kMaxElements) continue;
    return Status::Failure(kInvalidArgument, "shape: %s would be %s, more than any memory holds; give a smaller one", name,
                           ShapeText(dims).text);
  }
  return {};
}

}  // namespace

float ResolveScale(const PlanShape& shape, const AttentionParams& params) noexcept {
  return params.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim))));
}

Status CheckPlan(const PlanShape& shape, const AttentionParams& params, const ExecOptions& exec) noexcept {
  const std::pair<const char*, std::int64_t> lengths[] = {
      {"batch", shape.batch}, {"q_len", shape.q_len}, {"kv_len", shape.kv_len}};
  for (const auto& [name, value] : lengths) {
    if (value < 0) return Status::Failure(kInvalidArgument, "%s: %" PRId64 " is negative; give 0 or more", name, value);
  }
  const std::pair<const char*, std::int64_t> counts[] = {
      {"heads", shape.heads}, {"kv_heads", shape.kv_heads}, {"head_dim", shape.head_dim}, {"v_dim", shape.v_dim}};
  for (const auto& [name, value] : counts) {
    if (value < 1) return Status::Failure(kInvalidArgument, "%s: %" PRId64 " is not positive; give 1 or more", name, value);
  }
  if (shape.heads % shape.kv_heads != 0) {
    return Status::Failure(kShapeMismatch,
                           "k: kv_heads=%" PRId64 " does not divide heads=%" PRId64 "; give a divisor of heads, such as 1",
                           shape.kv_heads, shape.heads);
  }
  if (Status s = CheckElements(shape); !s.ok()) return s;
  const float scale = ResolveScale(shape, params);
  if (scale == 0 || !std::isfinite(scale)) {
    return Status::Failure(kInvalidArgument, "scale: %g; give a finite number other than 0, or leave it out for 1/sqrt(head_dim)",
                           static_cast<double>(scale));
  }
  if (!(params.soft_cap >= 0) || !std::isfinite(params.soft_cap)) {
    return Status::Failure(kInvalidArgument, "soft_cap: %g; give a positive number, or 0 for none",
                           static_cast<double>(params.soft_cap));
  }
  if (Status s = CheckDropout(params.dropout); !s.ok()) return s;
  if (exec.threads < 0)
    return Status::Failure(kInvalidArgument, "threads: %d is negative; give 1 or more, or 0 for all", exec.threads);
  if (exec.threads > kMaxThreads) {
    return Status::Failure(kInvalidArgument, "threads: %d is more than %d; give the number of cores, or 0 for all", exec.threads,
                           kMaxThreads);
  }
  if (params.mask && params.mask.dtype() != DType::kBool) {
    return Status::Failure(
        kInvalidArgument, "mask: element type %s, expected bool (true = may attend); %s", DTypeText(params.mask.dtype()),
        IsFloat(params.mask.dtype()) ? "pass an additive mask as bias" : "convert it, minding which value means attend");
  }
  Status s;
  if (!(s = CheckWindow("window_left", params.window_left)).ok()) return s;
  if (!(s = CheckWindow("window_right", params.window_right)).ok()) return s;
  if (!(s = CheckFloatTensor("bias", params.bias, "pass a bool tensor as mask")).ok()) return s;
  if (!(s = CheckFloatTensor("alibi_slopes", params.alibi_slopes, "convert it to f32")).ok()) return s;
  return CheckFloatTensor("sinks", params.sinks, "convert it to f32");
}

Status CheckPositions(const char* reader, const QOffset& q_offset, const Problem& p) noexcept {
  if (q_offset.is_stated() || p.q_offset_from_kv_lens || p.is_cached()) return {};
  if (p.q_len != p.kv_len) {
    return Status::Failure(kInvalidArgument,
                           "q_offset: not stated, and %s needs it since q_len=%" PRId64 " ≠ kv_len=%" PRId64
                           "; give 0 (top-left: PyTorch, ONNX) or %" PRId64 " (bottom-right: FlashAttention, FlashInfer, MLX)",
                           reader, p.q_len, p.kv_len, p.kv_len - p.q_len);
  }
  Sequence s;
  if (p.q_segments.data == nullptr || !FindUnequal(p, &s)) return {};
  return Status::Failure(kInvalidArgument,
                         "q_offset: not stated, and %s needs it since segment %" PRId64 " of sequence %" PRId64 " has %" PRId64
                         " queries and %" PRId64 " keys; give 0 (top-left), or how many keys precede a segment's first query",
                         reader, LoadInt(p.q_segments, p.q_segments.Offset(s.batch, 0, 0, s.first_query)), s.batch, s.q_len,
                         s.kv_len);
}

Status Bind(const PlanShape& capacity, const AttentionParams& params, float scale, const Inputs& inputs, const Outputs& outputs,
            Problem* p, Results* results) noexcept {
  *p = Problem{};
  *results = Results{};
  p->scale = scale;
  p->soft_cap = params.soft_cap;
  p->causal = params.causal;
  if (params.window_left) p->window_left = std::min(*params.window_left, kMaxOffset);
  if (params.window_right) p->window_right = std::min(*params.window_right, kMaxOffset);
  Status s;
  if (!(s = BindQkv(capacity, inputs, p)).ok()) return s;
  if (!(s = BindMaskAndBias(params, inputs, p)).ok()) return s;
  if (!(s = BindLengths(params, inputs, p)).ok()) return s;
  if (!(s = BindSegments(params, inputs, p)).ok()) return s;
  if (!(s = BindPositions(params, inputs, *p)).ok()) return s;
  if (!(s = BindHeadTensors(params, inputs, p)).ok()) return s;
  if (!(s = BindDropout(params, inputs, p)).ok()) return s;
  if (!(s = BindOutputs(outputs, inputs.q.rank(), *p, results)).ok()) return s;
  return CheckOverlap(params, inputs, outputs);
}

}  // namespace regard::internal
