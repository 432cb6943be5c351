# Writes a C++ file with the page's text: page.html, where {{style}} becomes page.css and {{script}} the scripts in the order given, cut at
# {{title}} and {{data}}.
#   cmake -DFOLDER=src/report/page -DSCRIPTS=data.js,page.js -DOUTPUT=page_template.cc -P embed.cmake
string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")

# Cuts `text` at the first `mark`.
function(cut text mark before after)
  string(FIND "${text}" "${mark}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "page.html: ${mark} is missing")
  endif()
  string(LENGTH "${mark}" length)
  math(EXPR rest "${at} + ${length}")
  string(SUBSTRING "${text}" 0 ${at} head)
  string(SUBSTRING "${text}" ${rest} -1 tail)
  set(${before} "${head}" PARENT_SCOPE)
  set(${after} "${tail}" PARENT_SCOPE)
endfunction()

file(READ "${FOLDER}/page.html" html)
file(READ "${FOLDER}/page.css" style)
set(script "")
foreach(name IN LISTS SCRIPTS)
  file(READ "${FOLDER}/${name}" text)
  string(APPEND script "${text}")
endforeach()

cut("${html}" "{{title}}" before_title html)
cut("${html}" "{{style}}" before_style html)
cut("${html}" "{{data}}" before_data html)
cut("${html}" "{{script}}" before_script after_script)

file(WRITE "${OUTPUT}" "#include \"report/page/page_template.h\"

namespace regard::report {

constexpr std::string_view kBegin = R\"page!(${before_title})page!\";
constexpr std::string_view kMiddle = R\"page!(${before_style}${style}${before_data})page!\";
constexpr std::string_view kEnd = R\"page!(${before_script}${script}${after_script})page!\";
const std::string_view kPageBegin = kBegin;
const std::string_view kPageMiddle = kMiddle;
const std::string_view kPageEnd = kEnd;

}  // namespace regard::report
")
