#include "tests/cache/cache_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/stored_row.h"
#include "regard/error.h"
#include "tests/support/placement.h"

namespace regard::test {
namespace {

// [sequences, kv_heads, tokens, dim] of signed numbers whose size differs from row to row.
Placed RandomRows(Random& random, const Dims& shape) {
  const DType type = random.OneOf({DType::kF32, DType::kF32, DType::kF64, DType::kF16, DType::kBF16});
  Placed placed = random.Chance(0.5) ? PlaceRandomly(random, shape, type, random.Chance(0.5)) : PlaceDense(shape, type);
  double size = 1;
  ForEachIndex(shape, [&](const Dims& index) {
    if (index[3] == 0) size = random.Chance(0.05) ? 0 : random.Uniform(0.1, 3);
    Set(placed.view, index, size * random.Normal() + 0.3 * size * static_cast<double>(index[3] % 3));
  });
  return placed;
}

std::vector<float> RowOf(const TensorView& view, std::int64_t b, std::int64_t t, DType stored) {
  std::vector<float> rows;
  for (std::int64_t h = 0; h < view.dim(1); ++h) {
    std::vector<float> row;
    for (std::int64_t d = 0; d < view.dim(3); ++d) {
      const double x = view(b, h, t, d);
      row.push_back(stored == DType::kF16    ? ToFloat(ToF16(x))  // rounded once, not by way of f32
                    : stored == DType::kBF16 ? ToFloat(ToBF16(x))
                                             : static_cast<float>(x));
    }
    const std::vector<float> kept = AsStored(row, stored);
    rows.insert(rows.end(), kept.begin(), kept.end());
  }
  return rows;
}

}  // namespace

std::vector<float> AsStored(const std::vector<float>& row, DType stored) {
  const auto count = static_cast<std::int64_t>(row.size());
  std::vector<std::int64_t> memory(row.size() + 1);  // room for any type, aligned
  std::vector<float> kept(row.size());
  float scale = 1;
  internal::StoreRow(row.data(), DType::kF32, 1, count, stored, memory.data(), stored == DType::kI8 ? &scale : nullptr);
  internal::LoadStored({memory.data(), stored, 1, scale}, count, kept.data());
  return kept;
}

void ModelledCache::New() { sequences.push_back({cache.NewSequence(), 0, {}}); }

void ModelledCache::Fork(std::size_t which) {
  ModelSequence copy = sequences[which];
  copy.id = cache.Fork(copy.id);
  sequences.push_back(std::move(copy));
}

void ModelledCache::Drop(std::size_t which) {
  cache.Drop(sequences[which].id);
  sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(which));
}

void ModelledCache::Truncate(std::size_t which, std::int64_t length) {
  ModelSequence& s = sequences[which];
  cache.Truncate(s.id, length);
  if (length < s.length()) s.next_position = s.tokens[static_cast<std::size_t>(length)].position;
  s.tokens.resize(static_cast<std::size_t>(length));
}

bool ModelledCache::Evict(std::size_t which, std::int64_t first, std::int64_t count) {
  ModelSequence& s = sequences[which];
  try {
    cache.Evict(s.id, first, count);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
    return false;
  }
  s.tokens.erase(s.tokens.begin() + first, s.tokens.begin() + first + count);
  return true;
}

bool ModelledCache::Append(const std::vector<std::size_t>& which, std::int64_t tokens, Random& random) {
  const auto batch = static_cast<std::int64_t>(which.size());
  const Placed k = RandomRows(random, {batch, options_.kv_heads, tokens, options_.head_dim});
  const Placed v = RandomRows(random, {batch, options_.kv_heads, tokens, options_.v_dim});
  try {
    cache.Append(Ids(which), k.view, v.view);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
    return false;
  }
  for (std::int64_t b = 0; b < batch; ++b) {
    ModelSequence& s = sequences[which[static_cast<std::size_t>(b)]];
    for (std::int64_t t = 0; t < tokens; ++t) {
      s.tokens.push_back({s.next_position++, RowOf(k.view, b, t, options_.k_dtype), RowOf(v.view, b, t, options_.v_dtype)});
    }
  }
  return true;
}

std::vector<SequenceId> ModelledCache::Ids(const std::vector<std::size_t>& which) const {
  std::vector<SequenceId> ids;
  for (const std::size_t n : which) ids.push_back(sequences[n].id);
  return ids;
}

void ModelledCache::ExpectSame() const {
  for (const ModelSequence& s : sequences) {
    ASSERT_EQ(cache.Length(s.id), s.length());
    ASSERT_EQ(cache.NextPosition(s.id), s.next_position);
    const std::vector<std::int64_t> positions = cache.Positions(s.id);
    const Tensor keys = cache.Keys(s.id), values = cache.Values(s.id);
    ASSERT_EQ(keys.shape(), (Dims{1, options_.kv_heads, s.length(), options_.head_dim}));
    ASSERT_EQ(values.shape(), (Dims{1, options_.kv_heads, s.length(), options_.v_dim}));
    for (std::int64_t j = 0; j < s.length(); ++j) {
      const ModelToken& token = s.tokens[static_cast<std::size_t>(j)];
      ASSERT_EQ(positions[static_cast<std::size_t>(j)], token.position);
      for (std::int64_t h = 0; h < options_.kv_heads; ++h) {
        const float* const k = keys.As<float>() + (h * s.length() + j) * options_.head_dim;
        const float* const v = values.As<float>() + (h * s.length() + j) * options_.v_dim;
        ASSERT_TRUE(std::equal(k, k + options_.head_dim, token.k.data() + h * options_.head_dim))
            << "key " << j << ", head " << h;
        ASSERT_TRUE(std::equal(v, v + options_.v_dim, token.v.data() + h * options_.v_dim)) << "value " << j << ", head " << h;
      }
    }
  }
}

KvCacheOptions RandomCacheOptions(Random& random) {
  const auto any = [&] { return random.OneOf({DType::kF32, DType::kF16, DType::kBF16, DType::kI8}); };
  KvCacheOptions o{.kv_heads = random.Int(1, 3),
                   .head_dim = random.Int(1, 9),
                   .k_dtype = any(),
                   .v_dtype = any(),
                   .page_len = random.Int(1, 48)};
  if (random.Chance(0.7)) o.v_dim = random.Int(1, 9);
  if (random.Chance(0.3)) o.max_bytes = KvCache(o).Memory().page_bytes * static_cast<std::size_t>(random.Int(1, 12)) + 5;
  return o;
}

}  // namespace regard::test
