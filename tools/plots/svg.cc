// SPDX-License-Identifier: Apache-2.0
#include "tools/plots/svg.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <vector>

namespace rondo::tools {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

// The character at the beginning of the text. One that is not UTF-8 has one byte.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return {};
  std::uint32_t code = first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::array<std::uint32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  if (code < least[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, length, true};
}

// Turns the direction of what follows, so that a page shows other text than it has.
bool turns_text(std::uint32_t code) {
  return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) ||
         code == 0x200E || code == 0x200F || code == 0x061C;
}

// Whether XML 1.0 allows it, without the control characters of which it advises against.
bool is_allowed(std::uint32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
  if (code >= 0x7F && code <= 0x9F) return false;
  return !turns_text(code) && (code & 0xFFFE) != 0xFFFE && (code < 0xFDD0 || code > 0xFDEF);
}

std::string_view entity_of(std::uint32_t code) {
  return code == '&' ? "&amp;" : code == '<' ? "&lt;" : code == '>' ? "&gt;" : "";
}

std::string points_of(std::span<const Place> places) {
  std::string text;
  for (const Place& place : places)
    text += fmt::format("{}{:.1f},{:.1f}", text.empty() ? "" : " ", place.x, place.y);
  return text;
}

std::string dashes(std::string_view dash) {
  return dash.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", dash);
}

// The corners of a shape around 0,0; empty: a circle.
std::vector<Place> corners_of(std::size_t shape) {
  switch (shape % 8) {
    case 1:
      return {{-3.2, -3.2}, {3.2, -3.2}, {3.2, 3.2}, {-3.2, 3.2}};
    case 2:
      return {{0, -4.4}, {4.2, 3.2}, {-4.2, 3.2}};
    case 3:
      return {{0, -4.8}, {4.8, 0}, {0, 4.8}, {-4.8, 0}};
    case 4:
      return {{0, 4.4}, {4.2, -3.2}, {-4.2, -3.2}};
    case 5:  // a plus
      return {{-1.4, -4.4}, {1.4, -4.4}, {1.4, -1.4}, {4.4, -1.4}, {4.4, 1.4},   {1.4, 1.4},
              {1.4, 4.4},   {-1.4, 4.4}, {-1.4, 1.4}, {-4.4, 1.4}, {-4.4, -1.4}, {-1.4, -1.4}};
    case 6:
      return {{-4.4, -1.8}, {4.4, -1.8}, {4.4, 1.8}, {-4.4, 1.8}};
    case 7:
      return {{-1.8, -4.4}, {1.8, -4.4}, {1.8, 4.4}, {-1.8, 4.4}};
    default:
      return {};
  }
}

}  // namespace

std::string markup_text(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_of(text);
    if (!character.valid || !is_allowed(character.code))
      safe += replacement;
    else if (const std::string_view entity = entity_of(character.code); !entity.empty())
      safe += entity;
    else
      safe += text.substr(0, character.bytes);
    text.remove_prefix(character.bytes);
  }
  return safe;
}

std::string attribute_text(std::string_view text) {
  std::string safe;
  for (const char c : markup_text(text)) {
    if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

std::string shortened(std::string_view text, std::size_t most) {
  std::size_t kept = 0, count = 0;
  for (std::size_t at = 0; at < text.size(); at += first_of(text.substr(at)).bytes) {
    if (count + 3 <= most) kept = at;
    if (++count > most) return std::string(text.substr(0, kept)) + "...";
  }
  return std::string(text);
}

double width_of_text(std::string_view text, double size) {
  double width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = first_of(text.substr(at));
    at += character.bytes;
    width += character.code >= 0x1100 ? 1.0
             : character.code == 'i' || character.code == 'l' || character.code == ' ' ||
                     character.code == '.' || character.code == ','
                 ? 0.36
             : character.code == 'm' || character.code == 'M' || character.code == 'W' ? 0.98
                                                                                       : 0.64;
  }
  return width * size;
}

void Svg::line(Place from, Place to, std::string_view colour, double width, std::string_view dash) {
  text_ += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
      "stroke-width=\"{}\"{}/>\n",
      from.x, from.y, to.x, to.y, colour, width, dashes(dash));
}

void Svg::path(std::span<const Place> places, std::string_view colour, double width,
               std::string_view dash) {
  text_ += fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
      "stroke-linejoin=\"round\"{}/>\n",
      points_of(places), colour, width, dashes(dash));
}

void Svg::area(std::span<const Place> places, std::string_view colour) {
  text_ += fmt::format("<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.16\"/>\n",
                       points_of(places), colour);
}

void Svg::text(Place place, std::string_view text, double size, Anchor anchor,
               std::string_view colour, bool bold) {
  constexpr std::array<std::string_view, 3> anchors{"start", "middle", "end"};
  text_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\"{}>{}"
      "</text>\n",
      place.x, place.y, size, anchors[static_cast<std::size_t>(anchor)], colour,
      bold ? " font-weight=\"bold\"" : "", markup_text(text));
}

void Svg::upright(Place place, std::string_view text, double size) {
  text_ += fmt::format(
      "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" font-size=\"{}\" "
      "text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
      place.x, place.y, size, dark, markup_text(text));
}

void Svg::mark(Place place, std::size_t shape, std::string_view colour, std::string_view hint) {
  const auto end = [&](const char* name) {
    return hint.empty() ? std::string("/>")
                        : fmt::format("><title>{}</title></{}>", markup_text(hint), name);
  };
  std::vector<Place> corners = corners_of(shape);
  if (corners.empty()) {
    text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.6\" fill=\"{}\"{}\n", place.x,
                         place.y, colour, end("circle"));
    return;
  }
  for (Place& corner : corners) corner = {corner.x + place.x, corner.y + place.y};
  text_ += fmt::format("<polygon points=\"{}\" fill=\"{}\"{}\n", points_of(corners), colour,
                       end("polygon"));
}

std::string whole_svg(const std::string& elements, double width, double height,
                      std::string_view described, bool alone) {
  return fmt::format(
      "{}<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" viewBox=\"0 "
      "0 "
      "{:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" font-family=\"system-ui, 'DejaVu Sans', "
      "Arial, sans-serif\">\n<rect width=\"{:.0f}\" height=\"{:.0f}\" "
      "fill=\"#ffffff\"/>\n{}</svg>\n",
      alone ? "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" : "", width, height, width, height,
      attribute_text(described), width, height, elements);
}

}  // namespace rondo::tools
