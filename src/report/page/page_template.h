// The page without its data: page.html with page.css and the scripts in place, cut where the title and the data go. embed.cmake makes it.
#pragma once

#include <string_view>

namespace regard::report {

extern const std::string_view kPageBegin;   // up to the title's text
extern const std::string_view kPageMiddle;  // from there up to the data
extern const std::string_view kPageEnd;     // the scripts and the rest

}  // namespace regard::report
