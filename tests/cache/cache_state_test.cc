// Thousands of random lives of a cache, compared after every step with a plain list of tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cache/cache_model.h"
#include "tests/support/random_problem.h"

namespace regard::test {
namespace {

// Counts what happened, so that a test in which nothing happens fails.
struct Counts {
  int appended = 0, forked = 0, dropped = 0, truncated = 0, evicted = 0, refused = 0, shared_pages = 0;
};

std::vector<std::size_t> SomeOf(Random& random, std::size_t size) {
  std::vector<std::size_t> chosen;
  for (std::size_t n = 0; n < size; ++n) {
    if (random.Chance(0.6)) chosen.push_back(n);
  }
  for (std::size_t n = chosen.size(); n > 1; --n)
    std::swap(chosen[n - 1], chosen[static_cast<std::size_t>(random.Int(0, static_cast<std::int64_t>(n) - 1))]);
  return chosen;
}

void Step(ModelledCache& modelled, Random& random, Counts& counts) {
  const std::size_t size = modelled.sequences.size();
  const auto which = [&] { return static_cast<std::size_t>(random.Int(0, static_cast<std::int64_t>(size) - 1)); };
  const int choice = size == 0 ? 0 : static_cast<int>(random.Int(0, 15));
  if (choice == 0) {
    if (size < 6) modelled.New();
  } else if (choice <= 2) {
    if (size < 6) modelled.Fork(which()), ++counts.forked;
  } else if (choice == 3) {
    modelled.Drop(which()), ++counts.dropped;
  } else if (choice <= 5) {
    const std::size_t n = which();
    modelled.Truncate(n, random.Int(0, modelled.sequences[n].length())), ++counts.truncated;
  } else if (choice <= 8) {
    const std::size_t n = which();
    const std::int64_t length = modelled.sequences[n].length(), first = random.Int(0, length);
    std::int64_t count = random.Int(0, length - first);
    if (random.Chance(0.3)) count = count / 16 * 16;
    ++(modelled.Evict(n, first, count) ? counts.evicted : counts.refused);
  } else {
    const std::int64_t tokens = random.Chance(0.5) ? 1 : random.Int(0, 70);
    ++(modelled.Append(SomeOf(random, size), tokens, random) ? counts.appended : counts.refused);
  }
}

TEST(KvCacheState, AnySequenceOfStepsLeavesWhatTheModelSays) {
  Counts counts;
  const std::vector<std::uint64_t> seeds = Seeds(3000);
  for (const std::uint64_t seed : seeds) {
    SCOPED_TRACE("REGARD_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    ModelledCache modelled(RandomCacheOptions(random));
    for (int step = 0; step < 30; ++step) {
      Step(modelled, random, counts);
      modelled.ExpectSame();
      if (testing::Test::HasFailure()) return;
      const KvCacheMemory memory = modelled.cache.Memory();
      std::int64_t unshared = 0, most = 0;
      for (const ModelSequence& s : modelled.sequences) {
        const std::int64_t pages = (s.length() + modelled.cache.options().page_len - 1) / modelled.cache.options().page_len;
        unshared += pages;
        most = std::max(most, pages);
      }
      ASSERT_LE(memory.pages_in_use, unshared) << "a page leaked";
      ASSERT_GE(memory.pages_in_use, most);
      ASSERT_LE(memory.pages_in_use, memory.pages_reserved);
      if (memory.max_bytes != 0) {
        ASSERT_LE(memory.bytes_reserved, memory.max_bytes);
      }
      if (memory.pages_in_use < unshared) ++counts.shared_pages;
    }
    while (!modelled.sequences.empty()) modelled.Drop(0);
    ASSERT_EQ(modelled.cache.Memory().pages_in_use, 0) << "a page leaked";
  }
  if (seeds.size() == 1) return;
  for (const int count :
       {counts.appended, counts.forked, counts.dropped, counts.truncated, counts.evicted, counts.refused, counts.shared_pages}) {
    EXPECT_GT(count, 500);
  }
}

}  // namespace
}  // namespace regard::test
