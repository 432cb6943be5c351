// The manual page and the completion of shells, written from the one list of options (options.cc), so that they know every flag.
//
//     regard --man > regard.1
//     source <(regard --completion bash)
#pragma once

#include <string>
#include <string_view>

namespace regard::cli {

/// The page for man(1), in its macros.
std::string ManualPage();

/// For "bash", "zsh" or "fish". Throws UsageError for others.
std::string Completion(std::string_view shell);

}  // namespace regard::cli
