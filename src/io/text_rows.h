// Rows of numbers as text: what a spreadsheet, numpy.savetxt or a person writes.
//
//     text      = [ byte-order mark ] { line newline }
//     line      = [ word separator ] number { separator number } [ comment ]  |  [ comment ]       blanks may stand at both ends
//     separator = blanks  |  [ blanks ] ( "," | ";" ) [ blanks ]              one of , and ; a line
//     blanks    = spaces, tabs, carriage returns
//     number    = decimal, as in 1 -0.5 +2e-3, or inf or nan in any case; rounded to the nearest f32
//     word      = a field that is no number  |  '"' anything '"', in which "" stands for one quote
//     comment   = "#", at the end of the line or followed by a blank, and all that follows
//
// All rows have as many numbers as the first, and all or none begin with a word. Word pieces such as "##ing" are words, since their
// "#" is not followed by a blank; a word that is a number, empty, or "#" alone must be quoted. The text is UTF-8.
// Rows become "inputs" f32 [rows, columns], words become "tokens" [rows].
#pragma once

#include <memory>

#include "io/byte_source.h"
#include "io/file_impl.h"

namespace regard::io {

std::unique_ptr<File::Impl> OpenTextRows(std::unique_ptr<ByteSource> source);

}  // namespace regard::io
