// A decode loop as an inference engine runs it, with the keys and values of all requests in paged caches:
//   1. what all prompts begin with is prefilled once, in chunks, and shared by forking;
//   2. each request's own part of the prompt goes behind it;
//   3. every step appends one token to each request and attends for all of them in one call, whatever their lengths;
//   4. a request that is done is dropped, and its pages serve the others.
// The model is a toy with random weights: two layers, grouped heads, no position encoding (a real one rotates q and k before Append; where a
// token stands is cache.NextPosition). At the end each text is checked against the same model without a cache.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include "regard/regard.h"

namespace {

constexpr std::int64_t kLayers = 2, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kWidth = kHeads * kHeadDim, kVocabulary = 96;
constexpr std::int64_t kChunk = 32;         // tokens of a prefill step: bounds the memory of q, k and v
constexpr std::int64_t kMaxContext = 1024;  // tokens of a text
constexpr std::int64_t kMaxBatch = 3;
constexpr int kEndOfText = 0;

using Floats = std::vector<float>;

float RandomSign() {
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  return state >> 31 ? 1.0f : -1.0f;
}

// rows [rows, in] times matrixᵀ, matrix [out, in].
Floats Multiply(const Floats& rows, const Floats& matrix, std::int64_t in) {
  const std::int64_t num_rows = static_cast<std::int64_t>(rows.size()) / in, out = static_cast<std::int64_t>(matrix.size()) / in;
  Floats product(static_cast<std::size_t>(num_rows * out));
  for (std::int64_t n = 0; n < num_rows * out; ++n) {
    float sum = 0;
    for (std::int64_t d = 0; d < in; ++d)
      sum += rows[static_cast<std::size_t>(n / out * in + d)] * matrix[static_cast<std::size_t>(n % out * in + d)];
    product[static_cast<std::size_t>(n)] = sum;
  }
  return product;
}

Floats RandomMatrix(std::int64_t rows, std::int64_t columns, float size) {
  Floats matrix(static_cast<std::size_t>(rows * columns));
  for (float& x : matrix) x = size * RandomSign();
  return matrix;
}

struct Layer {
  Floats query = RandomMatrix(kWidth, kWidth, 0.1f), key = RandomMatrix(kKvHeads * kHeadDim, kWidth, 0.1f),
         value = RandomMatrix(kKvHeads * kHeadDim, kWidth, 0.1f), out = RandomMatrix(kWidth, kWidth, 0.1f);
};

struct Model {
  Floats embedding = RandomMatrix(kVocabulary, kWidth, 1);
  std::vector<Layer> layers = std::vector<Layer>(kLayers);
};

// [batch, heads, tokens, kHeadDim] as matrix products leave it: a row for each token, its heads side by side. No copy.
regard::TensorView Heads(const Floats& rows, std::int64_t batch, std::int64_t heads) {
  const std::int64_t width = heads * kHeadDim, tokens = static_cast<std::int64_t>(rows.size()) / width / batch;
  return regard::View(rows.data(), {batch, heads, tokens, kHeadDim}, {tokens * width, kHeadDim, width, 1});
}

class Engine {
 public:
  explicit Engine(const Model& model) : model_(model) {
    // One cache a layer. bf16 or i8 halves or quarters the memory: .k_dtype = regard::DType::kBF16.
    for (std::int64_t l = 0; l < kLayers; ++l) {
      caches_.emplace_back(
          regard::KvCacheOptions{.kv_heads = kKvHeads, .head_dim = kHeadDim, .page_len = 64, .max_bytes = 1 << 20});
    }
  }

  // The layers' caches are changed alike, so one handle names a text in all of them.
  struct Text {
    std::vector<regard::SequenceId> in_layer;
  };
  Text New() {
    Text text;
    for (regard::KvCache& cache : caches_) text.in_layer.push_back(cache.NewSequence());
    return text;
  }
  Text Fork(const Text& from) {
    Text text;
    for (std::size_t l = 0; l < caches_.size(); ++l) text.in_layer.push_back(caches_[l].Fork(from.in_layer[l]));
    return text;
  }
  void Drop(const Text& text) {
    for (std::size_t l = 0; l < caches_.size(); ++l) caches_[l].Drop(text.in_layer[l]);
  }

