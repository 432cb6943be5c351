// What a test asks of an Error: its code, what it says, and that it says what to do next.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "regard/error.h"

namespace regard::test {

/// `act` must throw Error with this code and a message that contains `part` and, after a semicolon, a next step.
template <typename Act>
void ExpectError(const Act& act, ErrorCode code, std::string_view part) {
  try {
    act();
    ADD_FAILURE() << "nothing was thrown; expected " << Name(code) << ": " << part;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    EXPECT_STREQ(Name(error.code()), Name(code)) << message;
    EXPECT_NE(message.find(part), std::string_view::npos) << message << "\nlacks: " << part;
    EXPECT_NE(message.find(';'), std::string_view::npos) << "no next step in: " << message;
  }
}

}  // namespace regard::test
