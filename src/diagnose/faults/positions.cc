// Faults of positions: rotary embedding F25–F29 and F111, ALiBi F30.
//
// q and k arrive rotated. With the tensors before the rotation its convention is found and then bent; without them it is assumed
// (both pairings, usual bases) and undone first: a rotation by the wrong rule of a rotation undone by the right one.
#include <algorithm>
#include <cmath>

#include "diagnose/fault.h"

namespace regard::internal {
namespace {

enum class Pairing { kHalves, kNeighbours };  // dimensions (i, i + d/2), or (2i, 2i + 1)

struct Rotation {
  Pairing pairing = Pairing::kHalves;
  double base = 10000;
};

const char* NameOf(Pairing pairing) { return pairing == Pairing::kHalves ? "halves (i, i+d/2)" : "neighbours (2i, 2i+1)"; }

// Rotates one row in place, pair i by position·frequencies[i].
void Rotate(double* row, double position, const std::vector<double>& frequencies, bool halves) {
  const std::int64_t dim = 2 * static_cast<std::int64_t>(frequencies.size());
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const double angle = position * frequencies[static_cast<std::size_t>(i)];
    double& a = row[halves ? i : 2 * i];
    double& b = row[halves ? i + dim / 2 : 2 * i + 1];
    const double x = a, y = b;
    a = x * std::cos(angle) - y * std::sin(angle);
    b = x * std::sin(angle) + y * std::cos(angle);
  }
}

// Positions of the tokens of q or k: as given, or as the contract counts them.
class Positions {
 public:
  explicit Positions(const Case& c) : case_(c), given_(c.given().positions) {}

  double OfQuery(std::int64_t b, std::int64_t i) const {
    if (Holds(case_.problem().q_len)) return Read(b, i);
    if (Holds(case_.problem().kv_len)) return Read(b, i + case_.evaluator().QOffset(b));
    return static_cast<double>(case_.evaluator().QueryPlace(b, i).position + case_.evaluator().QOffset(b));
  }
  double OfKey(std::int64_t b, std::int64_t j) const {
    if (Holds(case_.problem().kv_len)) return Read(b, j);
    return static_cast<double>(case_.evaluator().KeyPlace(b, j).position);
  }

 private:
  bool Holds(std::int64_t len) const { return static_cast<bool>(given_) && given_.rank() >= 1 && given_.dim(-1) == len; }
  double Read(std::int64_t b, std::int64_t t) const {
    t = std::clamp<std::int64_t>(t, 0, given_.dim(-1) - 1);
    return given_.rank() == 1 ? given_(t) : given_(given_.dim(0) == 1 ? 0 : b, t);
  }

  const Case& case_;
  TensorView given_;
};

using PositionOf = std::function<double(std::int64_t b, std::int64_t head, std::int64_t t)>;
using Values = std::shared_ptr<const std::vector<double>>;

// A copy of rows [batch, heads, len, dim], each rotated.
Values Rotated(const std::vector<double>& rows, std::int64_t heads, std::int64_t len, std::int64_t dim,
               const PositionOf& position, const Rotation& rotation, double sign) {
  auto rotated = std::make_shared<std::vector<double>>(rows);
  std::vector<double> frequencies;  // base^(−2i/dim)
  for (std::int64_t i = 0; i < dim / 2; ++i) frequencies.push_back(std::pow(rotation.base, -2 * Number(i) / Number(dim)));
  for (std::int64_t r = 0; r < static_cast<std::int64_t>(rows.size()) / dim; ++r) {
    Rotate(rotated->data() + r * dim, sign * position(r / (heads * len), r / len % heads, r % len), frequencies,
           rotation.pairing == Pairing::kHalves);
  }
  return rotated;
}

// What q and k were before their rotation.
struct Unrotated {
  Rotation rotation;
  Values q, k;
};

bool SameRows(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t n = 0; n < a.size(); ++n) difference += (a[n] - b[n]) * (a[n] - b[n]), size += b[n] * b[n];
  return difference <= 1e-4 * size;  // 1 % in the root mean square: bf16 is five times finer
}

