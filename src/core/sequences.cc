#include "core/sequences.h"

#include "core/scratch.h"

namespace regard::internal {
namespace {

// A run of equal segment numbers: [begin, end).
struct Run {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// The segment numbers of one batch entry's queries or keys.
class Numbers {
 public:
  Numbers(const View4& segments, std::int64_t b, std::int64_t length)
      : segments_(segments), row_(b * segments.stride[0]), length_(length) {}

  std::int64_t At(std::int64_t token) const { return LoadInt(segments_, row_ + token * segments_.stride[3]); }

  Run RunFrom(std::int64_t begin) const {
    const std::int64_t number = At(begin);
    std::int64_t end = begin + 1;
    while (end < length_ && At(end) == number) ++end;
    return {begin, end};
  }

  // The run of this number, searched from `start` on and then from the first: packed sequences usually come in the same order. Empty if
  // there is none; padding belongs to nothing.
  Run Find(std::int64_t number, std::int64_t start) const {
    if (number == -1) return {};
    for (std::int64_t pass = 0; pass < 2; ++pass) {
      const std::int64_t stop = pass == 0 ? length_ : start;
      for (std::int64_t t = pass == 0 ? start : 0; t < stop; ++t) {
        if (At(t) == number) return RunFrom(t);
      }
    }
    return {};
  }

 private:
  const View4& segments_;
  const std::int64_t row_, length_;
};

}  // namespace

bool SequenceWalk::Next(Sequence* sequence) {
  if (p_.q_segments.data != nullptr) return NextSegment(sequence);
  if (done_) return false;
  done_ = true;
  *sequence = {b_, 0, p_.q_len, 0, p_.is_cached() ? p_.KvLen(b_) : p_.kv_len};
  return true;
}

bool SequenceWalk::NextSegment(Sequence* sequence) {
  const Numbers queries(p_.q_segments, b_, p_.q_len), keys(p_.kv_segments, b_, p_.kv_len);
  if (query_ < p_.q_len) {
    const Run run = queries.RunFrom(query_), found = keys.Find(queries.At(query_), found_key_);
    if (found.end > 0) found_key_ = found.end;
    query_ = run.end;
    *sequence = {b_, run.begin, run.size(), found.begin, found.size()};
    return true;
  }
  while (key_ < p_.kv_len) {
    const Run run = keys.RunFrom(key_), found = queries.Find(keys.At(key_), found_query_);
    key_ = run.end;
    if (found.end == 0) {
      *sequence = {b_, p_.q_len, 0, run.begin, run.size()};
      return true;
    }
    found_query_ = found.end;
  }
  return false;
}

bool FindUnequal(const Problem& problem, Sequence* sequence) {
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (SequenceWalk walk(problem, b); walk.Next(sequence);) {
      if (sequence->q_len > 0 && sequence->kv_len > 0 && sequence->q_len != sequence->kv_len) return true;
    }
  }
  return false;
}

std::int64_t MostSequences(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len, bool packed) {
  if (q_len == 0) return 0;  // nothing to compute, of however many entries a file claims
  return packed ? SaturatingProduct(batch, q_len + kv_len) : batch;
}

}  // namespace regard::internal