  // Appends as many tokens to each text, [texts, tokens], and returns which token the model puts behind each.
  std::vector<int> Step(std::span<const Text> texts, std::span<const int> tokens) {
    const auto batch = static_cast<std::int64_t>(texts.size());
    Floats x;  // [texts · tokens, kWidth]
    for (const int token : tokens)
      x.insert(x.end(), &model_.embedding[static_cast<std::size_t>(token * kWidth)],
               &model_.embedding[static_cast<std::size_t>(token * kWidth)] + kWidth);
    Floats context(x.size());
    for (std::size_t l = 0; l < caches_.size(); ++l) {
      const Layer& layer = model_.layers[l];
      const Floats q = Multiply(x, layer.query, kWidth), k = Multiply(x, layer.key, kWidth), v = Multiply(x, layer.value, kWidth);
      std::vector<regard::SequenceId> sequences;
      for (const Text& text : texts) sequences.push_back(text.in_layer[l]);
      // Throws regard::Error when max_bytes is reached, and then has changed nothing: an engine lets the request wait, or drops one.
      caches_[l].Append(sequences, Heads(k, batch, kKvHeads), Heads(v, batch, kKvHeads));
      const regard::TensorView to = Heads(context, batch, kHeads);
      plan_
          .Run({.q = Heads(q, batch, kHeads), .cache = &caches_[l], .sequences = sequences},
               {.context = regard::MutableView(context.data(), to.shape(), to.strides())}, workspace_)
          .ThrowIfFailed();
      const Floats added = Multiply(context, layer.out, kWidth);
      for (std::size_t n = 0; n < x.size(); ++n) x[n] += added[n];
    }
    std::vector<int> next;
    for (std::int64_t b = 1; b <= batch; ++b) {
      const std::int64_t last = b * static_cast<std::int64_t>(x.size()) / batch - kWidth;
      const Floats logits = Multiply(Floats(x.begin() + last, x.begin() + last + kWidth), model_.embedding, kWidth);
      next.push_back(static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    return next;
  }

  // A prompt, kChunk tokens at a time: a text's queries are always its last tokens, so chunks need no offsets.
  int Prefill(const Text& text, std::span<const int> tokens) {
    int next = kEndOfText;
    for (; !tokens.empty(); tokens = tokens.subspan(std::min<std::size_t>(kChunk, tokens.size()))) {
      next = Step({&text, 1}, tokens.first(std::min<std::size_t>(kChunk, tokens.size())))[0];
    }
    return next;
  }

  const regard::KvCache& cache() const { return caches_[0]; }

 private:
  const Model& model_;
  std::vector<regard::KvCache> caches_;
  // Made once for the largest call; running it allocates nothing.
  regard::Plan plan_{{.batch = kMaxBatch,
                      .heads = kHeads,
                      .kv_heads = kKvHeads,
                      .q_len = kChunk,
                      .kv_len = kMaxContext,
                      .head_dim = kHeadDim,
                      .v_dim = kHeadDim},
                     {.causal = true}};
  regard::Workspace workspace_ = plan_.MakeWorkspace();
};

// The token behind a text, all of it at once and without a cache.
int NextToken(const Model& model, const std::vector<int>& text) {
  Floats x;
  for (const int token : text)
    x.insert(x.end(), &model.embedding[static_cast<std::size_t>(token * kWidth)],
             &model.embedding[static_cast<std::size_t>(token * kWidth)] + kWidth);
  for (const Layer& layer : model.layers) {
    const Floats q = Multiply(x, layer.query, kWidth), k = Multiply(x, layer.key, kWidth), v = Multiply(x, layer.value, kWidth);
    Floats context(x.size());
    const regard::AttentionResult r =
        regard::Attention(Heads(q, 1, kHeads), Heads(k, 1, kKvHeads), Heads(v, 1, kKvHeads), {.causal = true});
    for (std::int64_t n = 0; n < static_cast<std::int64_t>(x.size()); ++n) {
      context[static_cast<std::size_t>(n)] = static_cast<float>(r.context(0, n % kWidth / kHeadDim, n / kWidth, n % kHeadDim));
    }
    const Floats added = Multiply(context, layer.out, kWidth);
    for (std::size_t n = 0; n < x.size(); ++n) x[n] += added[n];
  }
  const Floats logits = Multiply(Floats(x.end() - kWidth, x.end()), model.embedding, kWidth);
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<int> SomeTokens(std::int64_t count) {
  std::vector<int> tokens;
  for (; count > 0; --count) {
    int token = 1;
    for (int bit = 0; bit < 6; ++bit) token += RandomSign() > 0 ? 1 << bit : 0;
    tokens.push_back(token);
  }
  return tokens;
}

struct Request {
  Engine::Text text;
  std::vector<int> tokens;  // the prompt and what came of it
  std::int64_t steps_left;
};

}  // namespace

int main() {
  const Model model;
  Engine engine(model);

  // What every prompt begins with, once.
  const std::vector<int> instructions = SomeTokens(150);
  const Engine::Text shared = engine.New();
  engine.Prefill(shared, instructions);

  // The requests: their own prompts behind it.
  std::vector<Request> running, done;
  for (const std::int64_t own : {5, 61, 17}) {
    Request request{engine.Fork(shared), instructions, 20 + own};
    const std::vector<int> prompt = SomeTokens(own);
    request.tokens.insert(request.tokens.end(), prompt.begin(), prompt.end());
    request.tokens.push_back(engine.Prefill(request.text, prompt));
    running.push_back(request);
  }
  const regard::KvCacheMemory memory = engine.cache().Memory();
  std::printf("%lld pages of %zu bytes a layer for %lld texts that share their first %zu tokens\n",
              static_cast<long long>(memory.pages_in_use), memory.page_bytes, static_cast<long long>(running.size()),
              instructions.size());

  // Decode: one token to each of those that still run.
  while (!running.empty()) {
    std::vector<Engine::Text> texts;
    std::vector<int> last;
    for (const Request& request : running) {
      texts.push_back(request.text);
      last.push_back(request.tokens.back());
    }
    const std::vector<int> next = engine.Step(texts, last);
    for (std::size_t r = running.size(); r-- > 0;) {
      running[r].tokens.push_back(next[r]);
      if (next[r] != kEndOfText && --running[r].steps_left > 0) continue;
      engine.Drop(running[r].text);  // before anything else, so that its pages are free
      done.push_back(running[r]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(r));
    }
  }
  engine.Drop(shared);

  bool same = true;
  for (const Request& request : done) {
    const std::vector<int> before(request.tokens.begin(), request.tokens.end() - 1);
    same = same && NextToken(model, before) == request.tokens.back();
    std::printf("a text of %zu tokens ends with %d\n", request.tokens.size(), request.tokens.back());
  }
  std::printf("pages left in use: %lld; the same without a cache: %s\n",
              static_cast<long long>(engine.cache().Memory().pages_in_use), same ? "yes" : "no");
  return same ? 0 : 1;
}
