// Shapes in messages: "2×3×4" without allocation, for functions that must not allocate; "1 axis" and "3 axes".
#pragma once

#include <cinttypes>
#include <cstdio>

#include "regard/tensor.h"

namespace regard::internal {

struct ShapeText {
  explicit ShapeText(const Dims& dims) {
    int used = 0;
    text[0] = 0;
    for (int i = 0; i < dims.size() && used < static_cast<int>(sizeof(text)); ++i) {
      used += std::snprintf(text + used, sizeof(text) - used, "%s%" PRId64, i == 0 ? "" : "×", dims[i]);
    }
    if (dims.size() == 0) std::snprintf(text, sizeof(text), "scalar");
  }
  char text[96];
};

inline const char* AxisWord(int count) { return count == 1 ? "axis" : "axes"; }

}  // namespace regard::internal
