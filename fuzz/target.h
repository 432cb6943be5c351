// What a fuzz target is: a function of bytes that says what became of them, and aborts when a promise is broken.
//
//     std::string Outcome(std::span<const std::uint8_t> bytes)      "ok", or "corrupt_file: input.npy: …"
//
// Each <name>_fuzzer.cc defines Outcome. The same file is linked with libFuzzer (fuzzer_entry.cc) to look for inputs, and with replay_main.cc to run
// kept ones under any compiler: fuzz/corpus/<name> are inputs that reach everything known, fuzz/regressions/<name> those that once broke a promise,
// each with the outcome that is expected beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "regard/error.h"
#include "regard/io.h"

namespace regard::fuzz {

std::string Outcome(std::span<const std::uint8_t> bytes);

/// Prints and aborts unless `kept`.
void Check(bool kept, std::string_view promise, std::string_view detail = {});

/// "ok", or the error that `act` threw, whose code must be one of these and whose message must be one short line of printable UTF-8.
std::string OutcomeOf(std::initializer_list<ErrorCode> codes, const std::function<void()>& act);
/// The same for messages that come by other types.
void CheckMessage(std::string_view message);

/// Opens the bytes as a file of that name and reads every array. What is read must be what was listed, and must come back the same when it is
/// written and read again.
std::string OutcomeOfFile(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace regard::fuzz
