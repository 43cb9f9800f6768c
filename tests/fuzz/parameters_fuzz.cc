// SPDX-License-Identifier: Apache-2.0
//
// Lists and reports of parameters from the wire. A list that decodes must encode to the same bytes,
// and can be compared and described. Any bytes decode to a report that gives an error with a text.
#include <algorithm>
#include <cstdlib>

#include "grad/parameter_report.h"

using namespace rondo;

namespace {

void compare(const std::vector<grad::ListedParameter>& list) {
  std::vector<grad::ListedParameter> shorter = list;
  if (!shorter.empty())
    shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(shorter.size() / 2));
  if (grad::first_difference(list, list).kind != grad::ListDifference::Kind::none) std::abort();
  const grad::ListDifference found = grad::first_difference(list, shorter);
  if ((found.kind == grad::ListDifference::Kind::none) != list.empty()) std::abort();
  if (found.index > list.size()) std::abort();
}

void report(const std::uint8_t* data, std::size_t size,
            const std::vector<grad::ListedParameter>& list) {
  grad::ReportBytes bytes{};
  std::copy_n(data, std::min(size, bytes.size()), bytes.begin());
  const grad::Report decoded = grad::decode(bytes);
  for (const bool problem : {false, true}) {
    try {
      if (problem) grad::throw_problem({grad::Report{}, decoded});
      grad::throw_difference({grad::Report{}, decoded}, list);
    } catch (const Error& error) {
      if (*error.what() == '\0') std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  const auto list = grad::decode_list(bytes);
  if (list) {
    const std::vector<std::uint8_t> again = grad::encode_list(*list);
    if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
    for (const grad::ListedParameter& each : *list)
      if (grad::describe(each).empty()) std::abort();
    compare(*list);
  }
  report(data, size, list.value_or(std::vector<grad::ListedParameter>{}));
  return 0;
}
