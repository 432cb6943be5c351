#include "tests/support/random_problem.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/placement.h"

namespace regard::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Cells times head_dim of one problem: the reference takes some 0.2 ms for as many.
constexpr std::int64_t kMaxProducts = 20000;

class Maker {
 public:
  Maker(const Random& random, const ProblemOptions& options) : random_(random), options_(options) {}

  TestProblem Make(const std::string& origin) {
    DrawShape();
    DrawOperands();
    DrawPositions();
    if (options_.hiding && random_.Chance(0.3)) p_.params.mask = DrawMask();
    if (options_.bias && random_.Chance(0.3)) p_.params.bias = DrawBias();
    DrawHeadTensors();
    // Starting a team takes longer than most of these problems.
    p_.threads = random_.Chance(0.1) ? static_cast<int>(random_.Int(2, 3)) : 1;
    if (options_.dropout && random_.Chance(0.3)) DrawDropout();
    Describe(origin);
    return std::move(p_);
  }

 private:
  using Value = std::function<double(const Dims& index)>;

  TensorView Put(const Dims& shape, DType dtype, const Value& value) {
    Placed placed = options_.any_layout && random_.Chance(0.6) ? PlaceRandomly(random_, shape, dtype, random_.Chance(0.5))
                                                               : PlaceDense(shape, dtype);
    ForEachIndex(shape, [&](const Dims& index) { Set(placed.view, index, value(index)); });
    p_.memory.push_back(std::move(placed.memory));
    return placed.view;
  }

  DType FloatType() {
    return options_.any_type && random_.Chance(0.5) ? random_.OneOf({DType::kF64, DType::kF16, DType::kBF16}) : DType::kF32;
  }
  DType IndexType() { return random_.OneOf({DType::kI32, DType::kI64}); }

  std::int64_t DrawLength() {
    if (options_.empty_shapes && random_.Chance(0.03)) return 0;
    if (random_.Chance(0.1)) return 1;
    return random_.Int(1, options_.max_tokens);
  }

  void DrawShape() {
    const std::int64_t group_size = random_.OneOf<std::int64_t>({1, 1, 2, 3, 5});
    p_.batch = options_.empty_shapes && random_.Chance(0.02) ? 0 : random_.Int(1, 3);
    p_.kv_heads = random_.Int(1, 3);
    p_.heads = p_.kv_heads * group_size;
    p_.q_len = DrawLength();
    p_.kv_len = random_.Chance(0.25) ? p_.q_len : DrawLength();
    p_.head_dim = random_.OneOf<std::int64_t>({1, 2, 3, 5, 8, 16, 17, 31, 64});
    p_.v_dim = random_.OneOf<std::int64_t>({1, 2, 3, 7, 8, 16, 17, 33, 64});
    while (p_.batch * p_.heads * p_.q_len * p_.kv_len * std::max(p_.head_dim, p_.v_dim) > kMaxProducts) {
      if (p_.heads > p_.kv_heads || p_.kv_heads > 1) {
        p_.kv_heads = std::max<std::int64_t>(1, p_.kv_heads - 1);
        p_.heads = p_.kv_heads * (p_.heads > 2 ? 2 : 1);
      } else {
        p_.q_len = (p_.q_len + 1) / 2;
      }
      p_.head_dim = std::min<std::int64_t>(p_.head_dim, 17);
      p_.v_dim = std::min<std::int64_t>(p_.v_dim, 17);
    }
    if (options_.empty_shapes || p_.batch > 0) return;
    p_.batch = 1;
  }

