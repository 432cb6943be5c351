// One small program a header of regard::tools; docs/headers.md shows them.
#include <cmath>
#include <cstdio>
#include <exception>

#include "regard/diagnose.h"
#include "regard/io.h"
#include "regard/problem.h"

namespace {

regard::Tensor MakeUp(const regard::Dims& shape, double seed) {
  regard::Tensor x(regard::DType::kF32, shape);
  for (std::int64_t n = 0; n < x.num_elements(); ++n)
    x.MutableAs<float>()[n] = static_cast<float>(std::sin(seed * static_cast<double>(n + 1)));
  return x;
}

void ShowIo(const char* path) {
  const regard::Tensor q = MakeUp({2, 7, 8}, 0.3), k = MakeUp({2, 7, 8}, 0.5), v = MakeUp({2, 7, 8}, 0.7);
  regard::io::WriteNpz(path, {{.name = "q", .tensor = q}, {.name = "k", .tensor = k}, {.name = "v", .tensor = v}});
  const regard::io::File file = regard::io::File::Open(path);
  for (const regard::io::ArrayInfo& array : file.arrays())
    std::printf("io: %s %s\n", array.name.c_str(), regard::ToString(array.shape).c_str());
}

void ShowProblem(const char* path) {
  const regard::io::Problem p = regard::io::LoadProblem({path}, {.causal = true, .layout = regard::io::Layout::kHsd});
  std::printf("problem: %s\n", p.reading.c_str());
  const regard::AttentionResult r = regard::Attention(p.q, p.k, p.v, p.params);
  const regard::Tensor context = p.ToFileShape("context", r.context);
  std::printf("problem: context %s, as in the file\n", regard::ToString(context.shape()).c_str());
}

void ShowDiagnose() {
  const regard::Tensor q = MakeUp({1, 2, 9, 8}, 0.3), k = MakeUp({1, 2, 9, 8}, 0.5), v = MakeUp({1, 2, 9, 8}, 0.7);
  const regard::AttentionResult theirs = regard::Attention(q, k, v, {.scale = 1});  // somebody forgot the scale
  const regard::Diagnosis d = regard::Diagnose({.q = q, .k = k, .v = v}, {.context = theirs.context});
  std::printf("diagnose: %s\n", d.summary.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const char* const path = argc > 1 ? argv[1] : "headers.npz";
  try {
    ShowIo(path);
    ShowProblem(path);
    ShowDiagnose();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
