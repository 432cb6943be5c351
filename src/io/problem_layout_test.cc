#include "io/problem_layout.h"

#include "io/problem_test_support.h"

namespace regard::io {
namespace {

// One problem, laid out in every way: q [2, 4, 3, 5], k [2, 2, 6, 5], v [2, 2, 6, 7] in full shape.
struct FullProblem {
  Tensor q = Numbers({2, 4, 3, 5}, 1), k = Numbers({2, 2, 6, 5}, 2), v = Numbers({2, 2, 6, 7}, 3);
};

// [batch, heads, tokens, dim] -> [batch, tokens, heads·dim], element by element.
Tensor Packed(const TensorView& x) {
  Tensor packed(DType::kF32, {x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
  for (std::int64_t b = 0; b < x.dim(0); ++b) {
    for (std::int64_t h = 0; h < x.dim(1); ++h) {
      for (std::int64_t s = 0; s < x.dim(2); ++s) {
        for (std::int64_t d = 0; d < x.dim(3); ++d) {
          packed.MutableAs<float>()[((b * x.dim(2) + s) * x.dim(1) + h) * x.dim(3) + d] = static_cast<float>(x(b, h, s, d));
        }
      }
    }
  }
  return packed;
}

void ExpectFull(const Problem& p, const FullProblem& full) {
  ExpectEqualElements(p.q, full.q);
  ExpectEqualElements(p.k, full.k);
  ExpectEqualElements(p.v, full.v);
  EXPECT_EQ(p.shape.heads, 4);
  EXPECT_EQ(p.shape.kv_heads, 2);
  EXPECT_EQ(p.shape.v_dim, 7);
}

TEST(ProblemLayoutTest, Bhsd) {
  FullProblem full;
  const Problem p = ProblemFile().Add("q", full.q).Add("k", full.k).Add("v", full.v).Load();
  ExpectFull(p, full);
  EXPECT_EQ(p.reading, "read as batch 2, heads 4 (kv_heads 2), q_len 3, kv_len 6, dim 5, v_dim 7; not causal; scale 1/√5");
  EXPECT_EQ(p.FileShape("context", {2, 4, 3, 7}), Dims({2, 4, 3, 7}));
  EXPECT_EQ(p.FileShape("lse", {2, 4, 3}), Dims({2, 4, 3}));
  EXPECT_TRUE(p.notes.empty());
}

TEST(ProblemLayoutTest, Bshd) {
  FullProblem full;
  ProblemFile file;
  file.Add("q", Tensor::CopyOf(full.q.view().Transpose(1, 2)));
  file.Add("k", Tensor::CopyOf(full.k.view().Transpose(1, 2)));
  file.Add("v", Tensor::CopyOf(full.v.view().Transpose(1, 2)));
  const Problem p = file.Load({.layout = Layout::kBshd});
  ExpectFull(p, full);
  EXPECT_EQ(p.q.stride(1), 5) << "a window, no copy";
  EXPECT_EQ(p.reading,
            "read as batch 2, heads 4 (kv_heads 2), q_len 3, kv_len 6, dim 5, v_dim 7 (layout bshd); not causal; scale 1/√5");
  EXPECT_EQ(p.FileShape("context", {2, 4, 3, 7}), Dims({2, 3, 4, 7}));
  EXPECT_EQ(p.FileShape("weights", {2, 4, 3, 6}), Dims({2, 4, 3, 6}));
  const Tensor context = Numbers({2, 4, 3, 7}, 9);
  ExpectEqualElements(p.ToFileShape("context", context), context.view().Transpose(1, 2));
}

TEST(ProblemLayoutTest, TokensThatLookLikeHeadsAreNoted) {
  const auto notes = [](std::int64_t heads, std::int64_t q_len, std::int64_t kv_heads, std::int64_t kv_len,
                        ProblemOptions options = {}) {
    return ProblemFile()
        .Add("q", Numbers({1, heads, q_len, 2}))
        .Add("k", Numbers({1, kv_heads, kv_len, 2}))
        .Add("v", Numbers({1, kv_heads, kv_len, 2}))
        .Load(options)
        .notes;
  };
  const std::vector<std::string> none;
  EXPECT_EQ(
      notes(512, 8, 512, 8),
      (std::vector<std::string>{"q has 512 heads of 8 tokens; if it is stored [batch, tokens, heads, dim], pass --layout bshd"}));
  EXPECT_EQ(notes(100, 32, 100, 8).size(), 1u) << "groups of heads";
  EXPECT_EQ(notes(512, 8, 512, 8, {.layout = Layout::kBhsd}), none);
  EXPECT_EQ(notes(512, 8, 512, 8, {.num_heads = 512}), none);
  EXPECT_EQ(notes(128, 8, 128, 128), none) << "as many keys as heads";
  EXPECT_EQ(notes(128, 128, 128, 8), none);
  EXPECT_EQ(notes(128, 3, 128, 2), none) << "in the other order 3 heads, which 2 of k do not divide";
  for (std::int64_t keys = 1; keys <= 8; ++keys) {
    EXPECT_EQ(notes(32, 1, 32, keys), none) << "decoding";
    EXPECT_EQ(notes(32, keys, 8, keys), none) << "a short prompt";
    EXPECT_EQ(notes(128, keys, 8, keys), none);
  }
}

TEST(ProblemLayoutTest, Bsd) {
  FullProblem full;
  const Problem p = ProblemFile()
                        .Add("q", Packed(full.q))
                        .Add("k", Packed(full.k))
                        .Add("v", Packed(full.v))
                        .Add("num_heads", Scalar<std::int64_t>(4))
                        .Add("num_kv_heads", Scalar<std::int32_t>(2))
                        .Load({.layout = Layout::kBsd});
  ExpectFull(p, full);
  EXPECT_EQ(p.FileShape("context", {2, 4, 3, 7}), Dims({2, 3, 28}));
  EXPECT_EQ(p.FileShape("weights", {2, 4, 3, 6}), Dims({2, 4, 3, 6}));
  EXPECT_EQ(p.FileShape("lse", {2, 4, 3}), Dims({2, 4, 3}));
  const Tensor context = Numbers({2, 4, 3, 7}, 9);
  ExpectEqualElements(p.ToFileShape("context", context), Packed(context));
}

TEST(ProblemLayoutTest, HsdAndShd) {
  const Tensor q = Numbers({4, 3, 5}, 1), k = Numbers({2, 6, 5}, 2), v = Numbers({2, 6, 7}, 3);
  const Problem hsd = ProblemFile().Add("q", q).Add("k", k).Add("v", v).Load({.layout = Layout::kHsd});
  const auto turned = [](const Tensor& x) { return Tensor::CopyOf(x.view().Transpose(0, 1)); };
  const Problem shd = ProblemFile().Add("q", turned(q)).Add("k", turned(k)).Add("v", turned(v)).Load({.layout = Layout::kShd});
  for (const Problem* p : {&hsd, &shd}) {
    ExpectEqualElements(p->q, q.view().Unsqueeze(0));
    ExpectEqualElements(p->k, k.view().Unsqueeze(0));
    ExpectEqualElements(p->v, v.view().Unsqueeze(0));
    EXPECT_EQ(p->FileShape("weights", {1, 4, 3, 6}), Dims({4, 3, 6}));
    EXPECT_EQ(p->FileShape("lse", {1, 4, 3}), Dims({4, 3}));
  }
  EXPECT_EQ(hsd.FileShape("context", {1, 4, 3, 7}), Dims({4, 3, 7}));
  EXPECT_EQ(shd.FileShape("context", {1, 4, 3, 7}), Dims({3, 4, 7}));
  EXPECT_EQ(shd.reading, "read as heads 4 (kv_heads 2), q_len 3, kv_len 6, dim 5, v_dim 7 (layout shd); not causal; scale 1/√5");
}

TEST(ProblemLayoutTest, RankTwo) {
  const Problem p = ProblemFile().AddQkv(3, 6, 5).Load();
  EXPECT_EQ(p.q.shape(), Dims({1, 1, 3, 5}));
  EXPECT_EQ(p.reading, "read as q_len 3, kv_len 6, dim 5; not causal; scale 1/√5");
  EXPECT_EQ(p.FileShape("context", {1, 1, 3, 5}), Dims({3, 5}));
  EXPECT_EQ(p.FileShape("weights", {1, 1, 3, 6}), Dims({3, 6}));
  EXPECT_EQ(p.FileShape("lse", {1, 1, 3}), Dims({3}));
}

// What ToFileShape writes, FromFileShape shows in full again, for every arrangement of axes; and a result can be written through it.
TEST(ProblemLayoutTest, FileShapeThereAndBack) {
  struct Case {
    Problem::Axes axes;
    std::int64_t batch, heads;
  };
  const Case cases[] = {{{true, true, Layout::kBhsd}, 2, 3},  {{true, true, Layout::kBshd}, 2, 3},
                        {{true, true, Layout::kBsd}, 2, 3},   {{false, true, Layout::kHsd}, 1, 3},
                        {{false, true, Layout::kShd}, 1, 3},  {{true, false, Layout::kBhsd}, 2, 1},
                        {{false, false, Layout::kBhsd}, 1, 1}};
  for (const Case& c : cases) {
    SCOPED_TRACE(Name(c.axes.layout));
    Problem p;
    p.axes = c.axes;
    const std::pair<const char*, Dims> results[] = {{"context", {c.batch, c.heads, 4, 5}},
                                                    {"weights", {c.batch, c.heads, 4, 6}},
                                                    {"lse", {c.batch, c.heads, 4}},
                                                    {"head_kind", {c.batch, c.heads}},
                                                    {"projected", {c.batch, 4, 7}}};
    for (const auto& [name, full] : results) {
      SCOPED_TRACE(name);
      const Tensor result = Numbers(full, 5);
      const Tensor file = p.ToFileShape(name, result);
      EXPECT_EQ(file.shape(), p.FileShape(name, full));
      ExpectEqualElements(p.FromFileShape(name, full, file.view()), result);
      Tensor written(DType::kF32, p.FileShape(name, full));
      const MutableTensorView window = p.FromFileShape(name, full, written.mutable_view());
      EXPECT_EQ(window.shape(), full);
      EXPECT_EQ(window.mutable_data(), written.view().data());
    }
  }
}

TEST(ProblemLayoutTest, WrongFileShapeIsRefused) {
  Problem p;
  p.axes = {.batch = false, .heads = true, .layout = Layout::kShd};
  const Tensor x = Numbers({3, 4, 5});
  ExpectError(ErrorCode::kShapeMismatch, "context: shape 3×4×5, expected 4×3×5; check the layout of the file", [&] {
    p.FromFileShape("context", {1, 3, 4, 5}, x.view());
  });
  ExpectError(ErrorCode::kShapeMismatch, "lse: shape 2×3×4, but these inputs give results of 12 elements; pass [batch, heads, …]",
              [&] {
                p.ToFileShape("lse", Numbers({2, 3, 4}));
              });
}

TEST(ProblemLayoutTest, NamesAreTheirOwnInverse) {
  for (const Layout layout : {Layout::kBhsd, Layout::kBshd, Layout::kHsd, Layout::kShd, Layout::kBsd}) {
    Layout parsed = Layout::kBhsd;
    EXPECT_TRUE(ParseLayout(Name(layout), &parsed));
    EXPECT_EQ(parsed, layout);
  }
  Layout parsed = Layout::kBhsd;
  EXPECT_FALSE(ParseLayout("BHSD", &parsed));
  EXPECT_FALSE(ParseLayout("", &parsed));
}

}  // namespace
}  // namespace regard::io