  void DrawOperands() {
    p_.family = static_cast<Family>(random_.Int(0, static_cast<int>(Family::kDenormal)));
    const DType q_type = FloatType(), k_type = FloatType(), v_type = FloatType();
    // |score| ≈ width when q and k have components of this size and the scale is about 1/√head_dim.
    const double width = p_.family == Family::kWide ? 300 : random_.OneOf({0.1, 1.0, 5.0});
    const double size = std::sqrt(width);
    if (random_.Chance(0.4))
      p_.params.scale = static_cast<float>(random_.OneOf({1.0, 0.3, -0.7}) / std::sqrt(static_cast<double>(p_.head_dim)));
    std::vector<double> direction;  // of the families that set scores along one axis of the space
    for (std::int64_t d = 0; d < p_.head_dim; ++d) direction.push_back(random_.OneOf({-1.0, 1.0}));
    const std::int64_t hot = random_.Int(0, std::max<std::int64_t>(p_.kv_len, 1) - 1);
    const double tiny = q_type == DType::kF16 || k_type == DType::kF16 ? 1e-7 : 1e-39;

    const auto along = [&](const Dims& index) { return direction[static_cast<std::size_t>(index[3])]; };
    const Value query = [&](const Dims& index) {
      switch (p_.family) {
        case Family::kDenormal:
          return tiny * random_.Normal();
        case Family::kRising:
        case Family::kFalling:
        case Family::kOneHot:
          return along(index) * 2 * (1 + 0.2 * random_.Normal());
        default:
          return size * random_.Normal();
      }
    };
    std::vector<double> shared_key;  // of the family whose keys are all the same
    for (std::int64_t d = 0; d < p_.head_dim; ++d) shared_key.push_back(size * random_.Normal());
    const Value key = [&](const Dims& index) {
      const double place = static_cast<double>(index[2] + 1) / static_cast<double>(p_.kv_len);
      switch (p_.family) {
        case Family::kDenormal:
          return tiny * random_.Normal();
        case Family::kEqual:
          return shared_key[static_cast<std::size_t>(index[3])];
        case Family::kRising:
          return along(index) * 8 * place + 0.05 * random_.Normal();
        case Family::kFalling:
          return along(index) * 8 * (1 - place) + 0.05 * random_.Normal();
        case Family::kOneHot:
          return along(index) * (index[2] == hot ? 12 : -1) + 0.1 * random_.Normal();
        default:
          return size * random_.Normal();
      }
    };
    const double v_size =
        p_.family == Family::kDenormal ? (v_type == DType::kF16 ? 1e-6 : 1e-39) : random_.OneOf({0.1, 1.0, 100.0});
    const Value value = [&](const Dims& index) { return v_size * (random_.Normal() + static_cast<double>(index[3] % 3) - 0.7); };
    p_.q = Put({p_.batch, p_.heads, p_.q_len, p_.head_dim}, q_type, query);
    p_.k = Put({p_.batch, p_.kv_heads, p_.kv_len, p_.head_dim}, k_type, key);
    p_.v = Put({p_.batch, p_.kv_heads, p_.kv_len, p_.v_dim}, v_type, value);
    if (p_.batch != 1 || p_.heads != 1 || random_.Chance(0.5)) return;
    for (TensorView* view : {&p_.q, &p_.k, &p_.v}) *view = view->Select(0, 0).Select(0, 0);
  }

  void DrawPositions() {
    AttentionParams& params = p_.params;
    if (options_.hiding) {
      params.causal = random_.Chance(0.4);
      if (random_.Chance(0.2)) params.window_left = random_.Int(0, p_.kv_len);
      if (random_.Chance(0.2)) params.window_right = random_.Int(0, p_.kv_len);
      if (random_.Chance(0.25)) {
        params.kv_lens = Put({p_.batch}, IndexType(), [&](const Dims&) {
          return static_cast<double>(random_.Chance(0.2) ? random_.OneOf<std::int64_t>({0, p_.kv_len})
                                                         : random_.Int(0, p_.kv_len));
        });
      }
      if (random_.Chance(0.2)) DrawSegments();
    }
    if (MayLeaveOffsetOut() && random_.Chance(0.5)) return;
    const auto offset = [&] {
      return random_.OneOf<std::int64_t>({0, p_.kv_len - p_.q_len, random_.Int(-p_.q_len, p_.kv_len), random_.Int(-3, 3)});
    };
    if (random_.Chance(0.5)) {
      params.q_offset = offset();
    } else {
      params.q_offset = Put({p_.batch}, IndexType(), [&](const Dims&) { return static_cast<double>(offset()); });
    }
  }

