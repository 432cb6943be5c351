#include "report/page_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace regard::report {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::uint8_t> BytesOf(const std::string& text) { return {text.begin(), text.end()}; }

// The base64 text of the only array of `data`.
std::string ContentOf(const PageData& data) {
  const std::string& html = data.html();
  const std::size_t begin = html.find('>') + 1;
  return html.substr(begin, html.find('<', begin) - begin);
}

// RFC 4648, section 10.
TEST(Base64, TestVectors) {
  EXPECT_EQ(Base64({}), "");
  EXPECT_EQ(Base64(BytesOf("f")), "Zg==");
  EXPECT_EQ(Base64(BytesOf("fo")), "Zm8=");
  EXPECT_EQ(Base64(BytesOf("foo")), "Zm9v");
  EXPECT_EQ(Base64(BytesOf("foob")), "Zm9vYg==");
  EXPECT_EQ(Base64(BytesOf("fooba")), "Zm9vYmE=");
  EXPECT_EQ(Base64(BytesOf("foobar")), "Zm9vYmFy");
  const std::vector<std::uint8_t> ends = {0xFF, 0xFB, 0xFE};
  EXPECT_EQ(Base64(ends), "//v+");
}

TEST(PageData, DescribesWhatItWrites) {
  PageData data;
  data.AddF32(Tensor::Of<float>({1}, {0}));
  const nlohmann::json entry = data.AddF16(Tensor::Of<float>({2, 2}, {1, -2, 0.5f, 65504}));
  EXPECT_EQ(entry["id"], "a1");
  EXPECT_EQ(entry["type"], "f16");
  EXPECT_EQ(entry["shape"], (std::vector<int>{2, 2}));
  EXPECT_EQ(entry["scale"], 1.0);
  EXPECT_EQ(entry["rounded"], false);
  EXPECT_EQ(data.html(),
            "<script type=\"application/octet-stream\" id=\"a0\">AAAAAA==</script>\n"
            "<script type=\"application/octet-stream\" id=\"a1\">ADwAwAA4/3s=</script>\n");
}

TEST(PageData, StridedViewsComeInCOrder) {
  PageData strided, plain;
  const Tensor tensor = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  strided.AddF16(tensor.view().Transpose(0, 1));
  plain.AddF16(Tensor::Of<float>({3, 2}, {1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(strided.html(), plain.html());
}

TEST(PageData, F16ScalesWhatItCannotHold) {
  PageData data;
  const nlohmann::json large = data.AddF16(Tensor::Of<float>({2}, {131072, -1}));
  EXPECT_EQ(large["scale"], 8.0);  // 131072 / 8 = 2¹⁴
  EXPECT_EQ(large["rounded"], false);
  const nlohmann::json small = data.AddF16(Tensor::Of<float>({2}, {1e-6f, 3e-7f}));
  EXPECT_EQ(small["scale"], std::ldexp(1.0, -34));
  EXPECT_EQ(data.AddF16(Tensor::Of<float>({2}, {0, 0}))["scale"], 1.0);
  EXPECT_EQ(data.AddF16(Tensor::Of<double>({1}, {1e-320}))["scale"], std::ldexp(1.0, -1000));
  EXPECT_EQ(data.AddF16(Tensor::Of<float>({3}, {kNaN, kInfinity, 1}))["scale"], 1.0);
}

TEST(PageData, F16SaysWhenItRounds) {
  PageData data;
  EXPECT_EQ(data.AddF16(Tensor::Of<float>({2}, {1, 1.0009765625f}))["rounded"], false);  // 1 + 2⁻¹⁰
  EXPECT_EQ(data.AddF16(Tensor::Of<float>({2}, {1, 1.00048828125f}))["rounded"], true);  // 1 + 2⁻¹¹
}

TEST(PageData, Root8HasEvenStepsOfTheSquareRoot) {
  PageData data;
  // Levels round(254·√(x/4)): 0, 127, 254, NaN's 255, and a negative number is nothing.
  const nlohmann::json entry = data.AddRoot8(Tensor::Of<float>({6}, {0, 1, 4, kNaN, -3, kInfinity}));
  EXPECT_EQ(entry["scale"], 4.0);
  EXPECT_EQ(ContentOf(data), Base64(std::vector<std::uint8_t>{0, 127, 254, 255, 0, 255}));
}

TEST(PageData, IndexTakesTheShorterType) {
  PageData short_data, long_data;
  EXPECT_EQ(short_data.AddIndex(Tensor::Of<std::int32_t>({3}, {0, 65533, -1}), 65534)["type"], "u16");
  EXPECT_EQ(ContentOf(short_data), Base64(std::vector<std::uint8_t>{0, 0, 0xFD, 0xFF, 0xFF, 0xFF}));
  // 65535 keys have an index 65534, one less than what stands for −1 in u16; the rule keeps a distance.
  EXPECT_EQ(long_data.AddIndex(Tensor::Of<std::int64_t>({2}, {65534, -1}), 65535)["type"], "u32");
  EXPECT_EQ(ContentOf(long_data), Base64(std::vector<std::uint8_t>{0xFE, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF}));
}

TEST(PageData, BitsFillBytesFromTheLowest) {
  PageData data;
  data.AddBits(Tensor::Of<bool>({3, 3}, {true, false, true, false, false, false, false, true, true}));
  EXPECT_EQ(ContentOf(data), Base64(std::vector<std::uint8_t>{0x85, 0x01}));
}

TEST(PageData, I32IsLittleEndian) {
  PageData data;
  data.AddI32(std::vector<std::int32_t>{-2, 258});
  EXPECT_EQ(ContentOf(data), Base64(std::vector<std::uint8_t>{0xFE, 0xFF, 0xFF, 0xFF, 2, 1, 0, 0}));
}

}  // namespace
}  // namespace regard::report