Values ReadRows(TensorView view, std::int64_t count) {
  while (view.rank() < 4) view = view.Unsqueeze(0);
  auto rows = std::make_shared<std::vector<double>>();
  if (view.num_elements() != count) return nullptr;
  const Tensor contiguous = Tensor::CopyOf(view);
  for (std::int64_t n = 0; n < count; ++n) rows->push_back(LoadDouble(contiguous.view().data(), view.dtype(), n));
  return rows;
}

std::vector<Rotation> UsualRotations() {
  std::vector<Rotation> all;
  for (const double base : {10000.0, 500000.0, 1000000.0, 100000.0}) {
    for (const Pairing pairing : {Pairing::kHalves, Pairing::kNeighbours}) all.push_back({pairing, base});
  }
  return all;
}

// With q_pre_rope: the rotation that it shows. Without: only when a problem says nothing of it, the most usual ones.
std::vector<Unrotated> FindRotations(const Case& c) {
  const Operands& o = c.evaluator().operands();
  std::vector<Unrotated> found;
  if (o.head_dim % 2 != 0) return found;
  const Positions positions(c);
  const PositionOf query = [&](std::int64_t b, std::int64_t, std::int64_t i) { return positions.OfQuery(b, i); };
  const PositionOf key = [&](std::int64_t b, std::int64_t, std::int64_t j) { return positions.OfKey(b, j); };
  const DiagnosisProblem& given = c.given();
  if (!given.q_pre_rope && !given.k_pre_rope) {
    // Undone blindly: only while copies are cheap.
    if (o.q->size() + o.k->size() > 4000000) return found;
    for (const Pairing pairing : {Pairing::kHalves, Pairing::kNeighbours}) {
      const Rotation rotation{pairing, 10000};
      found.push_back({rotation, Rotated(*o.q, o.heads, o.q_len, o.head_dim, query, rotation, -1),
                       Rotated(*o.k, o.kv_heads, o.kv_len, o.head_dim, key, rotation, -1)});
    }
    return found;
  }
  const Values q = given.q_pre_rope ? ReadRows(given.q_pre_rope, static_cast<std::int64_t>(o.q->size())) : nullptr;
  const Values k = given.k_pre_rope ? ReadRows(given.k_pre_rope, static_cast<std::int64_t>(o.k->size())) : nullptr;
  for (const Rotation& rotation : UsualRotations()) {
    const bool q_agrees = q == nullptr || SameRows(*Rotated(*q, o.heads, o.q_len, o.head_dim, query, rotation, 1), *o.q);
    const bool k_agrees = k == nullptr || SameRows(*Rotated(*k, o.kv_heads, o.kv_len, o.head_dim, key, rotation, 1), *o.k);
    if (!q_agrees || !k_agrees) continue;
    found.push_back({rotation, q != nullptr ? q : Rotated(*o.q, o.heads, o.q_len, o.head_dim, query, rotation, -1),
                     k != nullptr ? k : Rotated(*o.k, o.kv_heads, o.kv_len, o.head_dim, key, rotation, -1)});
    break;
  }
  return found;
}

// Rotates both again: q by one position rule, k by another.
std::function<void(Variant&)> RotateAgain(const Case& c, const Unrotated& from, const Rotation& rotation, const PositionOf& query,
                                          const PositionOf& key) {
  return [&c, from, rotation, query, key](Variant& v) {
    const Operands& o = c.evaluator().operands();
    v.operands = ReplaceOperands(c, Rotated(*from.q, o.heads, o.q_len, o.head_dim, query, rotation, 1),
                                 Rotated(*from.k, o.kv_heads, o.kv_len, o.head_dim, key, rotation, 1), {});
  };
}

PositionOf RightQuery(const Case& c) {
  return [positions = Positions(c)](std::int64_t b, std::int64_t, std::int64_t i) { return positions.OfQuery(b, i); };
}
PositionOf RightKey(const Case& c) {
  return [positions = Positions(c)](std::int64_t b, std::int64_t, std::int64_t j) { return positions.OfKey(b, j); };
}