  // Segments drawn here are hardly ever as long in queries as in keys.
  bool MayLeaveOffsetOut() const { return p_.params.kv_lens || (p_.q_len == p_.kv_len && !p_.params.q_segments); }

  // Runs of random lengths; queries and keys share most numbers, in different orders.
  std::vector<std::int64_t> DrawRuns(std::int64_t length) {
    std::vector<std::int64_t> numbers = {0, 1, 2, 3, 4};
    if (random_.Chance(0.5)) {
      for (std::size_t n = numbers.size() - 1; n > 0; --n)
        std::swap(numbers[n], numbers[static_cast<std::size_t>(random_.Int(0, static_cast<int>(n)))]);
    }
    std::vector<std::int64_t> runs;
    for (std::int64_t number : numbers) {
      const bool padding = random_.Chance(0.2);
      const std::int64_t run = random_.Int(0, std::max<std::int64_t>(1, length / 2));
      for (std::int64_t n = 0; n < run; ++n) runs.push_back(padding ? -1 : number);
    }
    runs.resize(static_cast<std::size_t>(length), random_.OneOf<std::int64_t>({-1, 7}));
    return runs;
  }

  void DrawSegments() {
    const bool shared = random_.Chance(0.3);
    const std::int64_t rows = shared ? 1 : p_.batch;
    const auto draw = [&](std::int64_t length) {
      std::vector<std::int64_t> runs;
      const Dims shape = shared && random_.Chance(0.5) ? Dims{length} : Dims{rows, length};
      return Put(shape, IndexType(), [&](const Dims& index) {
        if (index[shape.size() - 1] == 0) runs = DrawRuns(length);
        return static_cast<double>(runs[static_cast<std::size_t>(index[shape.size() - 1])]);
      });
    };
    p_.params.q_segments = draw(p_.q_len);
    p_.params.kv_segments = draw(p_.kv_len);
  }

  // A shape that broadcasts to [batch, heads, q_len, kv_len]: any rank, any axis 1.
  Dims BroadcastShape() {
    const std::int64_t full[4] = {p_.batch, p_.heads, p_.q_len, p_.kv_len};
    const std::int64_t rank = random_.Chance(0.5) ? 4 : random_.Int(0, 4);
    Dims shape;
    for (std::int64_t axis = 4 - rank; axis < 4; ++axis) shape.push_back(random_.Chance(0.3) ? 1 : full[axis]);
    return shape;
  }

  TensorView DrawMask() {
    const double density = random_.OneOf({0.1, 0.5, 0.9});
    return Put(BroadcastShape(), DType::kBool, [&](const Dims&) { return random_.Chance(density) ? 1.0 : 0.0; });
  }

  // Hidden by −inf, or only by name: −1e4 and −1e9 are what models that avoid −inf add; such keys stay visible.
  TensorView DrawBias() {
    const double hidden = options_.hiding ? random_.OneOf({0.0, 0.2, 0.8}) : 0;
    const double fill = random_.OneOf({-kInfinity, -kInfinity, -1e4, -1e9});
    const std::int64_t left_padding = options_.hiding && random_.Chance(0.3) ? random_.Int(0, p_.kv_len) : 0;
    return Put(BroadcastShape(), FloatType(), [&](const Dims& index) {
      const bool padding = index.size() > 0 && index[index.size() - 1] < left_padding;
      return padding || random_.Chance(hidden) ? fill : 3 * random_.Normal();
    });
  }

  void DrawHeadTensors() {
    AttentionParams& params = p_.params;
    // ALiBi counts positions, which must be stated like those of a mask.
    const bool positions_known = params.q_offset.is_stated() || MayLeaveOffsetOut();
    if (options_.bias && positions_known && random_.Chance(0.2)) {
      params.alibi_slopes = Put({p_.heads}, FloatType(), [&](const Dims&) { return random_.Uniform(-0.1, 0.6); });
    }
    if (options_.sinks && random_.Chance(0.25)) {
      params.sinks =
          Put({p_.heads}, FloatType(), [&](const Dims&) { return random_.Chance(0.2) ? -kInfinity : 4 * random_.Normal(); });
    }
    if (options_.soft_cap && random_.Chance(0.25)) params.soft_cap = static_cast<float>(random_.OneOf({0.5, 5.0, 30.0, 200.0}));
  }

