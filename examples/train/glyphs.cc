// SPDX-License-Identifier: Apache-2.0
#include "examples/train/glyphs.h"

namespace train {
namespace {

constexpr Corner zero[] = {{0, -80},  {35, -60}, {45, 0},    {35, 60}, {0, 80},
                           {-35, 60}, {-45, 0},  {-35, -60}, {0, -80}};
constexpr Corner one[] = {{-25, -50}, {5, -80}, {5, 80}};
constexpr Corner two[] = {{-40, -45}, {-25, -75}, {15, -80}, {40, -50},
                          {30, -15},  {-40, 80},  {45, 80}};
constexpr Corner three[] = {{-40, -70}, {10, -80}, {40, -45}, {5, -5},
                            {42, 35},   {15, 78},  {-40, 70}};
constexpr Corner four[] = {{20, 80}, {20, -80}, {-45, 30}, {45, 30}};
constexpr Corner five[] = {{40, -80}, {-35, -80}, {-40, -10}, {10, -20},
                           {42, 20},  {15, 75},   {-40, 75}};
constexpr Corner six[] = {{30, -80}, {-20, -40}, {-42, 30}, {-10, 78},
                          {30, 65},  {40, 25},   {5, -5},   {-38, 25}};
constexpr Corner seven[] = {{-42, -80}, {42, -80}, {-10, 80}};
constexpr Corner eight[] = {{0, -5},   {-32, -40}, {0, -80}, {32, -40}, {0, -5},
                            {-40, 38}, {0, 80},    {40, 38}, {0, -5}};
constexpr Corner nine[] = {{38, -20}, {5, 10},   {-38, -25}, {-25, -65},
                           {10, -80}, {40, -45}, {35, 20},   {-5, 80}};

}  // namespace

std::span<const Corner> glyph(int digit) noexcept {
  static constexpr std::span<const Corner> all[] = {zero, one, two,   three, four,
                                                    five, six, seven, eight, nine};
  return all[digit];
}

}  // namespace train
