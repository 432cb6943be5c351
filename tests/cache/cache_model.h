// A cache as a plain list of tokens: what KvCache is compared with. No pages, no sharing, every token holds its own numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/kv_cache.h"
#include "tests/support/random.h"

namespace regard::test {

struct ModelToken {
  std::int64_t position;
  std::vector<float> k, v;  // as stored and read back, [kv_heads, dim]
};

struct ModelSequence {
  SequenceId id{};
  std::int64_t next_position = 0;
  std::vector<ModelToken> tokens;

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  bool forgot() const { return length() != next_position; }
};

/// A cache and its model, changed together.
class ModelledCache {
 public:
  explicit ModelledCache(const KvCacheOptions& options) : cache(options), options_(cache.options()) {}

  void New();
  void Fork(std::size_t which);
  void Drop(std::size_t which);
  void Truncate(std::size_t which, std::int64_t length);
  /// False when there was no memory; then the model has not changed either.
  bool Evict(std::size_t which, std::int64_t first, std::int64_t count);
  /// Random numbers, given as a random type and in a random memory layout.
  bool Append(const std::vector<std::size_t>& which, std::int64_t tokens, Random& random);

  /// A GoogleTest failure unless every sequence is what the model says.
  void ExpectSame() const;
  std::vector<SequenceId> Ids(const std::vector<std::size_t>& which) const;

  KvCache cache;
  std::vector<ModelSequence> sequences;

 private:
  KvCacheOptions options_;
};

/// Any sizes and types; pages of 16 to 48 tokens; now and then a tight limit of memory.
KvCacheOptions RandomCacheOptions(Random& random);

/// Numbers as a cache of this type holds them.
std::vector<float> AsStored(const std::vector<float>& row, DType stored);

}  // namespace regard::test