  void DrawDropout() {
    p_.params.dropout = static_cast<float>(random_.OneOf({0.1, 0.3, 0.5, 0.9}));
    p_.params.dropout_seed = random_.Next();
    if (random_.Chance(0.5)) return;
    p_.dropout_origin = {random_.Int(0, 3), random_.Int(0, 40), random_.Int(0, 5000), 8 * random_.Int(0, 40)};
  }

  void Describe(const std::string& origin) {
    std::string& text = p_.description;
    text = origin + ": batch " + std::to_string(p_.batch) + ", heads " + std::to_string(p_.heads) + "/" +
           std::to_string(p_.kv_heads) + ", q " + std::to_string(p_.q_len) + "×" + std::to_string(p_.head_dim) + " " +
           std::string(regard::Name(p_.q.dtype())) + ", k " + std::to_string(p_.kv_len) + " " +
           std::string(regard::Name(p_.k.dtype())) + ", v ×" + std::to_string(p_.v_dim) + " " +
           std::string(regard::Name(p_.v.dtype())) + ", " + Name(p_.family) + " scores";
    const AttentionParams& params = p_.params;
    const std::pair<bool, const char*> parts[] = {{params.scale.has_value(), "scale"},
                                                  {params.causal, "causal"},
                                                  {params.window_left.has_value(), "window_left"},
                                                  {params.window_right.has_value(), "window_right"},
                                                  {params.q_offset.is_stated(), "q_offset"},
                                                  {params.soft_cap > 0, "soft_cap"},
                                                  {static_cast<bool>(params.mask), "mask"},
                                                  {static_cast<bool>(params.bias), "bias"},
                                                  {static_cast<bool>(params.kv_lens), "kv_lens"},
                                                  {static_cast<bool>(params.q_segments), "segments"},
                                                  {static_cast<bool>(params.alibi_slopes), "alibi"},
                                                  {static_cast<bool>(params.sinks), "sinks"},
                                                  {params.dropout > 0, "dropout"}};
    for (const auto& [used, name] : parts) {
      if (used) text += std::string(", ") + name;
    }
  }

  Random random_;
  ProblemOptions options_;
  TestProblem p_;
};

}  // namespace

const char* Name(Family family) {
  switch (family) {
    case Family::kNormal:
      return "normal";
    case Family::kWide:
      return "wide";
    case Family::kEqual:
      return "equal";
    case Family::kRising:
      return "rising";
    case Family::kFalling:
      return "falling";
    case Family::kOneHot:
      return "one-hot";
    case Family::kDenormal:
      return "denormal";
  }
  return "unknown";
}

TestProblem MakeProblem(std::uint64_t seed, const ProblemOptions& options) {
  TestProblem problem = Maker(Random(seed * 0x2545F4914F6CDD1Du + 1), options).Make("REGARD_TEST_SEED=" + std::to_string(seed));
  problem.seed = seed;
  return problem;
}

TestProblem MakeProblem(std::span<const std::uint8_t> bytes, const ProblemOptions& options) {
  return Maker(Random(bytes), options).Make("problem of " + std::to_string(bytes.size()) + " bytes");
}

std::vector<std::uint64_t> Seeds(std::uint64_t count) {
  std::uint64_t first = 1, last = count;
  if (const char* only = std::getenv("REGARD_TEST_SEED")) {
    char* end;
    first = last = std::strtoull(only, &end, 10);
    if (*end == '-') last = std::strtoull(end + 1, &end, 10);
    if (*end != '\0' || last < first)
      throw std::invalid_argument(std::string("REGARD_TEST_SEED: ") + only + "; give one, or first-last");
  }
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t seed = first; seed <= last; ++seed) seeds.push_back(seed);
  return seeds;
}

}  // namespace regard::test
