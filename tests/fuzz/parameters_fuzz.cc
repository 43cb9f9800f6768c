// SPDX-License-Identifier: Apache-2.0
//
// Lists of parameters from the wire. A list that decodes must encode to the same bytes, and can be
// described, and compared with a shorter one: the difference gives a text.
#include <algorithm>
#include <cstdlib>

#include "training/parameter_list.h"

using namespace rondo;

namespace {

void compare(const std::vector<Parameter>& theirs, const std::vector<Parameter>& mine) {
  const training::Difference found = training::first_difference(theirs, mine);
  if (found == training::Difference{}) std::abort();
  if (training::describe(found, {0}, {1, 2}, theirs).empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto list = training::decode_list(bytes);
  if (!list) return 0;
  if (!std::ranges::equal(training::encode_list(*list), bytes)) std::abort();
  for (const Parameter& each : *list)
    if (training::describe(each).empty()) std::abort();
  if (training::first_difference(*list, *list) != training::Difference{}) std::abort();
  if (list->empty()) return 0;
  std::vector<Parameter> other = *list;
  other.erase(other.begin() + static_cast<std::ptrdiff_t>(other.size() / 2));
  compare(*list, other);
  compare(other, *list);
  other = *list;
  other.back().type = other.back().type == DType::f32 ? DType::f64 : DType::f32;
  compare(*list, other);
  return 0;
}
