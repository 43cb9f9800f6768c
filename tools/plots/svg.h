// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace rondo::tools {

// Makes any text fit for the content of XML and HTML: &, < and > become entities. What XML forbids,
// characters that turn the direction of text, and bytes that are not UTF-8 become U+FFFD.
std::string markup_text(std::string_view text);
// Likewise for an attribute in double quotes.
std::string attribute_text(std::string_view text);

// The text, or its beginning with "..." where it has more than `most` characters.
std::string shortened(std::string_view text, std::size_t most);

// About how wide a text is, in any font without serifs. It is never too small by much.
double width_of_text(std::string_view text, double size);

struct Place {
  double x = 0, y = 0;
};

enum class Anchor : unsigned char { start, middle, end };

// Writes the elements of a picture. Every text is escaped. Colours and dashes are written as they
// are, so they must be constants.
class Svg {
 public:
  void line(Place from, Place to, std::string_view colour, double width,
            std::string_view dash = "");
  void path(std::span<const Place> places, std::string_view colour, double width,
            std::string_view dash = "");
  // Filled, and so transparent that lines below it are seen.
  void area(std::span<const Place> places, std::string_view colour);
  void text(Place place, std::string_view text, double size, Anchor anchor,
            std::string_view colour = dark, bool bold = false);
  // Turned by 90 degrees, in the middle of the place.
  void upright(Place place, std::string_view text, double size);
  // One of eight shapes, so that lines can be told apart without colours. hint: browsers show it
  // when the pointer is on the mark.
  void mark(Place place, std::size_t shape, std::string_view colour, std::string_view hint = "");

  const std::string& elements() const noexcept { return text_; }

  static constexpr std::string_view dark = "#222222", grey = "#666666", faint = "#dddddd";

 private:
  std::string text_;
};

// A whole picture of elements on a white background, so that it can be read on dark pages too.
// described: for people who cannot see it. alone: a file, not a part of an HTML page.
std::string whole_svg(const std::string& elements, double width, double height,
                      std::string_view described, bool alone);

}  // namespace rondo::tools
