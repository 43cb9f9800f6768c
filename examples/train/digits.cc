// SPDX-License-Identifier: Apache-2.0
#include "examples/train/digits.h"

#include <algorithm>
#include <vector>

#include "examples/train/glyphs.h"
#include "examples/train/random.h"

namespace train {
namespace {

using Length = std::int64_t;  // 1 / 256 of a pixel
constexpr Length pixel = 256;
constexpr Length unit = 1 << 14;  // 1 in fixed point

struct Point {
  Length x, y;
};

// Turns, slants, scales and moves the corners of a glyph.
class Placement {
 public:
  explicit Placement(Random& random) {
    // With t the tangent of half the angle, cos = (1 - tt) / (1 + tt) and sin = 2t / (1 + tt): up
    // to 15 degrees without a sine.
    const Length t = random.between(-unit * 13 / 100, unit * 13 / 100), tt = t * t / unit;
    cosine_ = (unit - tt) * unit / (unit + tt);
    sine_ = 2 * t * unit / (unit + tt);
    slant_ = random.between(-unit / 5, unit / 5);
    width_ = random.between(15, 24);
    height_ = random.between(16, 24);
    shift_ = {random.between(-2 * pixel, 2 * pixel), random.between(-2 * pixel, 2 * pixel)};
  }
  Point operator()(Corner corner) const {
    const Length y = corner.y * height_, x = corner.x * width_ + y * slant_ / unit;
    return {(x * cosine_ - y * sine_) / unit + shift_.x,
            (x * sine_ + y * cosine_) / unit + shift_.y};
  }

 private:
  Length cosine_, sine_, slant_, width_, height_;
  Point shift_;
};

Length root(Length square) {  // of less than (4 * pixel)^2
  Length result = 0;
  for (Length bit = pixel * 2; bit != 0; bit >>= 1)
    if ((result + bit) * (result + bit) <= square) result += bit;
  return result;
}

Length square_distance(Point point, Point a, Point b) {
  const Length dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
  const Length along = std::clamp((point.x - a.x) * dx + (point.y - a.y) * dy, Length{0}, square);
  const Length x = point.x - a.x - (square == 0 ? 0 : dx * along / square);
  const Length y = point.y - a.y - (square == 0 ? 0 : dy * along / square);
  return x * x + y * y;
}

// Returns how much of a pixel the line covers, from 0 to 256.
Length coverage(Point at, std::span<const Point> line, Length half_thickness) {
  const Length reach = half_thickness + pixel / 2;
  Length nearest = reach * reach;
  for (std::size_t i = 1; i < line.size(); ++i)
    nearest = std::min(nearest, square_distance(at, line[i - 1], line[i]));
  return std::clamp(reach - root(nearest), Length{0}, pixel);
}

Point anywhere(Random& random) {
  constexpr Length half = static_cast<Length>(image_side) * pixel / 2;
  return {random.between(-half, half), random.between(-half, half)};
}

}  // namespace

int Digits::draw(std::size_t index, std::span<std::uint8_t, image_pixels> pixels) const {
  Random random(seed_, static_cast<std::uint64_t>(set_), index);
  const int digit = static_cast<int>(random.between(0, 9));
  const Placement place(random);
  std::vector<Point> line;
  for (const Corner corner : glyph(digit)) line.push_back(place(corner));
  const Point start = anywhere(random);
  const Point stray[] = {start,
                         {start.x + random.between(-6 * pixel, 6 * pixel),
                          start.y + random.between(-6 * pixel, 6 * pixel)}};
  const Length thickness = random.between(pixel * 5 / 10, pixel * 12 / 10);
  const Length ground = random.between(48, 120), contrast = random.between(60, 100);
  for (std::size_t i = 0; i < image_pixels; ++i) {
    const auto column = static_cast<Length>(i % image_side),
               row = static_cast<Length>(i / image_side);
    constexpr auto side = static_cast<Length>(image_side);
    const Point at{(2 * column + 1 - side) * pixel / 2, (2 * row + 1 - side) * pixel / 2};
    const Length ink =
        std::max(coverage(at, line, thickness), coverage(at, stray, pixel * 4 / 10) * 3 / 4);
    const Length noise = random.between(-20, 20) + random.between(-20, 20);
    pixels[i] = static_cast<std::uint8_t>(
        std::clamp(ground + contrast * ink / pixel + noise, Length{0}, Length{255}));
  }
  return digit;
}

}  // namespace train