int Complexity(const Case& c) { return c.given().q_pre_rope || c.given().k_pre_rope ? 0 : 1; }

void WrongPairing(const Case& c, Proposals& p) {
  for (const Unrotated& u : FindRotations(c)) {
    const Rotation other{u.rotation.pairing == Pairing::kHalves ? Pairing::kNeighbours : Pairing::kHalves, u.rotation.base};
    p.Add(RotateAgain(c, u, other, RightQuery(c), RightKey(c)),
          {{"pairs", 0, NameOf(other.pairing)}, {"should_be", 0, NameOf(u.rotation.pairing)}}, Complexity(c));
    for (const double base : {10000.0, 500000.0, 1000000.0}) {
      if (base == u.rotation.base) continue;
      p.Add(RotateAgain(c, u, {u.rotation.pairing, base}, RightQuery(c), RightKey(c)), {{"base", base}}, 1);
    }
  }
}

// Rotated pairs written as all first ones, then all second ones, in only one of q and k.
void WrongOutputOrder(const Case& c, Proposals& p) {
  const Operands& o = c.evaluator().operands();
  if (o.head_dim % 2 != 0 || o.head_dim == 2) return;
  for (const bool of_q : {true, false}) {
    p.Add(
        [&c, of_q](Variant& v) {
          const Operands& original = c.evaluator().operands();
          const std::vector<double>& from = of_q ? *original.q : *original.k;
          auto to = std::make_shared<std::vector<double>>(from.size());
          const std::size_t dim = static_cast<std::size_t>(original.head_dim);
          for (std::size_t n = 0; n < from.size(); ++n) {
            const std::size_t d = n % dim;
            (*to)[n] = from[n - d + (d < dim / 2 ? 2 * d : 2 * (d - dim / 2) + 1)];
          }
          v.operands = of_q ? ReplaceOperands(c, to, {}, {}) : ReplaceOperands(c, {}, to, {});
        },
        {{"tensor", 0, of_q ? "q" : "k"}}, 1);
  }
}

void WrongOffset(const Case& c, Proposals& p) {
  for (const Unrotated& u : FindRotations(c)) {
    const PositionOf query = RightQuery(c), key = RightKey(c);
    for (const double shift : {1.0, -1.0, 2.0, -2.0}) {
      p.Add(RotateAgain(
                c, u, u.rotation,
                [query, shift](std::int64_t b, std::int64_t h, std::int64_t i) { return query(b, h, i) + shift; }, key),
            {{"query_positions", shift, ""}}, Complexity(c));
    }
    p.Add(RotateAgain(
              c, u, u.rotation, [](std::int64_t, std::int64_t, std::int64_t i) { return static_cast<double>(i); }, key),
          {{"query_positions", 0, "start at 0"}}, Complexity(c));
    p.Add(RotateAgain(
              c, u, u.rotation, [](std::int64_t, std::int64_t, std::int64_t) { return 0.0; }, key),
          {{"query_positions", 0, "all 0"}}, Complexity(c));
  }
}

void RowPositionsIgnored(const Case& c, Proposals& p) {
  if (!c.given().positions) return;
  for (const Unrotated& u : FindRotations(c)) {
    const std::int64_t shift = c.problem().kv_len - c.problem().q_len;
    const PositionOf slot_of_query = [shift](std::int64_t, std::int64_t, std::int64_t i) {
      return static_cast<double>(i + shift);
    };
    const PositionOf slot = [](std::int64_t, std::int64_t, std::int64_t t) { return static_cast<double>(t); };
    p.Add(RotateAgain(c, u, u.rotation, slot_of_query, slot), {{"positions", 0, "slots"}});
    if (c.problem().batch == 1) continue;
    const PositionOf query = RightQuery(c), key = RightKey(c);
    p.Add(RotateAgain(
              c, u, u.rotation, [query](std::int64_t, std::int64_t h, std::int64_t i) { return query(0, h, i); },
              [key](std::int64_t, std::int64_t h, std::int64_t j) { return key(0, h, j); }),
          {{"positions", 0, "of the first sequence"}});
  }
}

