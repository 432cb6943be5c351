#include "cli/progress.h"

#include <gtest/gtest.h>

namespace regard::cli {
namespace {

TEST(ProgressTest, BarPercentageAndRest) {
  EXPECT_EQ(ProgressText(0.5, 30, 42), "████████░░░░░░░░  50 %  30 s left");
  EXPECT_EQ(ProgressText(0.25, 22.4, 36), "███░░░░░░░  25 %  1 min 08 s left");
  EXPECT_EQ(ProgressText(0.5, 7500, 34), "████░░░░  50 %  2 h 05 min left");
  EXPECT_EQ(ProgressText(0.999, 10, 34), "████████  99 %  1 s left") << "100 % is for what is done";
  EXPECT_EQ(ProgressText(1, 10, 34), "████████ 100 %  0 s left");
}

TEST(ProgressTest, SaysNoTimeBeforeItCanTell) {
  EXPECT_EQ(ProgressText(0.5, 1, 34), "████░░░░  50 %");
  EXPECT_EQ(ProgressText(0.01, 100, 34), "░░░░░░░░   1 %");
  EXPECT_EQ(ProgressText(0, 100, 34), "░░░░░░░░   0 %");
}

TEST(ProgressTest, NarrowTerminalsGetNoBar) {
  EXPECT_EQ(ProgressText(0.5, 30, 33), " 50 %  30 s left");
  EXPECT_EQ(ProgressText(0.5, 30, 16), "");
}

TEST(ProgressTest, ComesLateSeldomAndGoes) {
  ProgressLine line;
  EXPECT_EQ(line.Remove(), "");
  EXPECT_EQ(line.Update(0.1, 100.0, 30), "");
  EXPECT_EQ(line.Update(0.2, 100.4, 30), "");
  EXPECT_EQ(line.Update(0.3, 100.6, 30), "\r 30 %");
  EXPECT_EQ(line.Update(0.35, 100.65, 30), "");
  EXPECT_EQ(line.Update(0.5, 104.0, 30), "\r 50 %  4 s left");
  EXPECT_EQ(line.Remove(), "\r" + std::string(15, ' ') + "\r");
  EXPECT_EQ(line.Remove(), "");
}

TEST(ProgressTest, NewWorkBeginsAnewAndWritesOverTheOld) {
  ProgressLine line;
  line.Update(0.1, 0, 30);
  EXPECT_EQ(line.Update(0.5, 4, 30), "\r 50 %  4 s left");
  EXPECT_EQ(line.Update(0.1, 5, 30), "") << "half a second of the new piece has to pass";
  EXPECT_EQ(line.Update(0.2, 6, 30), "\r 20 %" + std::string(10, ' '));
}

}  // namespace
}  // namespace regard::cli
