// Simplified self-attention on six tokens, step by step, as chapter 3 of "Build a Large Language Model (From Scratch)" by
// Sebastian Raschka (Manning, 2024) builds it. Each step names what the course does, then does it in one call.
#include <cmath>
#include <cstdio>

#include "regard/regard.h"

namespace {

void Print(const char* title, const regard::Tensor& matrix) {
  std::printf("%s\n", title);
  for (int i = 0; i < matrix.dim(0); ++i) {
    for (int j = 0; j < matrix.dim(1); ++j) std::printf("%8.4f", matrix(i, j));
    std::printf("\n");
  }
}

}  // namespace

int main() {
  // "Your journey starts with one step": six tokens, each embedded in three dimensions.
  const regard::Tensor x = regard::Tensor::Of<float>({6, 3}, {0.43f, 0.15f, 0.89f,    // Your
                                                              0.55f, 0.87f, 0.66f,    // journey
                                                              0.57f, 0.85f, 0.64f,    // starts
                                                              0.22f, 0.58f, 0.33f,    // with
                                                              0.77f, 0.25f, 0.10f,    // one
                                                              0.05f, 0.80f, 0.55f});  // step

  // 1. Scores: the dot product of every token with every token. First as nested loops …
  const regard::Tensor by_loops = regard::ScoresByLoops(x, x, {.scale = 1});
  // … then as one matrix product: inputs @ inputs.T
  const regard::Tensor scores = regard::Scores(x, x, {.scale = 1});
  Print("scores", scores);

  // 2. Attention weights: torch.softmax(scores, dim=-1). Every row sums to 1.
  const regard::Tensor weights = regard::Softmax(scores, -1);
  Print("weights", weights);

  // 3. Context vectors, all at once: weights @ inputs
  const regard::Tensor context = regard::Context(weights, x);
  Print("context", context);

  // The check: the context vector of "journey" computed alone equals row 1 of the batched result.
  const regard::Tensor journey = regard::ContextForToken(weights, x, 1);
  double difference = 0;
  for (int d = 0; d < 3; ++d) difference = std::fmax(difference, std::fabs(journey(d) - context(1, d)));
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) difference = std::fmax(difference, std::fabs(by_loops(i, j) - scores(i, j)));
  }
  std::printf("loops and one token at a time agree with the matrix products: %s\n", difference < 1e-6 ? "yes" : "no");
  return difference < 1e-6 ? 0 : 1;
}