void NotRotatedOrTwice(const Case& c, Proposals& p) {
  const std::vector<Unrotated> found = FindRotations(c);
  if (found.empty()) return;  // no rotation fits these tensors, or they are too large
  const Unrotated unrotated = found[0];
  const Rotation& first = unrotated.rotation;
  const PositionOf query = RightQuery(c), key = RightKey(c);
  for (const Rotation& rotation : UsualRotations()) {
    if (Complexity(c) == 0 && (rotation.pairing != first.pairing || rotation.base != first.base)) continue;
    for (const double sign : {-1.0, 1.0}) {
      const auto turned = [&c, rotation, sign](const Values& rows, bool is_q, const PositionOf& position) {
        const Operands& o = c.evaluator().operands();
        return Rotated(*rows, is_q ? o.heads : o.kv_heads, is_q ? o.q_len : o.kv_len, o.head_dim, position, rotation, sign);
      };
      for (const auto& [of, of_q, of_k] : kQueriesOrKeys) {
        p.Add(
            [=, &c](Variant& v) {
              // Turning back what was stored rounded would round once more than the tensors that were given.
              const Operands& o = c.evaluator().operands();
              const bool back = sign < 0;
              const Values q = !of_q ? nullptr : back && c.given().q_pre_rope ? unrotated.q : turned(o.q, true, query);
              const Values k = !of_k ? nullptr : back && c.given().k_pre_rope ? unrotated.k : turned(o.k, false, key);
              v.operands = ReplaceOperands(c, q, k, {});
            },
            {{"of", 0, of},
             {"rotated", 0, sign < 0 ? "not at all" : "once more"},
             {"pairs", 0, NameOf(rotation.pairing)},
             {"base", rotation.base}},
            of_q && of_k ? Complexity(c) : 2);
      }
    }
  }
}

void HeadAsPosition(const Case& c, Proposals& p) {
  for (const Unrotated& u : FindRotations(c)) {
    const PositionOf head = [](std::int64_t, std::int64_t h, std::int64_t) { return static_cast<double>(h); };
    p.Add(RotateAgain(c, u, u.rotation, head, head), {}, Complexity(c));
  }
}

// Slopes of the ALiBi paper for any number of heads: geometric for the power of two below, every second one of the next for the rest.
double UsualSlope(std::int64_t head, std::int64_t heads) {
  std::int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  if (head < power) return std::pow(2.0, -8.0 * static_cast<double>(head + 1) / static_cast<double>(power));
  return std::pow(2.0, -8.0 * static_cast<double>(2 * (head - power) + 1) / static_cast<double>(2 * power));
}

std::function<void(Variant&)> UseSlopes(std::function<double(const RowState&)> slope) {
  return [slope = std::move(slope)](Variant& v) {
    v.bias = [slope](RowState& s) {
      const Evaluator& e = *s.evaluator;
      const Problem& p = e.problem();
      const double m = slope(s);
      for (std::size_t j = 0; j < s.masked.size(); ++j) {
        const std::int64_t key = static_cast<std::int64_t>(j);
        if (p.bias.data != nullptr) {
          const double added = e.Bias(s.id, s.id.i, key);
          if (std::isfinite(added)) s.masked[j] += added;
        }
        const std::int64_t distance =
            e.QueryPlace(s.id.b, s.id.i).position + e.QOffset(s.id.b) - e.KeyPlace(s.id.b, key).position;
        s.masked[j] -= m * std::fabs(static_cast<double>(distance));
      }
    };
  };
}

