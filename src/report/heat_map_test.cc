#include "report/heat_map.h"

#include <gtest/gtest.h>

#include "report/matrix_table.h"

namespace regard::report {
namespace {

TEST(PaintCell, EndsWithTheColourItBegan) {
  EXPECT_EQ(PaintCell("x", 0, Colors::kNone), "x");
  EXPECT_EQ(PaintCell("x", 0, Colors::k24Bit), "\x1b[38;2;255;255;255;48;2;28;16;52mx\x1b[0m");
  EXPECT_EQ(PaintCell("x", 1, Colors::k24Bit), "\x1b[38;2;0;0;0;48;2;250;228;60mx\x1b[0m");
  EXPECT_EQ(PaintCell("x", 7, Colors::k24Bit), PaintCell("x", 1, Colors::k24Bit));
  EXPECT_EQ(PaintCell("x", 1, Colors::k256), "\x1b[38;5;16;48;5;221mx\x1b[0m");
}

TEST(ShowHeatMap, ReadableWithoutColours) {
  const double values[] = {0, 0.25, 1, 0.04};
  const HeatMap map{2, 2, values, {"0 a", "1 bc"}};
  EXPECT_EQ(ShowHeatMap(map, Colors::kNone).substr(0, 36), "  0 a    ▒▒\n  1 bc ██░░\n");
}

TEST(Pool, AveragesBinsThatCoverEverything) {
  std::vector<double> values(5 * 3);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  std::vector<double> storage;
  const HeatMap pooled = Pool({5, 3, values, {"a", "b", "c", "d", "e"}}, 2, 2, &storage);
  ASSERT_EQ(pooled.rows, 2);
  ASSERT_EQ(pooled.columns, 2);
  EXPECT_EQ(pooled.values[0], 1.5);  // rows 0, 1; column 0
  EXPECT_EQ(pooled.values[1], 3);    // rows 0, 1; columns 1, 2
  EXPECT_EQ(pooled.values[2], 9);    // rows 2 to 4
  EXPECT_EQ(pooled.values[3], 10.5);
  EXPECT_EQ(pooled.row_labels, (std::vector<std::string>{"a", "c"}));
}

TEST(MatrixTable, ContinuesBelowWhenTooWide) {
  const double values[] = {1, 2, 3, 4};
  MatrixTable table;
  table.title = "scores";
  table.rows = 1;
  table.columns = 4;
  table.values = values;
  table.row_labels = {"0"};
  table.column_labels = {"a", "b", "c", "d"};
  EXPECT_EQ(Show(table, 80), "scores\n         a       b       c       d\n  0 1.0000  2.0000  3.0000  4.0000\n");
  EXPECT_EQ(Show(table, 20), "scores\n         a       b\n  0 1.0000  2.0000\n         c       d\n  0 3.0000  4.0000\n");
}

}  // namespace
}  // namespace regard::report
