// Parameters made, listed, and found in state dicts.
#pragma once

#include <string>

#include "regard/nn.h"

namespace regard::nn {

/// Zeros, and a gradient of zeros. Error unless the type is a layer's and every axis has length 1 or more.
Parameter MakeParameter(DType dtype, const Dims& shape);

/// Unless it is not given.
void Append(const std::string& name, Parameter& parameter, ParameterList* list);

/// Null if there is none.
const Tensor* FindState(const StateDict& state, const std::string& name);

/// A copy of an entry, in the element type and, transposed or not, in the shape of `like`. Error if it is missing or does not fit.
Tensor FromState(const StateDict& state, const std::string& name, const Tensor& like, bool transposed = false);

}  // namespace regard::nn