void WrongSlopes(const Case& c, Proposals& p) {
  if (c.problem().alibi_slopes.data == nullptr) return;
  const std::int64_t heads = c.problem().heads;
  const double h = static_cast<double>(heads);
  p.Add(UseSlopes([h](const RowState& s) { return std::pow(2.0, -8.0 * static_cast<double>(s.id.h) / h); }),
        {{"slopes", 0, "2^(−8h/heads): exponent one too small"}});
  p.Add(UseSlopes([h](const RowState& s) { return s.evaluator->Slope(s.id.h) * std::pow(2.0, 8.0 / h); }),
        {{"slopes", 0, "those of the next head: exponent one too small"}});
  p.Add(UseSlopes([h](const RowState& s) { return s.evaluator->Slope(s.id.h) * std::pow(2.0, -8.0 / h); }),
        {{"slopes", 0, "exponent one too large"}});
  p.Add(UseSlopes([h](const RowState& s) { return std::pow(2.0, -8.0 * static_cast<double>(s.id.h + 1) / h); }),
        {{"slopes", 0, "geometric over all heads"}});
  p.Add(UseSlopes([heads](const RowState& s) { return UsualSlope(s.id.h, heads); }),
        {{"slopes", 0, "those for the power of two, then every second"}});
  p.Add(UseSlopes([](const RowState&) { return 0.0; }), {{"slopes", 0, "0: not applied"}});
  p.Add(UseSlopes([](const RowState& s) { return -s.evaluator->Slope(s.id.h); }), {{"slopes", 0, "of the wrong sign"}});
  p.Add(UseSlopes([](const RowState& s) { return s.evaluator->Slope(0); }), {{"slopes", 0, "that of head 0 for all"}});
  p.Add([](Variant& v) { UseSlopes([](const RowState& s) { return s.evaluator->Slope(s.id.h) * s.variant->scale; })(v); },
        {{"slopes", 0, "times the scale"}});
  p.AddFamily([](Variant& v,
                 double factor) { UseSlopes([factor](const RowState& s) { return factor * s.evaluator->Slope(s.id.h); })(v); },
              LogSpaced(1.0 / 64, 64, 13),
              [](double factor) -> std::vector<ExplanationParam> {
                if (std::fabs(factor - 1) < 1e-4) return {};
                return {{"factor", factor}};
              });
}

constexpr Fault kFaults[] = {
    {"F25", "rotary pairs", Stage::kInputs, slot::kOperands, "pairs (i, i+d/2) against (2i, 2i+1), or another base",
     "scores right where positions agree, wrong elsewhere; matches after permuting dimensions",
     "use the pairing and base that the checkpoint's q and k were stored for", WrongPairing},
    {"F26", "rotary output order", Stage::kInputs, slot::kOperands, "rotated first halves of all pairs, then second halves",
     "at position 0 the rotated tensor is not its input", "write each rotated pair back where it came from", WrongOutputOrder},
    {"F27", "rotary offset", Stage::kInputs, slot::kOperands, "positions off by one, or counted from 0 in decode",
     "prefill exact, decode off",
     "the position of a query is the number of tokens before it: its index plus the length of the cache", WrongOffset},
    {"F28", "rotary ignores positions of rows", Stage::kInputs, slot::kOperands, "one vector of positions for a padded batch",
     "the longest sequence is right, padded ones are wrong", "pass positions per sequence", RowPositionsIgnored},
    {"F29", "rotary along heads", Stage::kInputs, slot::kOperands, "rotation index = head",
     "with one token, heads differ in rotation", "rotate by the token's position: check the axis order before the rotation",
     HeadAsPosition},
    {"F111", "rotary left out or applied once more", Stage::kInputs, slot::kOperands, "q and k not rotated, or rotated again",
     "scores of tokens at one position are right", "rotate q and k once; dump them as the kernel gets them, after the rotation",
     NotRotatedOrTwice},
    {"F30", "ALiBi slopes", Stage::kMaskedScores, slot::kBias, "other slopes",
     "head 0 has slope 1 instead of ½, or heads beyond a power of two are off",
     "2^(−8(h+1)/H) for H a power of two; else those of the power below, then every second of the next", WrongSlopes},
};

}  // namespace

std::span<const Fault> PositionFaults() { return kFaults; }

}  // namespace regard::internal
