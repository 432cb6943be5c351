// A problem is written, read again, computed with the scale left out, and diagnosed.
#include <cmath>
#include <cstdio>

#include "regard/diagnose.h"
#include "regard/io.h"
#include "regard/problem.h"
#include "regard/regard.h"

int main(int argc, char** argv) {
  const char* file = argc > 1 ? argv[1] : "consumer.npz";
  regard::Tensor x(regard::DType::kF32, {12, 8});
  for (int i = 0; i < 96; ++i) x.MutableAs<float>()[i] = std::sin(1.7f * static_cast<float>(i * i));
  regard::io::WriteNpz(file, {{.name = "q", .tensor = x}, {.name = "k", .tensor = x}, {.name = "v", .tensor = x}});

  const regard::io::Problem problem = regard::io::LoadProblem({file}, {});
  std::puts(problem.reading.c_str());
  const regard::AttentionResult wrong = regard::Attention(x, x, x, {.scale = 1});
  const regard::Diagnosis d = regard::Diagnose({.q = problem.q, .k = problem.k, .v = problem.v}, {.context = wrong.context});
  std::puts(d.summary.c_str());
  return d.summary.find("scale") == std::string::npos ? 1 : 0;
}
