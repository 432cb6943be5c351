#include "io/problem_layout.h"

#include <cstring>
#include <utility>

#include "core/shape_text.h"
#include "io/file_error.h"

namespace regard::io {
namespace {

using enum ErrorCode;

constexpr std::pair<Layout, std::string_view> kLayouts[] = {
    {Layout::kBhsd, "bhsd"}, {Layout::kBshd, "bshd"}, {Layout::kHsd, "hsd"}, {Layout::kShd, "shd"}, {Layout::kBsd, "bsd"}};

std::string_view AxisName(char letter, bool packed) {
  switch (letter) {
    case 'b':
      return "batch";
    case 'h':
      return "heads";
    case 's':
      return "tokens";
    default:
      return packed ? "heads·dim" : "dim";
  }
}

// Letters of the axes; rank 2 is "sd".
std::string_view Letters(int rank, Layout layout) { return rank == 2 ? std::string_view("sd") : Name(layout); }

// Shape and strides of the window on a file-shaped context that shows it as [batch, heads, tokens, v_dim].
TensorView ContextWindow(const Problem::Axes& axes, const Dims& full, const TensorView& tensor) {
  const int rank = (axes.batch ? 1 : 0) + (axes.heads && axes.layout != Layout::kBsd ? 1 : 0) + 2;
  return ToRank4(tensor, rank == 2 ? Layout::kBhsd : axes.layout, full[1]);
}

// Puts back, as axes of length 1, what the inputs lack.
TensorView WithAllAxes(const Problem::Axes& axes, TensorView tensor) {
  if (!axes.heads) tensor = tensor.Unsqueeze(axes.batch ? 1 : 0);
  return axes.batch ? tensor : tensor.Unsqueeze(0);
}

}  // namespace

std::string_view Name(Layout layout) noexcept {
  for (const auto& [value, name] : kLayouts) {
    if (value == layout) return name;
  }
  return "";
}

bool ParseLayout(std::string_view text, Layout* layout) noexcept {
  for (const auto& [value, name] : kLayouts) {
    if (name != text) continue;
    *layout = value;
    return true;
  }
  return false;
}

Layout ChooseLayout(std::string_view name, const TensorView& view, const std::optional<Layout>& stated) {
  const std::string shape = ToString(view.shape());
  if (view.rank() < 2 || view.rank() > 4) {
    Fail(kShapeMismatch, name, "shape {} has {} {}; give [tokens, dim], [batch, heads, tokens, dim], or 3 axes with --layout",
         shape, view.rank(), internal::AxisWord(view.rank()));
  }
  if (!stated && view.rank() == 3) {
    Fail(kShapeMismatch, name,
         "shape {} can be read in three ways; state --layout hsd ({}), shd ({}) or bsd ({}) with --num-heads", shape,
         Labelled(view, Layout::kHsd), Labelled(view, Layout::kShd), Labelled(view, Layout::kBsd));
  }
  if (stated && static_cast<int>(Name(*stated).size()) != view.rank()) {
    Fail(kShapeMismatch, name, "shape {} has {} axes, but --layout {} names {}; {}", shape, view.rank(), Name(*stated),
         Name(*stated).size(),
         view.rank() == 4   ? "use bhsd or bshd"
         : view.rank() == 3 ? "use hsd, shd or bsd"
                            : "leave it out for [tokens, dim]");
  }
  return stated.value_or(Layout::kBhsd);
}

Problem::Axes AxesOf(int rank, Layout layout) {
  const std::string_view letters = Letters(rank, layout);
  const bool packed = rank != 2 && layout == Layout::kBsd;
  return {.batch = letters.find('b') != letters.npos, .heads = packed || letters.find('h') != letters.npos, .layout = layout};
}

TensorView ToRank4(const TensorView& view, Layout layout, std::int64_t heads) {
  if (view.rank() == 2) return view.Unsqueeze(0).Unsqueeze(0);
  switch (layout) {
    case Layout::kBhsd:
      return view;
    case Layout::kBshd:
      return view.Transpose(1, 2);
    case Layout::kHsd:
      return view.Unsqueeze(0);
    case Layout::kShd:
      return view.Transpose(0, 1).Unsqueeze(0);
    case Layout::kBsd:
      break;
  }
  const std::int64_t dim = view.dim(2) / heads;
  return TensorView(view.data(), view.dtype(), {view.dim(0), heads, view.dim(1), dim},
                    {view.stride(0), dim * view.stride(2), view.stride(1), view.stride(2)});
}

std::string Labelled(const TensorView& view, Layout layout) {
  std::string text;
  const std::string_view letters = Letters(view.rank(), layout);
  for (int axis = 0; axis < view.rank(); ++axis) {
    text += fmt::format("{}{} {}", axis == 0 ? "" : ", ", AxisName(letters[static_cast<std::size_t>(axis)], letters == "bsd"),
                        view.dim(axis));
  }
  return text;
}

// ------------------------------------------------------------------------------------------------- results and files

namespace {

bool IsContext(std::string_view name) { return name == "context" || name == "d_context"; }

}  // namespace

Dims Problem::FileShape(std::string_view name, const Dims& full) const {
  Dims file;
  if (axes.batch) file.push_back(full[0]);
  if (name == "projected") {
    file.push_back(full[1]);
    file.push_back(full[2]);
    return file;
  }
  const bool laid_out = IsContext(name) && full.size() == 4 && axes.heads;
  if (laid_out && axes.layout == Layout::kBsd) {
    file.push_back(full[2]);
    file.push_back(full[1] * full[3]);
    return file;
  }
  const bool tokens_first = laid_out && (axes.layout == Layout::kBshd || axes.layout == Layout::kShd);
  if (tokens_first) file.push_back(full[2]);
  if (axes.heads) file.push_back(full[1]);
  for (int axis = tokens_first ? 3 : 2; axis < full.size(); ++axis) file.push_back(full[axis]);
  return file;
}

TensorView Problem::FromFileShape(std::string_view name, const Dims& full, const TensorView& tensor) const {
  const Dims expected = FileShape(name, full);
  if (!(tensor.shape() == expected)) {
    Fail(kShapeMismatch, name, "shape {}, expected {}; check the layout of the file", ToString(tensor.shape()),
         ToString(expected));
  }
  if (name == "projected") return axes.batch ? tensor : tensor.Unsqueeze(0);
  const bool laid_out = IsContext(name) && full.size() == 4 && axes.heads;
  return laid_out ? ContextWindow(axes, full, tensor) : WithAllAxes(axes, tensor);
}

MutableTensorView Problem::FromFileShape(std::string_view name, const Dims& full, const MutableTensorView& tensor) const {
  const TensorView window = FromFileShape(name, full, static_cast<const TensorView&>(tensor));
  return MutableTensorView(tensor.mutable_data(), window.dtype(), window.shape(), window.strides());
}

Tensor Problem::ToFileShape(std::string_view name, const TensorView& full) const {
  const bool context = IsContext(name) && full.rank() == 4 && axes.heads;
  const bool tokens_first = context && axes.layout != Layout::kBhsd && axes.layout != Layout::kHsd;
  const Tensor ordered = Tensor::CopyOf(tokens_first ? full.Transpose(1, 2) : full);
  Tensor result = Tensor::Uninitialized(full.dtype(), FileShape(name, full.shape()));
  if (result.num_elements() != full.num_elements()) {
    Fail(kShapeMismatch, name, "shape {}, but these inputs give results of {} elements; pass [batch, heads, …]",
         ToString(full.shape()), result.num_elements());
  }
  const auto bytes = static_cast<std::size_t>(result.num_elements()) * ItemSize(result.dtype());
  if (bytes > 0) std::memcpy(result.mutable_view().mutable_data(), ordered.view().data(), bytes);
  return result;
}

}  // namespace regard::io
